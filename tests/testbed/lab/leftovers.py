"""Identifies the owner of a namespace or folder, so that the next run can remove those of a killed one.

A name begins with `fw-PID-START-`: the pid of its process, and the start time, because pids are reused.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PREFIX: Final = "fw"


def owner() -> str:
    """Return the prefix of all names of this process."""
    return f"{PREFIX}-{os.getpid()}-{_start_ticks(os.getpid())}"


def is_left(name: str) -> bool:
    """Check whether the process that created it has ended."""
    parts = name.split("-")
    if len(parts) != 4 or parts[0] != PREFIX or not parts[1].isdigit():
        return False  # not ours
    return _start_ticks(int(parts[1])) != parts[2]


@contextmanager
def folder() -> Iterator[Path]:
    """Create a temporary folder for one run."""
    with tempfile.TemporaryDirectory(prefix=f"{owner()}-") as made:
        yield Path(made)


def remove_folders() -> None:
    """Remove the folders of killed runs."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}-*"):
        if is_left(path.name):
            shutil.rmtree(path, ignore_errors=True)  # another run may remove it too


def _start_ticks(pid: int) -> str | None:
    """Return the start time of a process in ticks since boot: field 22 of proc(5)'s stat."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None
