"""Makes the base of the test images from Debian packages, for machines that reach no registry of images.

It stands for `python:3.13-slim`: the same release of Debian and Python, without compilers.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.testbed.requirements import UnavailableError

BASE: Final = "localhost/fleetwright-test-base"
RELEASE: Final = "trixie"
PACKAGES: Final = "python3,python3-venv,ca-certificates"
# Archives and lists of apt, documents and translations; ensurepip's wheels stay, they make the virtual environment.
UNUSED: Final = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "var/log")


def base_image() -> str:
    """Return the name of the base; make it if there is none."""
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None:
            raise UnavailableError(f"there is no {program} (Debian: apt install buildah debootstrap)")
    if _is_there(BASE):
        return BASE
    with tempfile.TemporaryDirectory(prefix="fleetwright-base-") as folder:
        root = Path(folder) / "root"
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root))
        _commit(root)
    return BASE


def run(*argv: str, timeout_s: float = 3600.0) -> str:
    """Run a program and return its output; an error has the end of both."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s)
    if done.returncode != 0:
        raise UnavailableError(f"`{' '.join(argv[:3])}` failed: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _is_there(image: str) -> bool:
    return subprocess.run(["buildah", "inspect", image], capture_output=True, check=False).returncode == 0


def _commit(root: Path) -> None:
    for name in UNUSED:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True)
    container = run("buildah", "from", "scratch").strip()
    try:
        run("buildah", "add", container, str(root), "/")
        run("buildah", "config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
        run("buildah", "commit", "--rm", container, BASE)
    except UnavailableError:
        run("buildah", "rm", container)
        raise
