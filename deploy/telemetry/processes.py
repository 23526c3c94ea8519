"""The state of ranks' processes, from /proc: running, sleeping, stopped, dead, gone (proc_pid_stat(5)).

It includes how long the main thread, which calls the collectives, was runnable without a core: the second number of
/proc/PID/schedstat, in nanoseconds.  This separates a rank that computes longer from a rank that waits for a core.

Each file is opened once and stays that process's: reading fails after its end, also if its id was reused.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from faults.observations import Observation, Process

PROC: Final = Path("/proc")
GONE: Final = "gone"
MAX_BYTES: Final = 4096


class ProcessSource:
    name = "processes"

    def __init__(self, *, node: int, pid_of: Mapping[int, int], proc: Path = PROC, period_s: float = 0.25) -> None:
        self.period_s = period_s
        self._node = node
        self._proc = proc
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._pid_of = dict(pid_of)
        self._stats = {pid: self._opened(pid, "stat") for pid in pid_of.values()}
        self._waits = {pid: self._opened(pid, "schedstat") for pid in pid_of.values()}

    def poll(self, now_s: float) -> list[Observation]:
        return [Observation(now_s, self._node, self._state(pid), rank=rank) for rank, pid in self._pid_of.items()]

    def close(self) -> None:
        for files in (self._stats, self._waits):
            for pid, file in files.items():
                if file is not None:
                    os.close(file)
                    files[pid] = None

    def _state(self, pid: int) -> Process:
        fields = self._stat(pid)
        if fields is None:
            return Process(pid, GONE, 0.0, 0)
        cpu_s = (int(fields[11]) + int(fields[12])) / self._ticks
        state = {"t": "T", "I": "S", "X": "Z", "x": "Z"}.get(fields[0], fields[0])
        return Process(pid, state, cpu_s, int(fields[17]), self._waited_s(pid))

    def _opened(self, pid: int, name: str) -> int | None:
        try:
            return os.open(self._proc / str(pid) / name, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            return None

    def _stat(self, pid: int) -> list[str] | None:
        """Return the fields after the command's name, which may hold brackets and blanks."""
        text = _read(self._stats[pid])
        fields = text.rpartition(b")")[2].decode("ascii", "replace").split(None, 20)
        return fields if len(fields) > 19 else None

    def _waited_s(self, pid: int) -> float | None:
        """Return None if the kernel has no scheduler statistics."""
        fields = _read(self._waits[pid]).split()
        return int(fields[1]) / 1e9 if len(fields) == 3 else None


def _read(file: int | None) -> bytes:
    """Return the content; empty for a process that has ended."""
    if file is None:
        return b""
    try:
        return os.pread(file, MAX_BYTES, 0)
    except ProcessLookupError:
        return b""
