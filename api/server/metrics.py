"""Exports Prometheus metrics: counters of this process, and the state of the fleet from the store at each scrape.

Reading the state, rather than counting changes, gives the same values on every replica of the service.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.schemas.targets import Mode, Phase, Target, TargetStatus
from api.server.fault_metrics import FaultMetrics, FaultState, fault_metrics
from api.server.power_metrics import PowerState, power_metrics
from api.server.remediation_metrics import CaseMark, remediation_metrics
from api.store import Failure

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
IMBALANCE_BUCKETS = (1.001, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0)
SOLVE_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class ServiceMetrics:
    """Counts events of this process.  Other code in the process registers its metrics here too."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter("fleetwright_http_requests", "Answered requests.", "method", "route", "status")
        self._durations = Histogram(
            "fleetwright_http_request_duration_seconds",
            "Duration of requests.",
            ["method", "route"],
            registry=self.registry,
        )
        self._plans = self._counter("fleetwright_plans", "Created plans, by status.", "status")
        self._solves = self._histogram("fleetwright_plan_solve_seconds", "Solver time of plans.")
        self._placements = self._counter("fleetwright_placements", "Created placements, by outcome.", "outcome")
        self._imbalances = self._histogram(
            "fleetwright_placement_imbalance",
            "Load of the fullest GPU over an even share, mean over layers.",
            IMBALANCE_BUCKETS,
        )
        self._bounds = self._histogram(
            "fleetwright_placement_bound", "Lower bound on the imbalance for the same loads.", IMBALANCE_BUCKETS
        )
        self._placement_solves = self._histogram("fleetwright_placement_solve_seconds", "Solver time of placements.")
        self._simulations = self._counter(
            "fleetwright_power_simulations", "Simulated rows, by policy and outcome.", "policy", "outcome"
        )
        self._simulation_times = self._histogram(
            "fleetwright_power_simulation_seconds", "Time of a row's simulation with its uncapped references."
        )
        self._cap_plans = self._counter("fleetwright_power_plans", "Created power plans, by status.", "status")
        self._cap_solves = self._histogram("fleetwright_power_plan_solve_seconds", "Solver time of power plans.")
        self._database_failures = self._counter(
            "fleetwright_database_failures", "Failed transactions, by cause.", "failure"
        )
        self.faults = FaultMetrics(self.registry)
        build = Gauge("fleetwright_build_info", "Always 1.", ["version"], registry=self.registry)
        build.labels(version=version("fleetwright")).set(1)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float] = SOLVE_BUCKETS_S) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self.registry)

    def observe_request(self, *, method: str, route: str, status: int, duration_s: float) -> None:
        self._requests.labels(method=method, route=route, status=str(status)).inc()
        self._durations.labels(method=method, route=route).observe(duration_s)

    def observe_database_failure(self, failure: Failure) -> None:
        self._database_failures.labels(failure=failure.value).inc()

    def observe_plan(self, *, status: str, solve_s: float) -> None:
        self._plans.labels(status=status).inc()
        self._solves.observe(solve_s)

    def observe_placement(self, *, imbalance: float, bound: float, holds: bool, solve_s: float) -> None:
        """Count one placement; `holds` is false where it misses its ceiling."""
        self._placements.labels(outcome="held" if holds else "ceiling-missed").inc()
        self._imbalances.observe(imbalance)
        self._bounds.observe(bound)
        self._placement_solves.observe(solve_s)

    def observe_simulation(self, *, policy: str, brakes: int, run_s: float) -> None:
        self._simulations.labels(policy=policy, outcome="braked" if brakes else "clean").inc()
        self._simulation_times.observe(run_s)

    def observe_cap_plan(self, *, status: str, solve_s: float) -> None:
        self._cap_plans.labels(status=status).inc()
        self._cap_solves.observe(solve_s)

    def render(self) -> bytes:
        """Render this process's part of `/metrics`."""
        return generate_latest(self.registry)


@dataclass(frozen=True, slots=True)
class ReportedTarget:
    """Joins a target and the last report on it."""

    target: Target
    status: TargetStatus | None
    reported_at: datetime | None


@dataclass(frozen=True, slots=True)
class FleetState:
    at: datetime
    database_up: bool
    targets: Sequence[ReportedTarget] = ()
    frozen: bool = False
    audit_entries: int = 0
    document_versions: Sequence[tuple[str, int]] = ()
    power: PowerState = field(default_factory=PowerState)
    faults: FaultState = field(default_factory=FaultState)
    remediation: Sequence[CaseMark] = ()


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
        if not state.database_up:
            return
        yield GaugeMetricFamily("fleetwright_frozen", "1 while the global freeze is on.", value=state.frozen)
        yield GaugeMetricFamily("fleetwright_audit_entries", "Length of the audit chain.", value=state.audit_entries)
        documents = GaugeMetricFamily("fleetwright_document_version", "Version in force.", labels=["kind"])
        for kind, number in state.document_versions:
            documents.add_metric([kind], number)
        yield documents
        yield from _target_metrics(state)
        yield from power_metrics(state.power, state.at)
        yield from fault_metrics(state.faults, state.at)
        yield from remediation_metrics(state.remediation, state.at)


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
