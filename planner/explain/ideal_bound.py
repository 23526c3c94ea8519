"""The fewest GPUs and the least cost that any scheduler could need, without queueing, headroom or limits.

- An ideal scheduler with the plan's rates: fractional replicas, each bucket on its best route.  If a replay allowed a
  utilisation above 1, the rates count that much higher, because a bucket is rated at its upper edges.
- An ideal system by the data sheets: the arithmetic of all requests at the peak rate, and the bytes that each request
  alone must move at full bandwidth, in parallel (NanoFlow, arXiv 2408.12757, has the arithmetic alone).

docs/explanation/planner/explanations.md has the formulas.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum, inf

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fleet.documents import Frozen
from fleet.models import ModelArchitecture
from fleet.sizes.histogram import SizeBuckets
from fleet.traces import Trace
from planner.explain.constraints import plural
from planner.explain.what_if import NEGLIGIBLE
from planner.options.search import Candidate
from planner.performance.config import KV_BYTES, SIXTEEN_BIT_BYTES
from planner.problem import MixProblem, Route
from planner.request import PlanRequest, Workload
from planner.solve.solution import MixSolution

ROUNDING = 1e-6  # of a number of GPUs, and of a relative cost
FLOPS_PER_PARAMETER = 2  # a multiplication and an addition
TERA = 1e12
GIGA = 1e9

Floats = npt.NDArray[np.float64]


class MinimumNeed(Frozen):
    """The resources that no schedule can undercut."""

    gpus: int = Field(ge=0, description="Over all types.")
    gpus_of_one_type: Mapping[str, float] = Field(
        description="GPU type -> fractional number, if it served everything; types that cannot are absent."
    )
    cost_usd_per_h: float = Field(ge=0)


class IdealBound(Frozen):
    """The distance of a plan from two lower bounds."""

    scheduler: MinimumNeed = Field(description="An ideal scheduler with the plan's rates.")
    system: MinimumNeed | None = Field(
        default=None,
        description="An ideal system by the data sheets; absent if a model is not known, or if measured rates "
        "beat the data sheets, as cached prompts can.",
    )
    plan_gpus: int | None = None
    above_scheduler: float | None = Field(default=None, description="(plan's cost - bound) / bound.")
    above_system: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one request, or of one second of requests, in a system without waste."""

    flops: float
    moved_bytes: float


@dataclass(frozen=True, slots=True)
class Hardware:
    """The peak rates of an option's GPUs by their data sheet."""

    flops_per_s: float  # of one GPU, dense, at the best precision the option may use
    bytes_per_s: float
    gpus: int = 1  # of one replica


def request_work(model: ModelArchitecture, *, input_tokens: int, output_tokens: int, kv_bytes: float = 2.0) -> Work:
    return mean_work(
        model, input_tokens=np.array([input_tokens]), output_tokens=np.array([output_tokens]), kv_bytes=kv_bytes
    )


def mean_work(
    model: ModelArchitecture,
    *,
    input_tokens: npt.NDArray[np.int64],
    output_tokens: npt.NDArray[np.int64],
    kv_bytes: float = 2.0,
) -> Work:
    """The least work of the mean of these requests.

    Every token but the last passes all active weights.  Attention is causal.  Each decode step reads the request's own
    cache.  Weight traffic counts 0, because a batch of any size shares it.
    """
    passed = np.maximum(0.0, input_tokens + output_tokens - 1.0)
    prompt = np.minimum(input_tokens, passed)
    flops = FLOPS_PER_PARAMETER * float(model.matmul_parameters) * passed + _attention_flops(model, passed)
    read = sum(
        _window_sum(part.window_tokens, prompt, passed) * part.layers * part.values_per_token for part in model.kv_cache
    )
    return Work(float(np.mean(flops)), kv_bytes * float(np.mean(read)))


def find_ideal_bound(
    problem: MixProblem,
    solution: MixSolution | None = None,
    *,
    hardware: Sequence[Hardware],
    work: Sequence[Sequence[Work] | None],
) -> IdealBound:
    """Both bounds, and a plan's distance from them.  `hardware` is per option, `work` per load and bucket."""
    scheduler = _by_tables(problem, hardware)
    known = all(work[w] is not None for w, _ in problem.buckets())
    system = _by_data_sheets(problem, hardware, work) if known else None
    compared = solution if problem.objective.serves_all else None  # not comparable
    cost = None if compared is None else compared.cost_usd_per_h
    gpus = None
    if compared is not None and cost is not None:
        gpus = sum(count * entry.gpus for count, entry in zip(compared.replicas, hardware, strict=True))
    if system is not None and gpus is not None and cost is not None:
        undercut = gpus < system.gpus or cost < system.cost_usd_per_h * (1 - ROUNDING)
        system = None if undercut else system  # the plan is below the bound: some tokens were not computed but cached
    return IdealBound(
        scheduler=scheduler,
        system=system,
        plan_gpus=gpus,
        above_scheduler=_above(cost, scheduler),
        above_system=None if system is None else _above(cost, system),
    )


