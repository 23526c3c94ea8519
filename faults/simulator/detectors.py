"""The detectors that are measured: one for each plane, pure, with their state handed in and out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from faults.diagnosis import Diagnosis
from faults.simulator.c4_baseline import C4Detector
from faults.simulator.cluster import Cluster
from faults.simulator.compute import Gaps


class SimulatedDetector(Protocol):
    """What a plane's windows are given to, one after the other."""

    def start(self) -> Any:
        """What is known before anything is heard."""
        ...

    def step(self, state: Any, window: Any, /) -> tuple[Any, tuple[Diagnosis, ...]]:
        """One window on: the faults that are believed now."""
        ...


@dataclass(frozen=True, slots=True)
class Detectors:
    """None: the plane is simulated for nobody, and left out."""

    slow: SimulatedDetector | None = None
    compute: SimulatedDetector | None = None
    hang: SimulatedDetector | None = None


Panel = Callable[[Cluster], Detectors]  # each plane says itself how long its windows are


def plain(cluster: Cluster) -> Detectors:
    """C4's rule, to compare with."""
    return Detectors(slow=C4Detector(cluster.known))


def ours(cluster: Cluster) -> Detectors:
    """The joint fit, the straggler's sums and the wait-for graph."""
    from faults.localisation import LocalisationDetector  # noqa: PLC0415 - compiled
    from faults.simulator.stall_detector import StallDetector  # noqa: PLC0415
    from faults.stragglers import Roles, Stragglers  # noqa: PLC0415

    stragglers = _Stragglers(Stragglers(Roles(*cluster.groups)))
    return Detectors(slow=LocalisationDetector(cluster.known), compute=stragglers, hang=StallDetector.of(cluster))


@dataclass(frozen=True, slots=True)
class _Stragglers:
    """Takes gaps as this room's planes hand them over."""

    of: Any

    def start(self) -> Any:
        return self.of.start()

    def step(self, state: Any, gaps: Gaps) -> tuple[Any, tuple[Diagnosis, ...]]:
        state, diagnoses = self.of.step(state, gaps.gap_s, gaps.to_s, window_s=gaps.to_s - gaps.from_s)
        return state, tuple(diagnoses)
