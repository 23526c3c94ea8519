"""The phase of a node: reported by its workers with a lease, else derived from utilisation.

Utilisation distinguishes busy from idle only.  A busy node without reports counts as reading prompts, which draws the
most.
"""

import threading
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from deploy.node_agent.gpu.gpu_state import GpuState
from power.controls import Phase

# The phase with the highest power counts for the node.
_HEAVIEST = (Phase.PROMPT, Phase.TRAINING, Phase.TOKEN, Phase.IDLE, Phase.PARKED)


class PhaseSource(StrEnum):
    """The source of the phase."""

    WORKERS = "workers"
    UTILIZATION = "utilization"


class NodePhase(NamedTuple):
    phase: Phase
    source: PhaseSource


class WorkloadPhases:
    """The phases that workers reported, each until its lease expires."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: dict[str, tuple[Phase, float]] = {}

    def report(self, worker: str, phase: Phase, *, until_s: float) -> None:
        """Store a worker's phase; it replaces the worker's last one."""
        with self._lock:
            self._reported[worker] = (phase, until_s)

    def now(self, gpu_states: Iterable[GpuState], *, now_s: float) -> NodePhase:
        with self._lock:
            self._reported = {worker: reported for worker, reported in self._reported.items() if now_s < reported[1]}
            phases = {phase for phase, _until_s in self._reported.values()}
        if phases:
            return NodePhase(next(phase for phase in _HEAVIEST if phase in phases), PhaseSource.WORKERS)
        idle = all(gpu.reading.utilization == 0 for gpu in gpu_states)
        return NodePhase(Phase.IDLE if idle else Phase.PROMPT, PhaseSource.UTILIZATION)
