"""What a node is doing: what its workers say, as long as they say it; else only whether it does anything.

Utilisation tells busy from idle.  It does not tell reading prompts from writing tokens, so a busy node of which nobody
speaks counts as reading prompts, which draws the most.
"""

import threading
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from deploy.node_agent.gpu.gpu_state import Sight
from power.controls import Phase

# Of workers that differ, the one that draws the most speaks for the node.
_HEAVIEST = (Phase.PROMPT, Phase.TRAINING, Phase.TOKEN, Phase.IDLE, Phase.PARKED)


class PhaseSource(StrEnum):
    """Whose word the phase is."""

    WORKERS = "workers"
    UTILIZATION = "utilization"


class Doing(NamedTuple):
    """The node's phase, and who says so."""

    phase: Phase
    source: PhaseSource


class Phases:
    """What workers said, each until its word runs out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, tuple[Phase, float]] = {}

    def say(self, worker: str, phase: Phase, *, until_s: float) -> None:
        """A worker's word replaces its last one."""
        with self._lock:
            self._said[worker] = (phase, until_s)

    def now(self, sights: Iterable[Sight], *, now_s: float) -> Doing:
        """What holds."""
        with self._lock:
            self._said = {worker: said for worker, said in self._said.items() if now_s < said[1]}
            phases = {phase for phase, _until_s in self._said.values()}
        if phases:
            return Doing(next(phase for phase in _HEAVIEST if phase in phases), PhaseSource.WORKERS)
        idle = all(sight.reading.utilization == 0 for sight in sights)
        return Doing(Phase.IDLE if idle else Phase.PROMPT, PhaseSource.UTILIZATION)
