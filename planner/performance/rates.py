"""The highest rate that a replica sustains inside an SLO, for many request sizes at once.

The code computes latencies on a grid of mean batches and makes them rise along it.  Each limit allows a part of the
grid, and the tightest determines the rate.  A looser limit allows more of the same grid, so the rate never falls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from fleet.slo import Metric, Slo, Statistic
from planner.performance.coefficients import Coefficients, builtin_coefficients
from planner.performance.config import ReplicaConfig
from planner.performance.hardware_demand import Array, Demands, demands
from planner.performance.kv_memory import misfits
from planner.performance.open_loop import OpenLoop

MAX_SEQUENCES = 256  # per rank: vLLM's default max_num_seqs on most GPUs
FULLEST = 0.95  # mean share of places in use; above it the wait for a place grows without bound
GRID = 40
MIN_DECODING = 0.02
MS_PER_S = 1000.0

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The highest rate for one request size; when it is 0, the reason."""

    max_rps: float
    reason: str | None = None
    interval_90: tuple[float, float] | None = None  # requests/s that enclose 90 % of measured rates


def highest_rates(
    config: ReplicaConfig,
    slo: Slo,
    *,
    sizes: Sequence[Size],
    arrival_cv: float = 1.0,
    coefficients: Coefficients | None = None,
) -> list[Estimate]:
    """One estimate per (input, output) size, each as if the replica served nothing else."""
    reasons = misfits(config, [inputs + outputs for inputs, outputs in sizes])
    fitting = [position for position, reason in enumerate(reasons) if reason is None]
    found = [Estimate(0.0, reason) for reason in reasons]
    if fitting:
        chosen = builtin_coefficients() if coefficients is None else coefficients
        loop = open_loop(config, sizes=[sizes[p] for p in fitting], arrival_cv=arrival_cv, coefficients=chosen)
        for position, estimate in zip(fitting, _estimates(loop, slo), strict=True):
            found[position] = estimate
    return found


def open_loop(
    config: ReplicaConfig, *, sizes: Sequence[Size], arrival_cv: float, coefficients: Coefficients
) -> OpenLoop:
    """Latencies over a grid from an almost idle replica to a full one."""
    flat = demands(config, sizes=sizes)
    demand = Demands(**{field.name: getattr(flat, field.name)[:, None] for field in fields(Demands)})
    places = np.minimum(demand.sequences, MAX_SEQUENCES * config.attention_data_parallel)
    ceiling = np.full_like(places, FULLEST) if config.role == "prefill" else FULLEST * places
    ratio = np.linspace(0.0, 1.0, GRID)[None, :]
    decoding = MIN_DECODING * (ceiling / MIN_DECODING) ** ratio
    return OpenLoop(config, coefficients, demand, decoding, places, arrival_cv)


def _estimates(loop: OpenLoop, slo: Slo) -> list[Estimate]:
    config = loop.config
    limits = [(metric, statistic, limit_ms) for metric, statistic, limit_ms in slo.limits()]
    latencies = [_rising(_limited_latency_s(loop, metric, statistic)) * MS_PER_S for metric, statistic, _ in limits]
    rate_rps = _rising(loop.rate_rps)
    model = config.model
    interval = loop.coefficients.interval(gpu=config.gpu.name, model=model.name, moe=model.experts > 0)

    def rates(factors: dict[Metric, float]) -> tuple[Array, Array, Array]:
        found, binding, at_best = _best(limits, latencies, rate_rps, factors)
        return np.minimum(found, loop.hardware_limit_rps[:, 0]), binding, at_best

    likely, binding, at_best = rates(dict.fromkeys(Metric, 1.0))
    low = high = None
    if interval is not None:
        low = rates(_factors(interval.tpot.high, interval.ttft.high))[0]
        high = rates(_factors(interval.tpot.low, interval.ttft.low))[0]
    return [
        _estimate(limits, float(likely[row]), int(binding[row]), at_best[row], _pair(low, high, row))
        for row in range(len(likely))
    ]


def _limited_latency_s(loop: OpenLoop, metric: Metric, statistic: Statistic) -> Array:
    """A latency as the limits apply to it: a request of one token has no time per token after the first."""
    found = loop.latency_s(metric, statistic)
    return np.where(loop.demand.output_tokens > 1, found, 0.0) if metric is Metric.TPOT else found


def _factors(tpot: float, ttft: float) -> dict[Metric, float]:
    """An end-to-end time is mostly decoding."""
    return {Metric.TPOT: tpot, Metric.TTFT: ttft, Metric.E2E: tpot}


def _best(
    limits: Sequence[tuple[Metric, Statistic, float]],
    latencies: Sequence[Array],
    rate_rps: Array,
    factors: dict[Metric, float],
) -> tuple[Array, Array, Array]:
    """Rates, the position of the limit that binds (-1: none does), and every latency at its best."""
    rows = len(rate_rps)
    position, binding = np.full(rows, float(GRID - 1)), np.full(rows, -1)
    at_best = np.stack([latency[:, 0] * factors[m] for (m, _, _), latency in zip(limits, latencies, strict=True)], 1)
    for which, ((metric, _, limit_ms), latency) in enumerate(zip(limits, latencies, strict=True)):
        reach = _reach(latency * factors[metric], limit_ms)
        binding = np.where(reach < position, which, binding)
        position = np.minimum(position, reach)
    rates = _read_off(rate_rps, np.maximum(position, 0.0)) / factors[Metric.TPOT]
    return np.where(position < 0, 0.0, rates), binding, at_best


def _reach(latency: Array, limit: float) -> Array:
    """Steps along the grid at which a rising latency stays inside; -1 where it never does."""
    inside = (latency <= limit).sum(axis=1)
    before, after = np.maximum(inside - 1, 0), np.minimum(inside, GRID - 1)
    rows = np.arange(len(latency))
    low, high = latency[rows, before], latency[rows, after]
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where((high > low) & np.isfinite(high), (limit - low) / (high - low), 0.0)
    return np.asarray(np.where(inside == 0, -1.0, np.where(inside == GRID, GRID - 1.0, before + part)))


def _read_off(values: Array, position: Array) -> Array:
    before = np.minimum(position.astype(np.int64), GRID - 2)
    rows = np.arange(len(values))
    low, high = values[rows, before], values[rows, before + 1]
    return np.asarray(low + (high - low) * (position - before))


def _rising(values: Array) -> Array:
    return np.asarray(np.maximum.accumulate(values, axis=1))


def _pair(low: Array | None, high: Array | None, row: int) -> tuple[float, float] | None:
    return None if low is None or high is None else (float(low[row]), float(high[row]))


def _estimate(
    limits: Sequence[tuple[Metric, Statistic, float]],
    rate_rps: float,
    binding: int,
    at_best_ms: Array,
    interval: tuple[float, float] | None,
) -> Estimate:
    if binding < 0 or rate_rps > 0:
        return Estimate(rate_rps, interval_90=interval)
    metric, statistic, limit_ms = limits[binding]
    reason = f"{statistic} {metric.name} is {at_best_ms[binding]:.1f} ms at best, above {limit_ms:g} ms"
    return Estimate(0.0, reason, interval_90=interval)
