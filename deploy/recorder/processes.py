"""The state of ranks' processes, from /proc: running, sleeping, stopped, dead, gone (proc_pid_stat(5)).

Each file is opened once: it stays that process's, and reading it fails when the process is gone, also where the id has
come to be another's since.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from faults.observations import Observation, Process

PROC: Final = Path("/proc")
GONE: Final = "gone"
MOST_BYTES: Final = 4096


class ProcessSource:
    """Every rank of this node by its process id."""

    name = "processes"

    def __init__(self, *, node: int, pid_of: Mapping[int, int], proc: Path = PROC, period_s: float = 0.25) -> None:
        self.period_s = period_s
        self._node = node
        self._proc = proc
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._pid_of = dict(pid_of)
        self._open = {pid: self._opened(pid) for pid in pid_of.values()}

    def look(self, now_s: float) -> list[Observation]:
        """One observation a rank; of a process that is not there any more the state is `gone`."""
        return [Observation(now_s, self._node, self._state(pid), rank=rank) for rank, pid in self._pid_of.items()]

    def close(self) -> None:
        """Close what was opened."""
        for pid, file in self._open.items():
            if file is not None:
                os.close(file)
                self._open[pid] = None

    def _state(self, pid: int) -> Process:
        fields = self._stat(pid)
        if fields is None:
            return Process(pid, GONE, 0.0, 0)
        cpu_s = (int(fields[11]) + int(fields[12])) / self._ticks
        state = {"t": "T", "I": "S", "X": "Z", "x": "Z"}.get(fields[0], fields[0])
        return Process(pid, state, cpu_s, int(fields[17]))

    def _opened(self, pid: int) -> int | None:
        try:
            return os.open(self._proc / str(pid) / "stat", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            return None

    def _stat(self, pid: int) -> list[str] | None:
        """What follows the command's name, which may itself hold anything, brackets and blanks too."""
        file = self._open[pid]
        if file is None:
            return None
        try:
            text = os.pread(file, MOST_BYTES, 0)
        except ProcessLookupError:
            return None
        fields = text.rpartition(b")")[2].decode("ascii", "replace").split()
        return fields if len(fields) > 19 else None
