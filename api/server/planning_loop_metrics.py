"""Exports metrics of the last reports on planning loops."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric

from api.schemas.planning_loops import LoopPhase, PlanningLoopStatus


@dataclass(frozen=True, slots=True)
class ReportedLoop:
    """Joins a planning loop and the last report on it."""

    name: str
    status: PlanningLoopStatus
    reported_at: datetime


def planning_loop_metrics(loops: Sequence[ReportedLoop], at: datetime) -> Iterable[Metric]:
    """Yield all metrics; a loop without a report has none."""
    loop, part = ["planning_loop"], ["planning_loop", "gpu"]
    phase = GaugeMetricFamily(
        "fleetwright_planning_loop_phase", "1 for the reported phase of a planning loop.", labels=[*loop, "phase"]
    )
    age = GaugeMetricFamily(
        "fleetwright_planning_loop_status_age_seconds", "Time since the last report on a planning loop.", labels=loop
    )
    problems = GaugeMetricFamily(
        "fleetwright_planning_loop_problems", "Reasons why the demand of the last window is not usable.", labels=loop
    )
    arrivals = GaugeMetricFamily(
        "fleetwright_planning_loop_arrivals_rps",
        "Requests per second that arrived in the last usable window.",
        labels=[*loop, "workload"],
    )
    forecast = GaugeMetricFamily(
        "fleetwright_planning_loop_forecast_rps",
        "Requests per second that are planned for: the quantile over the warm-up time.",
        labels=[*loop, "workload"],
    )
    wanted = GaugeMetricFamily(
        "fleetwright_planning_loop_wanted_replicas",
        "Replicas of the last decision, also where the mode does not set its plan.",
        labels=[*loop, "target", "gpu"],
    )
    drift = GaugeMetricFamily(
        "fleetwright_planning_loop_drift_ratio", "Observed over predicted latency.", labels=[*part, "kind"]
    )
    refit = GaugeMetricFamily(
        "fleetwright_planning_loop_needs_refit",
        "1 where the observed latency is outside the interval of the prediction.",
        labels=part,
    )
    for each in loops:
        for each_phase in LoopPhase:
            phase.add_metric([each.name, each_phase.value], each.status.phase is each_phase)
        age.add_metric([each.name], max(0.0, (at - each.reported_at).total_seconds()))
        problems.add_metric([each.name], len(each.status.problems))
        for workload, demand in each.status.demand.items():
            arrivals.add_metric([each.name, workload], demand.arrivals_rps)
            forecast.add_metric([each.name, workload], demand.forecast_rps)
        for target, parts in each.status.wanted.items():
            for gpu, replicas in parts.items():
                wanted.add_metric([each.name, target, gpu], replicas)
        for gpu, report in each.status.drift.items():
            refit.add_metric([each.name, gpu], report.needs_refit)
            for kind, ratio in (("tpot", report.tpot_ratio), ("ttft", report.ttft_ratio)):
                if ratio is not None:
                    drift.add_metric([each.name, gpu, kind], ratio)
    yield from (phase, age, problems, arrivals, forecast, wanted, drift, refit)
