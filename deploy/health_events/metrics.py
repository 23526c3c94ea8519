"""Metrics of a forwarder of health events."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from api.schemas.health_events import DeliveryState, OutletName
from deploy.common.leader_loop import BUCKETS_S, ReconcileMetrics

OUTCOMES: Final = ("delivered", "held", "refused", "unreachable")


class ForwarderMetrics(ReconcileMetrics):
    def __init__(self, registry: CollectorRegistry, *, outlets: Iterable[OutletName] = ()) -> None:
        super().__init__(
            reconciles=Counter(
                "fleetwright_health_events_reconciles",
                "Reconciles of the leader; failed: the API, a node source or an outlet did not respond.",
                ["outcome"],
                registry=registry,
            ),
            duration_s=Histogram(
                "fleetwright_health_events_reconcile_duration_seconds",
                "Duration of a reconcile.",
                buckets=BUCKETS_S,
                registry=registry,
            ),
            is_leader=Gauge(
                "fleetwright_health_events_is_leader",
                "Whether this forwarder holds the lease: 1 or 0.",
                registry=registry,
            ),
        )
        self._last = Gauge(
            "fleetwright_health_events_last_reconcile_timestamp_seconds",
            "Unix time of the last successful reconcile; 0: there is none.",
            registry=registry,
        )
        self._attempts = Counter(
            "fleetwright_health_events_attempts",
            "Attempts to deliver an event; held: another owner has the node.",
            ["outlet", "outcome"],
            registry=registry,
        )
        self._events = Gauge(
            "fleetwright_health_events_components",
            "Nodes and switches by the state of their newest event.",
            ["outlet", "state"],
            registry=registry,
        )
        self._outlets = tuple(outlets)
        for outlet in self._outlets:
            for outcome in OUTCOMES:  # so that the first one of a kind is an increase
                self._attempts.labels(outlet.value, outcome)

    def count_reconcile(self, *, ok: bool, duration_s: float, at: datetime) -> None:
        super().count_reconcile(ok=ok, duration_s=duration_s, at=at)
        if ok:
            self._last.set(at.timestamp())

    def count_attempt(self, outlet: OutletName, outcome: str) -> None:
        self._attempts.labels(outlet.value, outcome).inc()

    def set_components(self, counts: Mapping[tuple[OutletName, DeliveryState], int]) -> None:
        for outlet in self._outlets:
            for state in DeliveryState:
                self._events.labels(outlet.value, state.value).set(counts.get((outlet, state), 0))
