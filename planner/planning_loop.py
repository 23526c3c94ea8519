"""One window of continuous planning: from the observed demand to a decision, as a pure step.

    observe(memory, windows)   add one window of each workload to the forecasts and to the mix of request sizes
    forecast_request(...)      the request template with the forecast rates and the observed sizes
    decide_window(...)         whether the running replicas stay (`planner.stability`), or the request to plan

The forecast is a quantile of the highest rate until new replicas are warm.  Sizes are those of the last windows, back
to the last significant change of the mix.  docs/explanation/planner/continuous-planning.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, sqrt
from typing import Any

import numpy as np

from fleet.documents import Frozen
from fleet.errors import DocumentError
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import Offer
from fleet.sizes.histogram import SizeBuckets
from fleet.solvers import Limits
from planner.demand.density import Floats
from planner.demand.drift import Drift, DriftState, assess, config_of, observed, predict
from planner.demand.windows import DemandWindow, PartTraffic
from planner.forecast import ForecastState, forecast, update
from planner.options.builder import candidates, scaled
from planner.options.search import Candidate
from planner.policy import Running
from planner.problem_builder import build_problem
from planner.request import PlanRequest, RateScale, Workload
from planner.result import Allocation
from planner.stability import StabilityPolicy, StabilityState, decide
from planner.throughput import ThroughputSource

MachineKey = tuple[str, str]  # workload and GPU type
OptionKey = tuple[str, str]  # workload and option
BucketCounts = tuple[float, ...]  # requests per bucket, row by row
HIGHEST_OF_HORIZON = 2.0
MIN_REQUESTS = 20.0  # of the last windows together, so that their sizes count
MAX_BEYOND_BUCKETS = 0.02  # share of requests
FIRST_DECISION_WINDOWS = 2
COLD_WINDOWS = 30  # with fewer, quantiles of the forecast rest on assumed errors
COLD_GROWTH = 1.25  # over the highest rate so far, until then
CHANGED = 4.0  # standard deviations of the chi-square statistic beyond its mean


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    window_s: float = 60.0
    warm_up_s: float = 300.0
    quantile: float = 0.95
    band: float = 0.03
    patience: int = 3
    margin: float = 0.01  # besides the quantile, so that a slow rise is not followed replica by replica
    size_windows: int = 6

    @property
    def horizon_s(self) -> float:
        """From the end of a window until the replicas of the next window's decision are warm."""
        return self.window_s + self.warm_up_s

    @property
    def horizon_quantile(self) -> float:
        """Of the highest rate within the horizon, so that the share of single windows above is at most 1 - quantile.

        The highest of a horizon exceeds its quantile more often than a single window does; the factor of 2 was chosen
        on traces other than those of the report.
        """
        return max(0.5, 1 - HIGHEST_OF_HORIZON * (1 - self.quantile))

    @property
    def stability(self) -> StabilityPolicy:
        return StabilityPolicy(band=self.band, patience=self.patience, margin=self.margin, memory=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMemory:
    """What one window leaves for the next."""

    forecasts: Mapping[str, ForecastState] = field(default_factory=dict)  # by workload
    sizes: Mapping[str, tuple[BucketCounts, ...]] = field(default_factory=dict)  # of the last windows, the newest last
    drifts: Mapping[MachineKey, DriftState] = field(default_factory=dict)
    saving_windows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDecision:
    moved: bool
    reason: str
    memory: LoopMemory
    replicas: Mapping[OptionKey, int]  # that run after this decision
    request: PlanRequest  # with the demand that is planned for; to be planned if the decision is to move
    forecast_rps: Mapping[str, float]  # by workload
    drifts: Mapping[MachineKey, Drift]
    is_served: bool  # whether a mix within the limits serves the forecast


def observe(
    memory: LoopMemory, windows: Mapping[str, DemandWindow], *, template: PlanRequest, settings: LoopSettings
) -> LoopMemory:
    """Add one usable window of each workload."""
    forecasts, sizes = dict(memory.forecasts), dict(memory.sizes)
    for workload in template.workloads:
        window = windows[workload.name]
        state = forecasts.get(workload.name)
        if state is None or state.window_s != settings.window_s:
            state = ForecastState(window_s=settings.window_s)
        forecasts[workload.name] = update(state, rate=window.arrivals_rps, at_s=window.window.end_s)
        if (counts := bucket_counts(window, workload.buckets)) is not None:
            known = [each for each in sizes.get(workload.name, ()) if len(each) == len(counts)]
            sizes[workload.name] = (*known, counts)[-settings.size_windows :]
    return replace(memory, forecasts=forecasts, sizes=sizes)


def bucket_counts(window: DemandWindow, buckets: SizeBuckets) -> BucketCounts | None:
    """The window's requests per bucket, as if input and output were independent; None without requests."""
    inputs, outputs = window.input_tokens, window.output_tokens
    if inputs is None or outputs is None:
        return None
    requests = min(inputs.requests, outputs.requests)
    rows = inputs.shares_on(buckets.input_tokens)
    columns = outputs.shares_on(buckets.output_tokens)
    total = float(rows.sum() * columns.sum())
    return tuple(requests * float(row * column) / total for row in rows for column in columns)


def size_problems(windows: Mapping[str, DemandWindow], *, template: PlanRequest) -> list[str]:
    """Sizes that the template's buckets cannot express: their last one would stand for longer requests too."""
    found = []
    for workload in template.workloads:
        window, buckets = windows[workload.name], workload.buckets
        for tokens, density, edges in (
            ("input", window.input_tokens, buckets.input_tokens),
            ("output", window.output_tokens, buckets.output_tokens),
        ):
            if density is not None and (above := density.share_above(edges[-1])) > MAX_BEYOND_BUCKETS:
                needed = density.quantile(1 - MAX_BEYOND_BUCKETS / 2)
                found.append(
                    f"{above:.0%} of the requests of {workload.name} have more than {edges[-1]:,} {tokens} tokens, the "
                    f"last edge of its buckets; add an edge of at least {needed:,.0f}"
                )
    return found


def recent_shares(windows: Sequence[BucketCounts]) -> BucketCounts | None:
    """The mix of the newest window, pooled with those before it back to the last significant change.

    None with too few requests.
    """
    pooled = np.asarray(windows[-1])
    for older in reversed(windows[:-1]):
        if _differ(pooled, np.asarray(older)):
            break
        pooled = pooled + np.asarray(older)
    return tuple(map(float, pooled / pooled.sum())) if pooled.sum() >= MIN_REQUESTS else None


def forecast_rates(memory: LoopMemory, *, template: PlanRequest, settings: LoopSettings) -> dict[str, float]:
    """Workload -> the quantile of its highest rate over the horizon; at least the rate of the newest window."""
    found = {}
    for workload in template.workloads:
        state = memory.forecasts[workload.name]
        (highest,) = forecast(state, horizon_s=settings.horizon_s, quantiles=(settings.horizon_quantile,))
        rates = [rate for rate in state.rates if rate is not None]
        if state.observed < COLD_WINDOWS:
            highest = min(highest, COLD_GROWTH * max(rates) + 2 * sqrt(max(rates) / settings.window_s))
        found[workload.name] = max(highest, rates[-1])
    return found


def forecast_request(
    template: PlanRequest,
    *,
    memory: LoopMemory,
    rates_rps: Mapping[str, float],
    running: Sequence[Allocation],
) -> PlanRequest:
    """The template with these rates, the sizes of the last windows, and the replicas of the plan in force."""
    workloads = []
    for workload in template.workloads:
        rate_rps, buckets = rates_rps[workload.name], workload.buckets
        known = memory.sizes.get(workload.name)
        if known and (shares := recent_shares(known)) is not None:
            columns = len(buckets.output_tokens)
            rows = tuple(shares[at : at + columns] for at in range(0, len(shares), columns))
            buckets = SizeBuckets(input_tokens=buckets.input_tokens, output_tokens=buckets.output_tokens, share=rows)
        changes = {"rate_rps": rate_rps, "demand": None, "buckets": buckets}
        workloads.append(Workload.model_validate(_given(workload) | changes))
    names = {workload.name for workload in workloads}
    current = tuple(
        Running(workload=entry.workload, option=entry.option, replicas=entry.count)
        for entry in running
        if entry.workload in names
    )
    updates = {
        "workloads": tuple(workloads),
        "current": current or None,
        "horizon": None,
    }
    return PlanRequest.model_validate(_given(template) | updates)


def decide_window(
    template: PlanRequest,
    *,
    memory: LoopMemory,
    settings: LoopSettings,
    running: Sequence[Allocation],
    windows: Mapping[str, DemandWindow],
    traffic: Mapping[OptionKey, PartTraffic],
    gpus: GpuCatalogue,
    models: ModelCatalogue,
    offers: tuple[Offer, ...],
) -> LoopDecision:
    """Decide after `observe`.

    `running` is the allocation of the plan in force, none before the first plan; `traffic` is what its replicas served.
    """
    rates_rps = forecast_rates(memory, template=template, settings=settings)

    def options_with(replicas: Sequence[Allocation]) -> tuple[PlanRequest, tuple[Candidate, ...]]:
        request = forecast_request(template, memory=memory, rates_rps=rates_rps, running=replicas)
        return request, candidates(
            request, gpus=gpus, models=models, offers=request.offers or offers, profiles=request.profiles
        )

    vanished: str | None = None
    try:
        request, found = options_with(running)
    except DocumentError as error:
        if not all(problem.path.startswith("current") for problem in error.problems):
            raise
        vanished = str(error.problems[0])
        request, found = options_with(())
    states, drifts = assess_drift(request, found, running, windows=windows, traffic=traffic, states=memory.drifts)
    scales = tuple(
        RateScale(workload=workload, gpu=gpu, factor=drift.rate_scale)
        for (workload, gpu), drift in sorted(drifts.items())
        if drift.rate_scale != 1.0
    )
    if scales:
        request = PlanRequest.model_validate(_given(request) | {"rate_scales": scales})
        found = tuple(scaled(request, found))
    problem = build_problem(request, found)
    counts = {(entry.workload, entry.option): entry.count for entry in running}
    names = [(request.workloads[candidate.workload].name, candidate.name) for candidate in found]
    needed = tuple(load.rate_rps for load in problem.loads)
    decision = decide(
        problem,
        state=StabilityState(tuple(counts.get(name, 0) for name in names), saving_windows=memory.saving_windows),
        observed_rps=needed,
        forecast_rps=needed,
        policy=settings.stability,
        solver=request.solver,
        limits=Limits(time_limit_s=request.time_limit_s, relative_gap=request.relative_gap),
    )
    solution = decision.solution
    planned_rps = {load.name: fsum(rates) for load, rates in zip(problem.loads, decision.planned_rps, strict=True)}
    return LoopDecision(
        moved=decision.moved,
        reason=f"the plan in force cannot be kept: {vanished}" if vanished is not None else decision.reason,
        memory=replace(memory, saving_windows=decision.state.saving_windows, drifts=states),
        replicas={name: count for name, count in zip(names, decision.running, strict=True) if count},
        request=_with_rates(request, planned_rps) if decision.moved else request,
        forecast_rps=rates_rps,
        drifts=drifts,
        is_served=decision.moved or solution is None or solution.status.has_mix,
    )


def assess_drift(
    request: PlanRequest,
    found: Sequence[Candidate],
    running: Sequence[Allocation],
    *,
    windows: Mapping[str, DemandWindow],
    traffic: Mapping[OptionKey, PartTraffic],
    states: Mapping[MachineKey, DriftState],
) -> tuple[dict[MachineKey, DriftState], dict[MachineKey, Drift]]:
    """Compare the latencies of the replicas in force with their prediction at the rate that they served."""
    options = {(request.workloads[each.workload].name, each.name): each for each in found}
    updated, drifts = dict(states), {}
    for entry in running:
        served, option = traffic.get((entry.workload, entry.option)), options.get((entry.workload, entry.option))
        config = None if option is None else config_of(option)
        window = windows.get(entry.workload)
        if window is None or served is None or option is None or config is None or not served.replicas:
            continue
        if option.throughput.provenance is not ThroughputSource.CALIBRATED:
            continue  # measured rates have errors of their own
        inputs, outputs = window.input_tokens, window.output_tokens
        if inputs is None or outputs is None:
            continue
        rate_rps = served.completions_rps / served.replicas
        prediction = predict(
            config,
            input_tokens=inputs.mean,
            output_tokens=outputs.mean,
            rate_rps=rate_rps,
            arrival_cv=request.workloads[option.workload].arrival_cv,
        )
        if prediction is None:
            continue
        key = (entry.workload, entry.gpu)
        updated[key] = observed(
            updated.get(key, DriftState()),
            prediction,
            tpot_s=None if served.tpot_s is None else served.tpot_s.mean,
            ttft_s=None if served.ttft_s is None else served.ttft_s.mean,
            requests=served.completions_rps * window.window.length_s,  # a histogram may count tokens
        )
        drifts[key] = assess(updated[key], prediction)
    return updated, drifts


def _given(model: Frozen) -> dict[str, Any]:
    """The fields by the names that validation takes; a copy of the model would keep what it has computed from them."""
    return {field.alias or name: getattr(model, name) for name, field in type(model).model_fields.items()}


def _differ(ours: Floats, theirs: Floats) -> bool:
    """Pearson's chi-square test of one mix in two windows, over the buckets that have requests."""
    if min(ours.sum(), theirs.sum()) < MIN_REQUESTS:
        return False
    used = ours + theirs > 0
    ours, theirs = ours[used], theirs[used]
    expected = (ours + theirs) * ours.sum() / (ours.sum() + theirs.sum())
    others = ours + theirs - expected
    statistic = float(np.sum((ours - expected) ** 2 / expected + (theirs - others) ** 2 / others))
    freedom = max(1, len(ours) - 1)
    return statistic > freedom + CHANGED * sqrt(2 * freedom)


def _with_rates(request: PlanRequest, rates_rps: Mapping[str, float]) -> PlanRequest:
    workloads = tuple(
        Workload.model_validate(_given(workload) | {"rate_rps": rates_rps[workload.name]})
        for workload in request.workloads
    )
    return PlanRequest.model_validate(_given(request) | {"workloads": workloads})
