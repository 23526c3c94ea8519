"""Metrics of a remediation controller.  The API exports the metrics of the cases, which all controllers share."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deploy.remediation.hooks import HOOKS

ACTIONS: Final = ("drain", "end-workers", "probe", *(f"hook-{hook}" for hook in HOOKS))
# A reconcile makes some calls to Ray and the API and waits for actions at most `action_wait_s`, up to its timeout.
_RECONCILE_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RemediationMetrics:
    """Metrics of one controller, on the registry of its metrics server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._is_leader = Gauge(
            "fleetwright_remediation_is_leader", "Whether this controller holds the lease: 1 or 0.", registry=registry
        )
        self._reconciles = Counter(
            "fleetwright_remediation_reconciles",
            "Reconciles of the leader; failed: Ray or the API did not respond, or a case did not advance.",
            ["outcome"],
            registry=registry,
        )
        self._duration = Histogram(
            "fleetwright_remediation_reconcile_duration_seconds",
            "Duration of a reconcile; longer actions continue beside the next reconciles.",
            buckets=_RECONCILE_BUCKETS_S,
            registry=registry,
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
            self._reconciles.labels(outcome)
            for action in ACTIONS:
                self._actions.labels(action, outcome)

    def set_leader_source(self, holds: Callable[[], bool]) -> None:
        """Set the function that each scrape calls for the leader gauge."""
        self._is_leader.set_function(lambda: float(holds()))

    def set_monitored_source(self, count: Callable[[], int]) -> None:
        """Set the function that each scrape calls for the number of monitored runs."""
        self._monitored.set_function(lambda: float(count()))

    def count_reconcile(self, *, ok: bool, duration_s: float, at: datetime) -> None:
        self._reconciles.labels("ok" if ok else "failed").inc()
        self._duration.observe(duration_s)
        if ok:
            self._last.set(at.timestamp())

    def count_action(self, action: str, *, ok: bool) -> None:
        """Count a finished action."""
        self._actions.labels(action, "ok" if ok else "failed").inc()
