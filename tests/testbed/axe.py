"""Provides axe-core, which finds defects of accessibility on a page.

The package is fetched from the registry of npm into the cache when a test needs it, and is no part of the repository.
`npm pack` verifies its checksum.
"""

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from tests.testbed.binaries import cache_root
from tests.testbed.browser import Page
from tests.testbed.requirements import UnavailableError

PACKAGE: Final = "axe-core"
VERSION: Final = "4.14.1"
SERIOUS: Final = {"serious", "critical"}
FETCH_S: Final = 120.0


def axe_source(cache: Path | None = None) -> str:
    """Return the script; `UnavailableError` where it is not in the cache and cannot be fetched."""
    entry = (cache or cache_root() / PACKAGE) / VERSION / "axe.min.js"
    if not entry.exists():
        _fetch(entry)
    return entry.read_text(encoding="utf-8")


def _fetch(entry: Path) -> None:
    if shutil.which("npm") is None:
        raise UnavailableError("there is no npm on PATH to fetch axe-core with")
    entry.parent.mkdir(parents=True, exist_ok=True)
    argv = ["npm", "pack", f"{PACKAGE}@{VERSION}", "--silent", "--pack-destination", str(entry.parent)]
    try:
        subprocess.run(argv, check=True, capture_output=True, timeout=FETCH_S)
    except (subprocess.SubprocessError, OSError) as error:
        raise UnavailableError(f"npm pack failed: {error}") from error
    with tarfile.open(entry.parent / f"{PACKAGE}-{VERSION}.tgz") as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        partial = entry.with_suffix(".partial")
        partial.write_bytes(member.read())
        partial.rename(entry)


def serious_findings(page: Page, source: str) -> list[str]:
    """Return the serious and critical findings on the page as it is now."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(source)
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes'][:3]]}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
    ]


@pytest.fixture(scope="session")
def axe() -> str:
    try:
        return axe_source()
    except UnavailableError as unavailable:
        pytest.skip(f"axe-core: {unavailable}")
