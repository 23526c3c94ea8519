"""Tests that programs come from the configured place, an intact cache entry or a build, else with a reason."""

import json
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.testbed import binaries, go_tools
from tests.testbed.go_tools import ManifestSet, Tools
from tests.testbed.nested import run_pytest
from tests.testbed.requirements import VARIABLE, UnavailableError, require_or_skip

VERSION = "v1.2.3"
USES_KUBE_API = "def test_it(kube_api): pass"
PLUGINS = ("tests.testbed.requirements", "tests.testbed.binaries", "tests.testbed.kubernetes")


@pytest.fixture(scope="module")
def go() -> Path:
    """Return the Go toolchain, which is optional on a test machine."""
    found = shutil.which("go")
    if found is None:
        require_or_skip("kubernetes", "there is no Go toolchain on PATH")
    return Path(found)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Create a tools module of one small program and one manifest that needs no network."""
    directory, published = tmp_path / "tool", tmp_path / "tool" / "published"
    (published / "cmd" / "hello" / "v2").mkdir(parents=True)
    (published / "crds").mkdir()
    (published / "go.mod").write_text("module example.invalid/hello\n")
    (published / "cmd" / "hello" / "v2" / "main.go").write_text(
        'package main\n\nvar version string\n\nfunc main() { print("hello " + version) }\n'
    )
    (published / "crds" / "a.yaml").write_text("kind: A\n")
    (published / "crds" / "README.md").write_text("not a manifest\n")
    (directory / "go.mod").write_text(
        "module example.invalid/tool\n\ngo 1.21.0\n\n"
        f"require example.invalid/hello {VERSION}\n\nreplace example.invalid/hello => ./published\n"
    )
    (directory / "go.sum").touch()
    return Tools(
        directory=directory,
        fixtures=(),
        released_as="example.invalid/hello",
        programs={"greeter": "example.invalid/hello/cmd/hello/v2"},
        manifests={"hello-crds": ManifestSet(module="example.invalid/hello", patterns=("crds/*.yaml",))},
        stamps=("main.version={version}/{major}/{minor}",),
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def without_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Return a function that takes Go off PATH."""
    return lambda: monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


@pytest.mark.usefixtures("go")
def test_a_built_entry_needs_no_toolchain(tools: Tools, root: Path, without_go: Callable[[], None]) -> None:
    built = binaries.obtain(tools, root)
    without_go()
    found = binaries.obtain(tools, root)

    assert found == built
    assert found.parent == root / "tool"
    assert found.name.startswith(f"{VERSION}-")
    assert subprocess.run([found / "greeter"], capture_output=True, check=True).stderr == b"hello v1.2.3/1/2"
    assert [path.name for path in (found / "hello-crds").iterdir()] == ["a.yaml"]


