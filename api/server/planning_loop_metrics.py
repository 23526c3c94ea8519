"""Exports metrics of the last reports on planning loops."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric

from api.schemas.planning_loops import LoopPhase, PlanningLoopSpec, PlanningLoopStatus, WorkloadDemand


@dataclass(frozen=True, slots=True)
class ReportedLoop:
    """Joins a planning loop and the last report on it."""

    name: str
    status: PlanningLoopStatus
    reported_at: datetime
    spec: PlanningLoopSpec | None = None


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
    yield from _service_metrics(loops)


def _service_metrics(loops: Sequence[ReportedLoop]) -> Iterable[Metric]:
    """Yield how the engines serve each workload, next to the limits of its SLO."""
    workload = ["planning_loop", "workload"]
    latency = GaugeMetricFamily(
        "fleetwright_workload_latency_seconds",
        "Observed latency in the last usable window, by kind (ttft, tpot) and statistic.",
        labels=[*workload, "kind", "statistic"],
    )
    limit = GaugeMetricFamily(
        "fleetwright_workload_latency_limit_seconds",
        "Limit of the SLO that is planned for, by kind (ttft, tpot, e2e) and statistic.",
        labels=[*workload, "kind", "statistic"],
    )
    tokens = GaugeMetricFamily(
        "fleetwright_workload_tokens_per_second",
        "Tokens of the completed requests in the last usable window, by direction: input or output.",
        labels=[*workload, "direction"],
    )
    completions = GaugeMetricFamily(
        "fleetwright_workload_completions_rps",
        "Requests per second that completed in the last usable window.",
        labels=workload,
    )
    requests = GaugeMetricFamily(
        "fleetwright_workload_requests",
        "Requests in the engines at the end of the last usable window, by state: running or queued.",
        labels=[*workload, "state"],
    )
    shares = GaugeMetricFamily(
        "fleetwright_workload_ratio",
        "Shares in the last usable window, by kind: use of the KV cache, prefix hits, errors.",
        labels=[*workload, "kind"],
    )
    for each in loops:
        for planned in each.spec.request.workloads if each.spec is not None else ():
            for metric, statistic, limit_ms in planned.slo.limits() if planned.slo is not None else ():
                labels = [each.name, planned.name, metric.value.removesuffix("_ms"), statistic.value]
                limit.add_metric(labels, limit_ms / 1000)
        for name, demand in each.status.demand.items():
            of = [each.name, name]
            completions.add_metric(of, demand.completions_rps)
            for family, values in (
                (latency, _latencies(demand)),
                (tokens, _tokens(demand)),
                (requests, [(("running",), demand.running), (("queued",), demand.queued)]),
                (shares, _shares(demand)),
            ):
                for labels_of_value, value in values:
                    if value is not None:
                        family.add_metric([*of, *labels_of_value], value)
    yield from (latency, limit, tokens, completions, requests, shares)


_Values = Sequence[tuple[tuple[str, ...], float | None]]


def _latencies(demand: WorkloadDemand) -> _Values:
    return [
        ((kind, statistic), getattr(found, statistic))
        for kind, found in (("ttft", demand.ttft_s), ("tpot", demand.tpot_s))
        if found is not None
        for statistic in ("mean", "p50", "p99")
    ]


def _tokens(demand: WorkloadDemand) -> _Values:
    directions = (("input", demand.input_tokens), ("output", demand.output_tokens))
    return [((name,), demand.completions_rps * found.mean) for name, found in directions if found is not None]


def _shares(demand: WorkloadDemand) -> _Values:
    return [
        (("kv_cache",), demand.kv_usage),
        (("prefix_hits",), demand.prefix_hit_rate),
        (("errors",), demand.error_rate),
    ]
