"""Metrics of a remediation controller.  The API exports the metrics of the cases, which all controllers share."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deploy.common.leader_loop import BUCKETS_S, ReconcileMetrics
from deploy.remediation.hooks import HOOKS

RAY_ACTIONS: Final = ("drain", "end-workers", "probe", *(f"hook-{hook}" for hook in HOOKS))
NODE_ACTIONS: Final = ("cordon", "uncordon", "evict", "evict-blocked", "probe", "hook-replace", "hook-release")


class RemediationMetrics(ReconcileMetrics):
    def __init__(self, registry: CollectorRegistry, *, actions: Sequence[str] = RAY_ACTIONS) -> None:
        super().__init__(
            reconciles=Counter(
                "fleetwright_remediation_reconciles",
                "Reconciles of the leader; failed: the cluster or the API did not respond, or a case did not advance.",
                ["outcome"],
                registry=registry,
            ),
            duration_s=Histogram(
                "fleetwright_remediation_reconcile_duration_seconds",
                "Duration of a reconcile; longer actions continue beside the next reconciles.",
                buckets=BUCKETS_S,
                registry=registry,
            ),
            is_leader=Gauge(
                "fleetwright_remediation_is_leader",
                "Whether this controller holds the lease: 1 or 0.",
                registry=registry,
            ),
        )
        self._last = Gauge(
            "fleetwright_remediation_last_reconcile_timestamp_seconds",
            "Unix time of the last successful reconcile; 0: there is none.",
            registry=registry,
        )
        self._actions = Counter(
            "fleetwright_remediation_actions",
            "Finished actions; a case can repeat an action.",
            ["action", "outcome"],
            registry=registry,
        )
        self._monitored = Gauge(
            "fleetwright_remediation_runs_monitored",
            "Training runs that this controller monitors for faults.",
            registry=registry,
        )
        for outcome in ("ok", "failed"):  # so that the first one of a kind is an increase
            for action in actions:
                self._actions.labels(action, outcome)

    def set_monitored_source(self, count: Callable[[], int]) -> None:
        """Set the function that each scrape calls for the number of monitored runs."""
        self._monitored.set_function(lambda: float(count()))

    def count_reconcile(self, *, ok: bool, duration_s: float, at: datetime) -> None:
        super().count_reconcile(ok=ok, duration_s=duration_s, at=at)
        if ok:
            self._last.set(at.timestamp())

    def count_action(self, action: str, *, ok: bool) -> None:
        self._actions.labels(action, "ok" if ok else "failed").inc()
