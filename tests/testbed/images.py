"""Builds the images with buildah, and gives containers roots from them."""

import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from scripts.repo_checks import ROOT
from tests.testbed.debian_image import base_image, run
from tests.testbed.pods import Root
from tests.testbed.requirements import UnavailableError

TARGETS: Final = ("agent", "api", "full")
VARIABLE: Final = "FLEETWRIGHT_IMAGES"  # `build`: build the images, `built`: use those of an earlier build


def build_images() -> None:
    """Build every image as `make image` does, on a base made of Debian packages."""
    if os.geteuid() != 0 or shutil.which("buildah") is None:
        raise UnavailableError("images are built by root with buildah (Debian: apt install buildah debootstrap)")
    flags = "--isolation chroot --pull-never --volume /etc/ssl/certs:/etc/ssl/certs:ro"
    environment = {**os.environ, "PYTHON_IMAGE": base_image(), "BUILD_FLAGS": flags}
    done = subprocess.run(
        [ROOT / "scripts" / "build_images.sh", *TARGETS], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"build_images.sh: {(done.stdout + done.stderr)[-4000:]}")


class ImageRoots:
    """The read-only roots of images.  `close` removes the containers."""

    def __init__(self) -> None:
        self._containers: list[str] = []

    def root_for(self, image: str, *, folder: Path) -> Root:  # noqa: ARG002 - buildah has a folder of its own
        container = run("buildah", "from", "--pull-never", f"localhost/{image}").strip()
        self._containers.append(container)
        config = self.config(image)
        environment = dict(variable.split("=", 1) for variable in config["Env"])
        path = Path(run("buildah", "mount", container).strip())
        return Root(path=path, entrypoint=config["Entrypoint"], environment=environment)

    def config(self, image: str) -> dict[str, Any]:
        """Return what an image configures for its containers."""
        found: dict[str, Any] = json.loads(run("buildah", "inspect", "--type", "image", f"localhost/{image}"))
        return dict(found["OCIv1"]["config"])

    def size_mb(self, image: str) -> float:
        """Return the size of an image's files, in 10^6 bytes."""
        root = self.root_for(image, folder=Path())
        return int(run("du", "--summarize", "--bytes", str(root.path)).split()[0]) / 1e6

    def close(self) -> None:
        for container in self._containers:
            with suppress(UnavailableError):
                run("buildah", "umount", container)
            run("buildah", "rm", container)
