"""Tests packages of Debian with the machine's apt and dpkg on a package archive of the test."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.testbed import debian
from tests.testbed.requirements import UnavailableError

pytestmark = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("apt-get", "dpkg-deb")), reason="this machine is not a Debian"
)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an archive with three packages, and an apt that has only this source and has not updated yet."""
    archive = tmp_path / "archive"
    archive.mkdir()
    greet_files = {"usr/bin/greet": "hello", "usr/lib/x86_64-linux-gnu/libgreet.so": "", "etc/greet.conf": ""}
    _publish(archive, "greet", version="1.2-3", needs="libgreet-data, fonts-greet", files=greet_files)
    _publish(archive, "libgreet-data", version="7", files={"usr/share/greet/words": "hello"})
    _publish(archive, "fonts-greet", version="8", files={"usr/share/fonts/greet.ttf": ""})
    _isolate_apt(tmp_path / "apt", archive)
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt/apt.conf"))
    return archive


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be root, so that the test bed updates the lists of the test's apt."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.usefixtures("archive", "as_root")
def test_a_package_is_unpacked_with_its_selected_dependencies(tmp_path: Path) -> None:
    tree = debian.fetch("greet", cache=tmp_path / "cache", also=_is_library)
    assert tree == tmp_path / "cache/1.2-3"
    assert (tree / "usr/bin/greet").read_text() == "hello"
    assert (tree / "usr/share/greet/words").exists()
    assert not (tree / "usr/share/fonts").exists()
    assert debian.libraries(tree) == [tree / "usr/lib/x86_64-linux-gnu"]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["1.2-3"]  # no incomplete entry is left beside it


@pytest.mark.usefixtures("archive", "as_root")
def test_an_unpacked_package_is_found_without_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    assert debian.cached(cache) is None
    tree = debian.fetch("greet", cache=cache, also=_is_library)
    monkeypatch.setenv("PATH", "")
    assert debian.cached(cache) == tree


@pytest.mark.usefixtures("as_root")
def test_outdated_package_lists_are_updated(archive: Path, tmp_path: Path) -> None:
    debian.fetch("greet", cache=tmp_path / "first", also=_is_library)
    shutil.rmtree(archive)
    archive.mkdir()
    _publish(archive, "greet", version="1.3-1", files={"usr/bin/greet": "good day"})
    tree = debian.fetch("greet", cache=tmp_path / "second", also=_is_library)
    assert tree.name == "1.3-1"
    assert (tree / "usr/bin/greet").read_text() == "good day"


@pytest.mark.usefixtures("archive")
def test_without_root_the_lists_are_not_updated_and_the_error_is_that_of_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UnavailableError, match=r"`apt-get install` failed: E: Unable to locate package greet"):
        debian.fetch("greet", cache=tmp_path / "cache", also=_is_library)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.usefixtures("archive", "as_root")
def test_an_unwritable_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(UnavailableError, match=f"the cache {tmp_path}/cache cannot be used"):
        debian.fetch("greet", cache=tmp_path / "cache", also=_is_library)


def test_a_machine_without_apt_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnavailableError, match="there is no apt-get on PATH to get the package greet with"):
        debian.fetch("greet", cache=tmp_path / "cache", also=_is_library)


def _is_library(package: str) -> bool:
    return package.startswith("lib")


def _publish(archive: Path, name: str, *, version: str, files: dict[str, str], needs: str = "") -> None:
    """Build a package and append it to the archive's index."""
    root = archive / name
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    fields = {"Package": name, "Version": version, "Architecture": "all", "Maintainer": "the tests <tests@localhost>"}
    fields |= {"Depends": needs} if needs else {}
    control = "".join(f"{field}: {value}\n" for field, value in fields.items()) + "Description: for the tests\n"
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(control)
    package = archive / f"{name}_{version}.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, package], check=True, capture_output=True)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    with (archive / "Packages").open("a") as index:
        index.write(f"{control}Filename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n\n")


def _isolate_apt(home: Path, archive: Path) -> None:
    """Give apt a home without installed packages, with `archive` as its only source."""
    for directory in ("state/lists/partial", "cache/archives/partial", "none.d"):
        (home / directory).mkdir(parents=True)
    (home / "status").touch()
    (home / "sources.list").write_text(f"deb [trusted=yes] file:{archive} ./\n")
    settings = {
        "Dir::State": home / "state",
        "Dir::State::status": home / "status",
        "Dir::Cache": home / "cache",
        "Dir::Etc::sourcelist": home / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::parts": home / "none.d",
        "Dir::Etc::main": home / "none",
        "APT::Sandbox::User": "root",
    }
    (home / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
