"""Finds the programs of the test control plane in `KUBEBUILDER_ASSETS` or in the cache, else builds them once.

A cache entry is one directory, `~/.cache/fleetwright/<module>/<version>-<fingerprint>`.  It is built under a
temporary name and renamed, so it is complete or absent.  It stores the digest of each of its files, so a damaged entry
is rebuilt, and an intact one needs no Go toolchain.  `KUBEBUILDER_ASSETS` may name a directory with any of these files.
"""

import fcntl
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

from tests.testbed import go_tools
from tests.testbed.go_tools import Tools
from tests.testbed.requirements import UnavailableError

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"  # the name that controller-runtime's envtest gave it
CONTENTS: Final = "contents.json"


def find(tools: Tools) -> Mapping[str, Path]:
    """Return the path of each file of `tools`, built now if necessary; `UnavailableError` where that is impossible."""
    preset = _in_assets(tools.file_names)
    if len(preset) == len(tools.file_names):
        return preset
    entry = _entry_or_reason(tools, cache_root())
    if isinstance(entry, str):
        raise UnavailableError(entry)
    return {name: entry / name for name in tools.file_names} | preset


def in_wheel(distribution: str, ending: str) -> Path:
    """Return the path of the installed file of `distribution` whose name has this ending."""
    try:
        files = metadata.distribution(distribution).files or []
    except metadata.PackageNotFoundError:
        raise UnavailableError(f"the package {distribution} is not installed") from None
    for file in files:
        if str(file).endswith(f"/{ending}"):
            return Path(str(file.locate())).resolve()
    raise UnavailableError(f"the package {distribution} has no file {ending}")


def cache_root() -> Path:
    """Return the directory of all entries, by the XDG base directory specification."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(configured) if Path(configured).is_absolute() else Path.home() / ".cache"
    return base / "fleetwright"


def obtain(tools: Tools, root: Path) -> Path:
    """Return the intact entry for `tools` under `root`; build it if there is none."""
    entry = place(tools, root)
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with _locked(entry.parent / "lock"):
            if not _is_sound(entry):
                _build_entry(tools, entry)
    except OSError as error:
        raise UnavailableError(f"the cache {root} cannot be used: {error}") from error
    return entry


def place(tools: Tools, root: Path) -> Path:
    """Return the directory under `root` for the entry of `tools`, which may not exist yet."""
    return root / tools.name / f"{tools.version}-{tools.fingerprint()}"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs of the selected tests before the first of them starts, outside of its time limit."""
    if session.config.option.collectonly:
        return
    fixtures = {name for item in session.items if isinstance(item, pytest.Function) for name in item.fixturenames}
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for tools in go_tools.ALL:
        if fixtures.isdisjoint(tools.fixtures):
            continue
        if reporter is not None and not place(tools, cache_root()).exists():
            reporter.write_line(
                f"{tools.name} {tools.version} is not in {cache_root()}: building it, once, which takes minutes"
            )
        with suppress(UnavailableError):  # the fixture skips or fails its tests with the reason
            find(tools)


@functools.cache
def _entry_or_reason(tools: Tools, root: Path) -> Path | str:
    try:
        return obtain(tools, root)
    except UnavailableError as unavailable:
        return str(unavailable)


def _in_assets(file_names: tuple[str, ...]) -> dict[str, Path]:
    assets = os.environ.get(ASSETS_VARIABLE)
    if not assets:
        return {}
    return {name: Path(assets, name).resolve() for name in file_names if Path(assets, name).exists()}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`; the kernel releases it when the process dies."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_entry(tools: Tools, entry: Path) -> None:
    for leftover in entry.parent.glob(".partial-*"):  # left by a killed build: no build runs under this lock
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=entry.parent))
    try:
        go_tools.build(tools, partial)
        (partial / CONTENTS).write_text(json.dumps(_digests(partial), indent=1))
        partial.chmod(0o755)
        if entry.exists():
            shutil.rmtree(entry)
        partial.rename(entry)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_sound(entry: Path) -> bool:
    try:
        recorded = json.loads((entry / CONTENTS).read_text())
    except (FileNotFoundError, ValueError):
        return False
    return bool(recorded == _digests(entry))


def _digests(directory: Path) -> dict[str, str]:
    digests = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name != CONTENTS:
            with path.open("rb") as file:
                digests[str(path.relative_to(directory))] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests
