"""Fetches Debian packages that are not installed with apt, and unpacks them into a cache.

This needs no root rights and changes nothing outside of the cache: `apt-get download` verifies a package as an
installation would, and `dpkg-deb` unpacks it without running its scripts.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.testbed.requirements import UnavailableError

INSTALLS: Final = re.compile(r"^Inst (?P<name>\S+) (?:\[\S+\] )?\((?P<version>\S+) ", re.MULTILINE)


def cached(cache: Path) -> Path | None:
    """Return the newest tree in `cache`; None without one."""
    entries = sorted(cache.glob("[!.]*"), key=lambda entry: entry.stat().st_mtime_ns)
    return entries[-1] if entries else None


def fetch(package: str, *, cache: Path, also: Callable[[str], bool]) -> Path:
    """Return a tree with `package` and those of its missing dependencies that `also` accepts."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise UnavailableError(f"there is no {program} on PATH to get the package {package} with")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=cache) as partial:
            return _fetch(package, also, partial=Path(partial), cache=cache)
    except OSError as error:
        raise UnavailableError(f"the cache {cache} cannot be used: {error}") from error


def libraries(tree: Path) -> list[Path]:
    """Return the directories of a tree's shared libraries."""
    return [path for pattern in ("usr/lib/*-linux-*", "lib/*-linux-*") for path in sorted(tree.glob(pattern))]


def _fetch(package: str, also: Callable[[str], bool], *, partial: Path, cache: Path) -> Path:
    try:
        version = _download(package, also, into=partial)
    except UnavailableError:
        if os.geteuid() != 0:
            raise
        _run("apt-get", "update", cwd=partial)  # the package lists are missing or outdated
        version = _download(package, also, into=partial)
    tree = partial / "tree"
    for archive in partial.glob("*.deb"):
        _run("dpkg-deb", "--extract", archive.name, tree.name, cwd=partial)
    entry = cache / version
    if not entry.exists():  # another run may have created it first
        tree.rename(entry)
    return entry


def _download(package: str, also: Callable[[str], bool], *, into: Path) -> str:
    """Download the archives and return the version of `package`."""
    plan = _run("apt-get", "install", "--simulate", "--reinstall", "--no-install-recommends", package, cwd=into)
    versions = {found["name"]: found["version"] for found in INSTALLS.finditer(plan)}
    if package not in versions:
        raise UnavailableError(f"apt would not install {package}")
    _run("apt-get", "download", *(name for name in versions if name == package or also(name)), cwd=into)
    return versions[package]


def _run(*argv: str, cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UnavailableError(f"`{' '.join(argv[:2])}` failed: {done.stderr.strip()}")
    return done.stdout
