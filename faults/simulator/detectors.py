"""The detectors under test: one per plane, pure, with their state passed in and out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from faults.diagnosis import Diagnosis
from faults.simulator.cluster import Cluster
from faults.simulator.compute import Gaps


class SimulatedDetector(Protocol):
    """A detector that takes the windows of one plane in order."""

    def start(self) -> Any: ...

    def step(self, state: Any, window: Any, /) -> tuple[Any, tuple[Diagnosis, ...]]: ...


@dataclass(frozen=True, slots=True)
class Detectors:
    """One detector per plane; None: the plane is not simulated."""

    slow: SimulatedDetector | None = None
    compute: SimulatedDetector | None = None
    hang: SimulatedDetector | None = None


DetectorFactory = Callable[[Cluster], Detectors]  # each plane gives the length of its windows


def product_detectors(cluster: Cluster) -> Detectors:
    """Return the product's detectors: the joint fit, the straggler sums and the wait-for graph."""
    from faults.localisation import LocalisationDetector  # noqa: PLC0415 - compiled
    from faults.simulator.stall_detector import StallDetector  # noqa: PLC0415
    from faults.stragglers import Roles, Stragglers  # noqa: PLC0415

    stragglers = _Stragglers(Stragglers(Roles(*cluster.groups)))
    return Detectors(slow=LocalisationDetector(cluster.known), compute=stragglers, hang=StallDetector.of(cluster))


@dataclass(frozen=True, slots=True)
class _Stragglers:
    of: Any

    def start(self) -> Any:
        return self.of.start()

    def step(self, state: Any, gaps: Gaps) -> tuple[Any, tuple[Diagnosis, ...]]:
        state, diagnoses = self.of.step(state, gaps.gap_s, gaps.to_s, window_s=gaps.to_s - gaps.from_s)
        return state, tuple(diagnoses)
