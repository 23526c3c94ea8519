"""The metrics of one controller."""

from collections.abc import Callable
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# A reconcile takes a few HTTP calls, and at most the timeout of a target.
_RECONCILE_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ControllerMetrics:
    """Counters of one controller, on the registry of its metrics server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reconciles = Counter(
            "fleetwright_controller_reconciles",
            "Reconciles of the leader over all targets; failed: the API did not list targets or store a report.",
            ["outcome"],
            registry=registry,
        )
        self._duration = Histogram(
            "fleetwright_controller_reconcile_duration_seconds",
            "Time from listing the targets to their last report.",
            buckets=_RECONCILE_BUCKETS_S,
            registry=registry,
        )
        self._writes = Counter(
            "fleetwright_controller_writes",
            "Changes written to a target.",
            ["target", "kind"],
            registry=registry,
        )
        self._is_leader = Gauge(
            "fleetwright_controller_is_leader",
            "Whether this controller holds the lease: 1 or 0.",
            registry=registry,
        )
        for outcome in ("ok", "failed"):
            self._reconciles.labels(outcome)

    def set_leader_source(self, holds: Callable[[], bool]) -> None:
        """Set the function that each scrape calls for the leader gauge."""
        self._is_leader.set_function(lambda: float(holds()))

    def count_reconcile(self, *, ok: bool, duration_s: float, at: datetime) -> None:  # noqa: ARG002 # for subclasses
        self._reconciles.labels("ok" if ok else "failed").inc()
        self._duration.observe(duration_s)

    def wrote(self, *, target: str, kind: str) -> None:
        self._writes.labels(target, kind).inc()
