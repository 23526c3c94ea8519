"""Metrics of the power check."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deploy.common.leader_loop import BUCKETS_S, ReconcileMetrics


class DecisionKind(StrEnum):
    ADMITTED = "admitted"
    HELD = "held"
    REJECTED = "rejected"
    UNMEASURED = "unmeasured"


class PowerCheckMetrics(ReconcileMetrics):
    def __init__(self, registry: CollectorRegistry, *, rows: Iterable[str] = ()) -> None:
        super().__init__(
            reconciles=Counter(
                "fleetwright_kueue_power_reconciles",
                "Reconciles of the leader; failed: the API or the cluster did not respond, or refused a write.",
                ["outcome"],
                registry=registry,
            ),
            duration_s=Histogram(
                "fleetwright_kueue_power_reconcile_duration_seconds",
                "Duration of a reconcile.",
                buckets=BUCKETS_S,
                registry=registry,
            ),
            is_leader=Gauge(
                "fleetwright_kueue_power_is_leader",
                "Whether this power check holds the lease: 1 or 0.",
                registry=registry,
            ),
        )
        self._last = Gauge(
            "fleetwright_kueue_power_last_reconcile_timestamp_seconds",
            "Unix time of the last successful reconcile; 0: there is none.",
            registry=registry,
        )
        self._decisions = Counter(
            "fleetwright_kueue_power_decisions",
            "Decisions about workloads; held: too few watts are free; unmeasured: the watts of the job are not known.",
            ["decision"],
            registry=registry,
        )
        self._jobs_w = Gauge(
            "fleetwright_kueue_power_jobs_watts", "Watts of the admitted jobs of a row.", ["row"], registry=registry
        )
        self._limit_w = Gauge(
            "fleetwright_kueue_power_limit_watts",
            "Limit of a row and the domains above it; absent: not known.",
            ["row"],
            registry=registry,
        )
        self._waiting = Gauge("fleetwright_kueue_power_waiting_jobs", "Jobs that wait for power.", registry=registry)
        for kind in DecisionKind:  # so that the first one of a kind is an increase
            self._decisions.labels(kind.value)
        for row in rows:
            self._jobs_w.labels(row)

    def count_reconcile(self, *, ok: bool, duration_s: float, at: datetime) -> None:
        super().count_reconcile(ok=ok, duration_s=duration_s, at=at)
        if ok:
            self._last.set(at.timestamp())

    def count_decision(self, kind: DecisionKind) -> None:
        self._decisions.labels(kind.value).inc()

    def set_rows(self, jobs_w: Mapping[str, float], limits_w: Mapping[str, float | None]) -> None:
        for row, watts in jobs_w.items():
            self._jobs_w.labels(row).set(watts)
        for row, limit_w in limits_w.items():
            if limit_w is not None:
                self._limit_w.labels(row).set(limit_w)
            else:
                with suppress(KeyError):  # it was never known
                    self._limit_w.remove(row)

    def set_waiting(self, jobs: int) -> None:
        self._waiting.set(jobs)
