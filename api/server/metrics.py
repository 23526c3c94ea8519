"""Exports Prometheus metrics: counters of this process, and the state of the fleet from the store at each scrape.

Reading the state, rather than counting changes, gives the same values on every replica of the service.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.jobs.lost_workers import WorkerWatch
from api.jobs.metrics import add_build_info
from api.schemas.jobs import JobState, Lane
from api.schemas.targets import Mode, Phase, Target, TargetStatus
from api.server.expert_map_metrics import expert_map_metrics
from api.server.fault_metrics import FaultMetrics, FaultState, fault_metrics
from api.server.planning_loop_metrics import ReportedLoop, planning_loop_metrics
from api.server.power_metrics import PowerState, power_metrics
from api.server.remediation_metrics import CaseMark, remediation_metrics
from api.server.target_costs import Prices, TargetReplicas, cost_metrics
from api.server.wanted import wanted_metrics
from api.store import Failure, LaneCount, WorkerRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REFUSING = frozenset({401, 403, 413, 429, 503})
REFUSALS = ("unauthorized", "forbidden", "rate-limited", "over-quota", "queue-full")  # kinds of problems
REFUSED_CONNECTIONS = (
    *("bad-request", "connection-limit", "headers-too-large", "no-free-file", "request-timeout"),
    *("response-not-read", "too-many-connections"),
)


class ServiceMetrics:
    """Counts events of this process.  Other code in the process registers its metrics here too."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.pages: list[Callable[[], Awaitable[bytes]]] = []  # of processes that belong to this one
        self._requests = self._counter("fleetwright_http_requests", "Answered requests.", "method", "route", "status")
        self._durations = Histogram(
            "fleetwright_http_request_duration_seconds",
            "Duration of requests.",
            ["method", "route"],
            registry=self.registry,
        )
        self._database_failures = self._counter(
            "fleetwright_database_failures", "Failed transactions, by cause.", "failure"
        )
        self._refused_connections = self._counter(
            "fleetwright_http_refused_connections", "Connections that the HTTP server closed, by reason.", "reason"
        )
        self._removed = self._counter("fleetwright_gc_removed", "Rows that retention removed, by kind.", "kind")
        self._collections = self._counter("fleetwright_gc_runs", "Removals of old rows, by outcome.", "outcome")
        self._workers = WorkerWatch(own_id="")
        self._refusals = self._counter(
            "fleetwright_refused_requests", "Refused requests, by the kind of the problem.", "reason"
        )
        for failure in Failure:
            self._database_failures.labels(failure=failure.value)
        for outcome in ("ok", "failed"):
            self._collections.labels(outcome=outcome)
        for reason in REFUSALS:  # so that the first refusal is an increase
            self._refusals.labels(reason=reason)
        for reason in REFUSED_CONNECTIONS:
            self._refused_connections.labels(reason=reason)
        self.faults = FaultMetrics(self.registry)
        add_build_info(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def observe_request(
        self, *, method: str, route: str, status: int, duration_s: float, problem: str | None = None
    ) -> None:
        """Count a request; `problem` is the kind of the problem that it got."""
        self._requests.labels(method=method, route=route, status=str(status)).inc()
        self._durations.labels(method=method, route=route).observe(duration_s)
        if status in REFUSING:
            self._refusals.labels(reason=problem or HTTPStatus(status).phrase.lower().replace(" ", "-")).inc()

    def observe_refusal(self, reason: str) -> None:
        """Count a connection that the HTTP server closed before or instead of a response of the application."""
        self._refused_connections.labels(reason=reason).inc()

    def observe_database_failure(self, failure: Failure) -> None:
        self._database_failures.labels(failure=failure.value).inc()

    def observe_removed(self, counts: Mapping[str, int]) -> None:
        for kind, count in counts.items():
            self._removed.labels(kind=kind).inc(count)

    def observe_garbage_collection(self, outcome: str) -> None:
        self._collections.labels(outcome=outcome).inc()

    def live_workers(self, workers: Sequence[WorkerRecord], *, now_s: float) -> int:
        """Count the workers whose beats have changed lately; a lost one remains in the table if no other removes it."""
        return len(workers) - len(self._workers.lost(workers, orphans=(), now_s=now_s))

    def render(self) -> bytes:
        """Render this process's part of `/metrics`."""
        return generate_latest(self.registry)


@dataclass(frozen=True, slots=True)
class ReportedTarget:
    """Joins a target and the last report on it."""

    target: Target
    status: TargetStatus | None
    reported_at: datetime | None
    prices: Prices = ()  # of the plan

    @property
    def replicas(self) -> TargetReplicas:
        spec, status = self.target.spec, self.status
        planned, applied = (status.planned, status.applied) if status is not None else ({}, {})
        return TargetReplicas(self.target.name, spec.workload, self.prices, planned, applied)


@dataclass(frozen=True, slots=True)
class FleetState:
    at: datetime
    database_up: bool
    database_writable: bool = False
    targets: Sequence[ReportedTarget] = ()
    planning_loops: Sequence[ReportedLoop] = ()
    frozen: bool = False
    audit_entries: int = 0
    document_versions: Sequence[tuple[str, int]] = ()
    power: PowerState = field(default_factory=PowerState)
    faults: FaultState = field(default_factory=FaultState)
    remediation: Sequence[CaseMark] = ()
    jobs: Sequence[LaneCount] = ()
    workers: int = 0


def render_state(state: FleetState) -> bytes:
    """Render the store's part of `/metrics`."""
    registry = CollectorRegistry()
    registry.register(_StateCollector(state))
    return generate_latest(registry)


class _StateCollector(Collector):
    def __init__(self, state: FleetState) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        state = self._state
        yield GaugeMetricFamily("fleetwright_database_up", "1 while the database responds.", value=state.database_up)
        yield GaugeMetricFamily(
            "fleetwright_database_writable", "1 while the database takes writes.", value=state.database_writable
        )
        if not state.database_up:
            return
        yield GaugeMetricFamily("fleetwright_frozen", "1 while the global freeze is on.", value=state.frozen)
        yield GaugeMetricFamily("fleetwright_audit_entries", "Length of the audit chain.", value=state.audit_entries)
        documents = GaugeMetricFamily("fleetwright_document_version", "Version in force.", labels=["kind"])
        for kind, number in state.document_versions:
            documents.add_metric([kind], number)
        yield documents
        yield from _target_metrics(state)
        yield from cost_metrics(each.replicas for each in state.targets)
        reports = [(each.target.name, each.status) for each in state.targets if each.status is not None]
        yield from expert_map_metrics(reports)
        yield from planning_loop_metrics(state.planning_loops, state.at)
        yield from wanted_metrics([(each.target, each.status) for each in state.targets], state.at)
        yield from power_metrics(state.power, state.at)
        yield from fault_metrics(state.faults, state.at)
        yield from remediation_metrics(state.remediation, state.at)
        yield from _job_metrics(state)


def _target_metrics(state: FleetState) -> Iterable[Metric]:
    planned = GaugeMetricFamily(
        "fleetwright_target_replicas_planned", "Replicas of the plan in force.", labels=["target", "gpu"]
    )
    applied = GaugeMetricFamily(
        "fleetwright_target_replicas_applied", "Running replicas in the last report.", labels=["target", "gpu"]
    )
    mode = GaugeMetricFamily("fleetwright_target_mode", "1 for the mode of a target.", labels=["target", "mode"])
    phase = GaugeMetricFamily("fleetwright_target_phase", "1 for the reported phase.", labels=["target", "phase"])
    age = GaugeMetricFamily(
        "fleetwright_target_status_age_seconds", "Time since the last report on a target.", labels=["target"]
    )
    for reported in state.targets:
        name = reported.target.name
        for each_mode in Mode:
            mode.add_metric([name, each_mode.value], reported.target.spec.mode is each_mode)
        if reported.status is None or reported.reported_at is None:
            continue
        for gpu, replicas in reported.status.planned.items():
            planned.add_metric([name, gpu], replicas)
        for gpu, replicas in reported.status.applied.items():
            applied.add_metric([name, gpu], replicas)
        for each_phase in Phase:
            phase.add_metric([name, each_phase.value], reported.status.phase is each_phase)
        age.add_metric([name], max(0.0, (state.at - reported.reported_at).total_seconds()))
    yield from (planned, applied, mode, phase, age)


def _job_metrics(state: FleetState) -> Iterable[Metric]:
    queued = GaugeMetricFamily("fleetwright_jobs_queued", "Jobs that wait for a worker.", labels=["lane"])
    oldest = GaugeMetricFamily(
        "fleetwright_jobs_oldest_queued_seconds", "Age of the oldest waiting job; 0: none waits.", labels=["lane"]
    )
    waiting = {count.lane: count for count in state.jobs if count.state == JobState.QUEUED}
    for lane in Lane:
        count = waiting.get(lane)
        since = count.oldest if count is not None else None
        queued.add_metric([lane.value], count.jobs if count is not None else 0)
        oldest.add_metric([lane.value], max(0.0, (state.at - since).total_seconds()) if since is not None else 0.0)
    yield from (queued, oldest)
    yield GaugeMetricFamily("fleetwright_workers", "Workers that are alive.", value=state.workers)