def as_text(bound: IdealBound) -> str:
    plan = "" if bound.plan_gpus is None else f", the plan has {bound.plan_gpus}"
    line = (
        f"no scheduler with these rates could do with less than {plural(bound.scheduler.gpus, 'GPU')}{plan}, "
        f"or {bound.scheduler.cost_usd_per_h:.2f} $/h{_percent(bound.above_scheduler)}"
    )
    if bound.system is None:
        return line
    return (
        f"{line}; no system could by the data sheets with less than {plural(bound.system.gpus, 'GPU')}, "
        f"or {bound.system.cost_usd_per_h:.2f} $/h{_percent(bound.above_system)}"
    )


def _by_tables(problem: MixProblem, hardware: Sequence[Hardware]) -> MinimumNeed:
    gpus = [entry.gpus for entry in hardware]
    return MinimumNeed(
        gpus=_whole(_best(problem, gpus) or 0.0),
        gpus_of_one_type={
            name: need
            for name in sorted({option.gpu for option in problem.options})
            if (need := _best(problem, gpus, only=name)) is not None
        },
        cost_usd_per_h=_best(problem, _replica_prices(problem)) or 0.0,
    )


def _best(problem: MixProblem, weights: Sequence[float], *, only: str | None = None) -> float | None:
    """Each bucket on the route with the least weight; None if a bucket has no route."""
    needed = []
    for w, b in problem.buckets():
        per_route = [
            _weight(problem, route, b, weights)
            for route in problem.routes
            if route.load == w and route.serves(b)
            if only is None or all(problem.options[leg.option].gpu == only for leg in route.legs)
        ]
        if not per_route:
            return None
        needed.append(min(per_route))
    return fsum(needed)


def _weight(problem: MixProblem, route: Route, bucket: int, weights: Sequence[float]) -> float:
    load = problem.loads[route.load]
    rate_rps = load.rate_rps[bucket] / max(1.0, load.utilisation)
    return fsum(rate_rps / leg.max_rps[bucket] * weights[leg.option] for leg in route.legs)


def _by_data_sheets(
    problem: MixProblem, hardware: Sequence[Hardware], work: Sequence[Sequence[Work] | None]
) -> MinimumNeed:
    """Arithmetic and traffic each at their least cost; they overlap, so the larger one counts."""
    prices = [price / entry.gpus for price, entry in zip(_replica_prices(problem), hardware, strict=True)]
    everything = range(len(hardware))
    per_type: dict[str, float] = {}
    for name in sorted({option.gpu for option in problem.options}):
        options = [o for o in everything if problem.options[o].gpu == name]
        per_type[name] = _slower(problem, hardware, work, options, weights=[1.0] * len(hardware))
    return MinimumNeed(
        gpus=_whole(_slower(problem, hardware, work, everything, weights=[1.0] * len(hardware))),
        gpus_of_one_type=per_type,
        cost_usd_per_h=_slower(problem, hardware, work, everything, weights=prices),
    )


def _slower(
    problem: MixProblem,
    hardware: Sequence[Hardware],
    work: Sequence[Sequence[Work] | None],
    options: Sequence[int],
    *,
    weights: Sequence[float],
) -> float:
    total = _total(problem, work)
    per_flop = min(weights[o] / hardware[o].flops_per_s for o in options)
    per_byte = min(weights[o] / hardware[o].bytes_per_s for o in options)
    return max(total.flops * per_flop, total.moved_bytes * per_byte)


def _total(problem: MixProblem, work: Sequence[Sequence[Work] | None]) -> Work:
    parts = [(problem.loads[w].rate_rps[b], (work[w] or ())[b]) for w, b in problem.buckets()]
    return Work(
        fsum(rate_rps * part.flops for rate_rps, part in parts),
        fsum(rate_rps * part.moved_bytes for rate_rps, part in parts),
    )


def _replica_prices(problem: MixProblem) -> list[float]:
    supplies = [problem.supplies[option.supply] for option in problem.options]
    return [
        supply.price_usd_per_h * option.slots / supply.slots
        for supply, option in zip(supplies, problem.options, strict=True)
    ]


def _above(cost_usd_per_h: float | None, need: MinimumNeed) -> float | None:
    if cost_usd_per_h is None or need.cost_usd_per_h < NEGLIGIBLE:
        return None
    return max(0.0, (cost_usd_per_h - need.cost_usd_per_h) / need.cost_usd_per_h)  # a smaller cost is rounding


