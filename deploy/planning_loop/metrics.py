"""The metrics of continuous planning in one controller."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from api.schemas.planning_loops import LoopPhase

BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class PlanningMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._windows = Counter(
            "fleetwright_planning_windows",
            "Windows of planning loops, by the phase after them; holding: the demand was not usable.",
            ["phase"],
            registry=registry,
        )
        self._duration_s = Histogram(
            "fleetwright_planning_window_duration_seconds",
            "Time from the end of a window's wait to its decision.",
            buckets=BUCKETS_S,
            registry=registry,
        )
        for phase in LoopPhase:  # so that the first window of a phase is an increase
            self._windows.labels(phase.value)

    def decided(self, phase: LoopPhase, *, duration_s: float) -> None:
        self._windows.labels(phase.value).inc()
        self._duration_s.observe(duration_s)
