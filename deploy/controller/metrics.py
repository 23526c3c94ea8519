"""The metrics of one controller."""

from prometheus_client import CollectorRegistry, Counter

from deploy.common.leader_loop import ReconcileMetrics


class ControllerMetrics(ReconcileMetrics):
    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(
            registry,
            prefix="fleetwright_controller",
            reconciles=(
                "Reconciles of the leader over all targets; failed: the API did not list targets or store a report."
            ),
            duration="Time from listing the targets to their last report.",
        )
        self._writes = Counter(
            "fleetwright_controller_writes",
            "Changes written to a target.",
            ["target", "kind"],
            registry=registry,
        )

    def wrote(self, *, target: str, kind: str) -> None:
        self._writes.labels(target, kind).inc()
