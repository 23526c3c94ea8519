"""The state of ranks' processes, from /proc: running, sleeping, stopped, dead, gone (proc_pid_stat(5))."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from faults.observations import Observation, Process

PROC: Final = Path("/proc")
GONE: Final = "gone"


class ProcessSource:
    """Every rank of this node by its process id."""

    name = "processes"

    def __init__(self, *, node: int, pid_of: Mapping[int, int], proc: Path = PROC, period_s: float = 0.25) -> None:
        self.period_s = period_s
        self._node = node
        self._proc = proc
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._of = {rank: (pid, self._started(pid)) for rank, pid in pid_of.items()}

    def look(self, now_s: float) -> list[Observation]:
        """One observation a rank; of a process that is not there any more the state is `gone`."""
        return [
            Observation(now_s, self._node, self._state(pid, started), rank=rank)
            for rank, (pid, started) in self._of.items()
        ]

    def close(self) -> None:
        """Nothing is held open."""

    def _state(self, pid: int, started: str | None) -> Process:
        fields = self._stat(pid)
        if fields is None or (started is not None and fields[19] != started):
            return Process(pid, GONE, 0.0, 0)  # or the id is another's by now
        cpu_s = (int(fields[11]) + int(fields[12])) / self._ticks
        state = {"t": "T", "I": "S", "X": "Z", "x": "Z"}.get(fields[0], fields[0])
        return Process(pid, state, cpu_s, int(fields[17]))

    def _started(self, pid: int) -> str | None:
        fields = self._stat(pid)
        return None if fields is None else fields[19]

    def _stat(self, pid: int) -> list[str] | None:
        """What follows the command's name, which may itself hold anything, brackets and blanks too."""
        try:
            text = (self._proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = text.rpartition(")")[2].split()
        return fields if len(fields) > 19 else None