@pytest.mark.usefixtures("go")
@pytest.mark.parametrize("damage", ["truncated", "altered", "removed", "no record", "torn record"])
def test_a_damaged_entry_is_rebuilt(
    damage: str, tools: Tools, root: Path, without_go: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = binaries.obtain(tools, root)
    before = (entry / "greeter").read_bytes()
    record = entry / binaries.CONTENTS
    match damage:
        case "truncated":
            (entry / "greeter").write_bytes(before[: len(before) // 2])
        case "altered":
            (entry / "greeter").write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        case "removed":
            (entry / "hello-crds" / "a.yaml").unlink()
        case "no record":
            record.unlink()
        case _:
            record.write_text(record.read_text()[:20])

    without_go()
    with pytest.raises(UnavailableError, match="no Go toolchain on PATH"):
        binaries.obtain(tools, root)
    monkeypatch.undo()
    assert binaries.obtain(tools, root) == entry
    assert (entry / "greeter").read_bytes() == before
    assert json.loads(record.read_text()).keys() == {"greeter", "hello-crds/a.yaml"}


@pytest.mark.usefixtures("go")
def test_leftovers_of_a_killed_build_are_removed(tools: Tools, root: Path) -> None:
    leftover = root / "tool" / ".partial-killed"
    leftover.mkdir(parents=True)
    (leftover / "greeter").write_bytes(b"half")

    entry = binaries.obtain(tools, root)

    assert {path.name for path in entry.parent.iterdir()} == {entry.name, "lock"}


@pytest.mark.usefixtures("go")
def test_simultaneous_callers_share_one_build(tools: Tools, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = []
    really_build = go_tools.build

    def counted(*arguments: object) -> None:
        builds.append(arguments)
        really_build(*arguments)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(go_tools, "build", counted)
    with ThreadPoolExecutor(4) as pool:
        entries = set(pool.map(lambda _: binaries.obtain(tools, root), range(4)))

    assert len(entries) == 1
    assert len(builds) == 1


@pytest.mark.usefixtures("go")
def test_a_failed_build_reports_the_reason_and_leaves_no_files(tools: Tools, root: Path) -> None:
    (tools.directory / "published" / "cmd" / "hello" / "v2" / "main.go").write_text(
        "package main\n\nfunc main() { broken }\n"
    )

    with pytest.raises(UnavailableError, match=r"(?s)`go build` failed.*undefined: broken"):
        binaries.obtain(tools, root)

    assert [path.name for path in (root / "tool").iterdir()] == ["lock"]


def test_an_outdated_toolchain_is_reported_as_the_reason(
    tools: Tools, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old" / "go"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(old.parent), prepend=":")

    with pytest.raises(UnavailableError, match=r"the Go toolchain on PATH is older than 1.21"):
        binaries.obtain(tools, root)


def test_an_unwritable_cache_is_reported_as_the_reason(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=r"the cache .*/file/below cannot be used: .*Not a directory"):
        binaries.obtain(tools, tmp_path / "file" / "below")


def test_another_pin_or_recipe_is_another_entry(tools: Tools, root: Path) -> None:
    before = binaries.place(tools, root)
    go_sum = tools.directory / "go.sum"
    go_sum.write_text("another checksum\n")
    repinned = binaries.place(tools, root)
    go_mod = tools.directory / "go.mod"
    go_mod.write_text(go_mod.read_text().replace(VERSION, "v1.3.0"))
    bumped = binaries.place(tools, root)

    assert len({before, repinned, bumped}) == 3
    assert bumped.name.startswith("v1.3.0-")


@pytest.mark.parametrize("tools", go_tools.ALL, ids=lambda tools: tools.name)
def test_the_assets_directory_takes_precedence_over_cache_and_toolchain(
    tools: Tools, tmp_path: Path, without_go: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = tmp_path / "assets"
    for name in tools.file_names:
        (assets / name).mkdir(parents=True)
    monkeypatch.setenv(binaries.ASSETS_VARIABLE, str(assets))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    without_go()

    assert binaries.find(tools) == {name: assets / name for name in tools.file_names}


@pytest.mark.usefixtures("go")
def test_programs_missing_from_the_assets_directory_come_from_the_cache(
    tools: Tools, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "greeter").write_text("mine")
    monkeypatch.setenv(binaries.ASSETS_VARIABLE, str(assets))
    monkeypatch.setattr(binaries, "cache_root", lambda: root)

    found = binaries.find(tools)

    assert found["greeter"] == assets / "greeter"
    assert found["hello-crds"].is_relative_to(root / "tool")


def test_the_cache_follows_the_base_directory_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert binaries.cache_root() == Path("/var/cache/me/fleetwright")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/invalid")
    monkeypatch.setenv("HOME", "/tmp/ada")
    assert binaries.cache_root() == Path("/tmp/ada/.cache/fleetwright")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert binaries.cache_root() == Path("/tmp/ada/.cache/fleetwright")


@pytest.mark.parametrize("tools", go_tools.ALL, ids=lambda tools: tools.name)
def test_each_tools_module_pins_its_programs(tools: Tools) -> None:
    go_mod = (tools.directory / "go.mod").read_text()
    assert tools.version.startswith("v")
    for package in tools.programs.values():
        assert f"{package}\n" in go_mod


def test_without_a_toolchain_a_test_is_skipped_with_the_reason(tmp_path: Path) -> None:
    result = run_pytest(USES_KUBE_API, folder=tmp_path, plugins=PLUGINS, environment=_bare_machine(tmp_path))

    assert result.returncode == 0, result.stdout
    assert f"kubernetes {go_tools.KUBERNETES.version} is not in {tmp_path}/cache/fleetwright: building" in result.stdout
    assert "SKIPPED [1]" in result.stdout
    assert "kubernetes: control plane: there is no Go toolchain on PATH to build it with" in result.stdout


def test_without_a_toolchain_a_required_part_fails_with_the_reason(tmp_path: Path) -> None:
    environment = _bare_machine(tmp_path) | {VARIABLE: "kubernetes"}
    result = run_pytest(USES_KUBE_API, folder=tmp_path, plugins=PLUGINS, environment=environment)

    assert result.returncode == 1
    assert f"kubernetes is required by {VARIABLE}, but control plane: there is no Go toolchain on PATH" in result.stdout


def test_an_unknown_required_part_stops_the_run(tmp_path: Path) -> None:
    result = run_pytest("def test_it(): pass", folder=tmp_path, plugins=PLUGINS, environment={VARIABLE: "kubernets"})

    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "names kubernets; known parts are" in result.stderr


def _bare_machine(tmp_path: Path) -> dict[str, str]:
    here = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return here | {binaries.ASSETS_VARIABLE: "", VARIABLE: ""}