def _percent(above: float | None) -> str:
    return "" if above is None else f" (the plan is {above:.1%} above)"


def _whole(gpus: float) -> int:
    return ceil(gpus - ROUNDING)


def _attention_flops(model: ModelArchitecture, passed: Floats) -> Floats:
    """Per pair of tokens a score and, except for latent attention, a value of the same width."""
    products = 1 if model.attention == "mla" else 2
    per_pair = FLOPS_PER_PARAMETER * products * model.heads * model.head_dim
    none = np.zeros_like(passed)
    pairs = sum((part.layers * _window_sum(part.window_tokens, none, passed) for part in model.kv_cache), none)
    return per_pair * pairs


def _window_sum(window_tokens: int | None, first: Floats, last: Floats) -> Floats:
    """Attended tokens, the own one included, summed over positions `first + 1` to `last`."""
    window = last if window_tokens is None else np.minimum(float(window_tokens), last)
    growing_to = np.maximum(first, window)
    growing: Floats = (growing_to * (growing_to + 1) - first * (first + 1)) / 2
    return growing + window * (last - growing_to)


def hardware(candidate: Candidate) -> Hardware:
    """An option's GPUs at the fastest arithmetic that its precision may use, at full clock."""
    sheet = candidate.gpu
    if sheet is None:  # infinite rates keep the bound valid
        return Hardware(inf, inf, candidate.gpus)
    kinds = {*sheet.dense_tflops}
    if candidate.shape is not None and candidate.model is not None:
        config = candidate.shape.config(candidate.model, sheet, expert_imbalance=1.0)
        kinds = {kind for kind in (config.arithmetic, config.base_arithmetic) if kind is not None} or kinds
    tflops = max(sheet.dense_tflops[kind] for kind in kinds)
    return Hardware(tflops * TERA, sheet.bandwidth_gb_per_s * GIGA, candidate.gpus)


def work(request: PlanRequest, candidates: Sequence[Candidate]) -> list[tuple[Work, ...] | None]:
    """Per workload and bucket; None if the model is not known."""
    found: list[tuple[Work, ...] | None] = []
    for w, workload in enumerate(request.workloads):
        own = [candidate for candidate in candidates if candidate.workload == w]
        models = {candidate.model.name: candidate.model for candidate in own if candidate.model is not None}
        kv_bytes = min((KV_BYTES[c.shape.kv_precision] for c in own if c.shape), default=SIXTEEN_BIT_BYTES)
        known = len(models) == 1 and all(candidate.model is not None for candidate in own)
        if not known:
            found.append(None)
            continue
        sustained = _sustained(request, workload)
        parts = _per_bucket(workload, next(iter(models.values())), kv_bytes)
        found.append(tuple(Work(part.flops * sustained, part.moved_bytes * sustained) for part in parts))
    return found


def _sustained(request: PlanRequest, workload: Workload) -> float:
    """The share of the planned rate that must be sustained: with a replay, the peak of a series may queue."""
    series = workload.series
    if series is None or request.proof is None or not request.proof.size or series.peak_rps <= 0:
        return 1.0
    return series.mean_rps / series.peak_rps


def _per_bucket(workload: Workload, model: ModelArchitecture, kv_bytes: float) -> tuple[Work, ...]:
    """Of a bucket's mean request if a trace is known, else of the smallest request in the bucket."""
    sizes = workload.sizes
    if sizes.trace is not None:
        return _of_trace(sizes.trace, sizes.buckets, model, kv_bytes)
    return tuple(
        request_work(model, input_tokens=bucket.lower[0] + 1, output_tokens=bucket.lower[1] + 1, kv_bytes=kv_bytes)
        for bucket in sizes.buckets.buckets()
    )


def _of_trace(trace: Trace, buckets: SizeBuckets, model: ModelArchitecture, kv_bytes: float) -> tuple[Work, ...]:
    columns = len(buckets.output_tokens)
    rows = np.searchsorted(buckets.input_tokens, trace.input_tokens).clip(max=len(buckets.input_tokens) - 1)
    position = rows * columns + np.searchsorted(buckets.output_tokens, trace.output_tokens).clip(max=columns - 1)
    order = np.argsort(position, kind="stable")
    starts = np.searchsorted(position[order], np.arange(1, len(buckets.input_tokens) * columns))
    return tuple(
        mean_work(
            model, input_tokens=trace.input_tokens[own], output_tokens=trace.output_tokens[own], kv_bytes=kv_bytes
        )
        if len(own)
        else Work(0.0, 0.0)
        for own in np.split(order, starts)
    )
