"""Exports the metrics of a worker: its jobs, and the values of the results that they make."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from api.jobs.outcome import OUT_OF_MEMORY
from api.jobs.results import KINDS, PLACEMENT_KIND, PLAN_KIND, POWER_PLAN_KIND, POWER_SIMULATION_KIND
from fleet.solvers import SolveStatus
from power.whatif.request import PolicyName

IMBALANCE_BUCKETS = (1.001, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0)
SOLVE_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
PLACEMENT_OUTCOMES = ("held", "ceiling-missed")
SIMULATION_OUTCOMES = ("braked", "clean")
JOB_BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


class JobMetrics:
    """Counts the jobs of this worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._jobs = self._counter("fleetwright_jobs", "Finished jobs, by kind and outcome.", "kind", "outcome")
        for kind in KINDS:  # so that the first one is an increase
            for outcome in ("succeeded", "failed", "cancelled", OUT_OF_MEMORY):
                self._jobs.labels(kind=kind.type.name, outcome=outcome)
        self._waits = self._histogram(
            "fleetwright_job_wait_seconds", "Time from acceptance to start.", JOB_BUCKETS_S, "lane"
        )
        self._runs = self._histogram("fleetwright_job_run_seconds", "Time from start to end.", JOB_BUCKETS_S, "kind")
        self._cpu = self._counter("fleetwright_job_cpu_seconds", "Processor time of jobs.", "kind")
        self._running = Gauge("fleetwright_jobs_running", "Jobs that run now.", ["lane"], registry=registry)
        self._lost = self._counter("fleetwright_workers_lost", "Workers taken for lost by this one.")
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
        for status in SolveStatus:
            self._plans.labels(status=status.value)
            self._cap_plans.labels(status=status.value)
        for outcome in PLACEMENT_OUTCOMES:
            self._placements.labels(outcome=outcome)
        for policy in PolicyName:
            for outcome in SIMULATION_OUTCOMES:
                self._simulations.labels(policy=policy.value, outcome=outcome)
        self._observers: dict[str, Callable[..., None]] = {
            PLAN_KIND.type.name: self._observe_plan,
            PLACEMENT_KIND.type.name: self._observe_placement,
            POWER_PLAN_KIND.type.name: self._observe_cap_plan,
            POWER_SIMULATION_KIND.type.name: self._observe_simulation,
        }

    def observe_start(self, *, lane: str, wait_s: float | None) -> None:
        self._running.labels(lane=lane).inc()
        if wait_s is not None:
            self._waits.labels(lane=lane).observe(max(0.0, wait_s))

    def observe_end(self, *, kind: str, lane: str, outcome: str, run_s: float, cpu_s: float) -> None:
        """Count the end of a job; `outcome` is its state, or the kind of its failure."""
        self._running.labels(lane=lane).dec()
        self._jobs.labels(kind=kind, outcome=outcome).inc()
        self._runs.labels(kind=kind).observe(run_s)
        self._cpu.labels(kind=kind).inc(cpu_s)

    def observe_result(self, kind: str, observed: Mapping[str, Any]) -> None:
        """Record the values of a result."""
        if (observe := self._observers.get(kind)) is not None:
            observe(**observed)

    def observe_lost_worker(self) -> None:
        self._lost.inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float] = SOLVE_BUCKETS_S, *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _observe_plan(self, *, status: str, solve_s: float) -> None:
        self._plans.labels(status=status).inc()
        self._solves.observe(solve_s)

    def _observe_placement(self, *, imbalance: float, bound: float, holds: bool, solve_s: float) -> None:
        self._placements.labels(outcome=PLACEMENT_OUTCOMES[0 if holds else 1]).inc()
        self._imbalances.observe(imbalance)
        self._bounds.observe(bound)
        self._placement_solves.observe(solve_s)

    def _observe_simulation(self, *, policy: str, brakes: int, run_s: float) -> None:
        self._simulations.labels(policy=policy, outcome=SIMULATION_OUTCOMES[0 if brakes else 1]).inc()
        self._simulation_times.observe(run_s)

    def _observe_cap_plan(self, *, status: str, solve_s: float) -> None:
        self._cap_plans.labels(status=status).inc()
        self._cap_solves.observe(solve_s)


def add_build_info(registry: CollectorRegistry) -> None:
    build = Gauge("fleetwright_build_info", "Always 1.", ["version"], registry=registry)
    build.labels(version=version("fleetwright")).set(1)
