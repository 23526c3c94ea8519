"""The metrics of one controller."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deploy.common.leader_loop import BUCKETS_S, ReconcileMetrics

KINDS = ("scale", "drain")  # of writes; others are the keys of settings


class ControllerMetrics(ReconcileMetrics):
    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(
            reconciles=Counter(
                "fleetwright_controller_reconciles",
                "Reconciles of the leader over all targets; failed: the API did not list targets or store a report.",
                ["outcome"],
                registry=registry,
            ),
            duration_s=Histogram(
                "fleetwright_controller_reconcile_duration_seconds",
                "Time from listing the targets to their last report.",
                buckets=BUCKETS_S,
                registry=registry,
            ),
            is_leader=Gauge(
                "fleetwright_controller_is_leader",
                "Whether this controller holds the lease: 1 or 0.",
                registry=registry,
            ),
        )
        self._writes = Counter(
            "fleetwright_controller_writes",
            "Changes written to a target.",
            ["target", "kind"],
            registry=registry,
        )

    def start_counters(self, target: str) -> None:
        """Count the writes to a target from zero, so that its first write is an increase."""
        for kind in KINDS:
            self._writes.labels(target, kind)

    def wrote(self, *, target: str, kind: str) -> None:
        self._writes.labels(target, kind).inc()
