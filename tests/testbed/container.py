"""Becomes a container: `unshare --mount --pid --fork --kill-child python container.py SPEC.json`, as root.

It makes the root read-only, mounts the volumes, changes the root and the user, and executes the command: what the
container runtime of a node does with a pod, without network and resource limits.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def main(spec: dict[str, Any]) -> None:
    root = Path(spec["root"])
    if spec["overlay_of"]:  # the root of this machine, below a layer that holds the mount points
        layers = root.parent / "layers"
        layers.mkdir()
        _mount("-t", "tmpfs", "tmpfs", layers)
        for name in ("upper", "work"):
            (layers / name).mkdir()
        options = f"lowerdir={spec['overlay_of']},upperdir={layers}/upper,workdir={layers}/work"
        _mount("-t", "overlay", "overlay", "-o", options, root)
    else:
        _mount("--bind", root, root)
    for volume in spec["volumes"]:
        _make_mount_point(root, volume)
    for name in ("proc", "dev"):
        (root / name).mkdir(exist_ok=True)
    _mount("-o", "remount,bind,ro", root)
    _mount("-t", "proc", "proc", root / "proc")
    _mount("--rbind", "/dev", root / "dev")
    for volume in spec["volumes"]:
        target = _make_mount_point(root, volume)  # again, because it may lie in a volume before it
        _mount("--bind", volume["source"], target)
        if volume["read_only"]:
            _mount("-o", "remount,bind,ro", target)
    os.chroot(root)
    os.chdir(spec["working_directory"])
    os.setgroups([spec["gid"]])
    os.setgid(spec["gid"])
    os.setuid(spec["uid"])
    os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])  # noqa: S606 - no shell is wanted


def _make_mount_point(root: Path, volume: dict[str, Any]) -> Path:
    target = root / str(volume["at"]).lstrip("/")
    if Path(volume["source"]).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    return target


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
