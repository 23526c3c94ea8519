"""Whose a namespace or a folder of the lab is, so that the next run can remove what a killed one has left.

A name begins with `fw-PID-START-`: the process that made it, with that process's start time since a pid comes again.
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
    """What the names of this process begin with."""
    return f"{PREFIX}-{os.getpid()}-{_start_ticks(os.getpid())}"


def is_left(name: str) -> bool:
    """Whether the process that made it is gone."""
    parts = name.split("-")
    if len(parts) != 4 or parts[0] != PREFIX or not parts[1].isdigit():
        return False  # not ours
    return _start_ticks(int(parts[1])) != parts[2]


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for the notes of one run, of which nothing is kept."""
    with tempfile.TemporaryDirectory(prefix=f"{owner()}-") as made:
        yield Path(made)


def remove_folders() -> None:
    """Those of killed runs."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}-*"):
        if is_left(path.name):
            shutil.rmtree(path, ignore_errors=True)  # another run may be at it


def _start_ticks(pid: int) -> str | None:
    """When the process started, in ticks since boot: field 22 of proc(5)'s stat."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None
