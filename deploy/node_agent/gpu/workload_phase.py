"""What a node is doing: what its workers say, as long as they say it; else only whether it does anything.

Utilisation tells busy from idle.  It does not tell reading prompts from writing tokens, so a busy node of which nobody
speaks counts as reading prompts, which draws the most.
"""

import threading
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from deploy.node_agent.gpu.gpu_state import GpuState
from power.controls import Phase

# Of workers that differ, the one that draws the most speaks for the node.
_HEAVIEST = (Phase.PROMPT, Phase.TRAINING, Phase.TOKEN, Phase.IDLE, Phase.PARKED)


class PhaseSource(StrEnum):
    """Whose word the phase is."""

    WORKERS = "workers"
    UTILIZATION = "utilization"


class NodePhase(NamedTuple):
    """The node's phase, and who says so."""

    phase: Phase
    source: PhaseSource


class WorkloadPhases:
    """What workers said, each until its word runs out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: dict[str, tuple[Phase, float]] = {}

    def report(self, worker: str, phase: Phase, *, until_s: float) -> None:
        """A worker's word replaces its last one."""
        with self._lock:
            self._reported[worker] = (phase, until_s)

    def now(self, gpu_states: Iterable[GpuState], *, now_s: float) -> NodePhase:
        """What holds."""
        with self._lock:
            self._reported = {worker: said for worker, said in self._reported.items() if now_s < said[1]}
            phases = {phase for phase, _until_s in self._reported.values()}
        if phases:
            return NodePhase(next(phase for phase in _HEAVIEST if phase in phases), PhaseSource.WORKERS)
        idle = all(gpu.reading.utilization == 0 for gpu in gpu_states)
        return NodePhase(Phase.IDLE if idle else Phase.PROMPT, PhaseSource.UTILIZATION)
