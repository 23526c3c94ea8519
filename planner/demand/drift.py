"""Observed against predicted latencies of the replicas of one GPU type, and the factor on their rates that follows.

The logarithm of the ratio of observed to predicted time per output token is averaged over the windows, each by its
number of requests, with a memory of `MEMORY_REQUESTS`.  A replica that is r times slower serves 1/r of the rate, so the
rates are planned with 1/r, at most to the ends of the prediction's 90 % interval.  Beyond the interval the model is
wrong for this machine: the factor stays at its end, and a new fit is due.
"""

from dataclasses import dataclass
from math import exp, log

import numpy as np

from fleet.slo import Statistic
from planner.options.search import Candidate
from planner.performance.coefficients import builtin_coefficients
from planner.performance.config import ReplicaConfig
from planner.performance.rates import open_loop

MEMORY_REQUESTS = 2_000.0
MIN_REQUESTS = 100.0  # before a ratio counts
DEAD_BAND = 0.05  # a smaller difference is not planned with
DEFAULT_IMBALANCE = 1.25  # of distributed experts without a recording
SATURATED = 0.999  # of the highest rate of the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Mean latencies of one replica at a rate, and the multiples that contain 90 % of measured ones."""

    tpot_s: float
    ttft_s: float
    tpot_interval: tuple[float, float]
    ttft_interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftState:
    """Means of log ratios, and the requests behind them."""

    tpot_log: float = 0.0
    ttft_log: float = 0.0
    requests: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    tpot_ratio: float | None  # None: not enough requests
    ttft_ratio: float | None
    rate_scale: float
    needs_refit: bool


def config_of(candidate: Candidate) -> ReplicaConfig | None:
    """The configuration behind an option; None where its rates were given."""
    if candidate.shape is None or candidate.model is None or candidate.gpu is None:
        return None
    imbalance = DEFAULT_IMBALANCE if candidate.spread is None else candidate.spread.expert_imbalance
    return candidate.shape.config(candidate.model, candidate.gpu, expert_imbalance=imbalance)


def predict(
    config: ReplicaConfig, *, input_tokens: float, output_tokens: float, rate_rps: float, arrival_cv: float = 1.0
) -> Prediction | None:
    """The latencies of a replica at its share of the rate; None where it is saturated, or its errors are not known."""
    coefficients = builtin_coefficients()
    interval = coefficients.interval(gpu=config.gpu.name, model=config.model.name, moe=config.model.experts > 0)
    if interval is None:
        return None
    size = (max(1, round(input_tokens)), max(1, round(output_tokens)))
    loop = open_loop(config, sizes=[size], arrival_cv=arrival_cv, coefficients=coefficients)
    rates = np.maximum.accumulate(loop.rate_rps[0])
    if not rate_rps <= SATURATED * rates[-1]:
        return None
    return Prediction(
        tpot_s=float(np.interp(rate_rps, rates, loop.tpot_s(Statistic.MEAN)[0])),
        ttft_s=float(np.interp(rate_rps, rates, loop.ttft_s(Statistic.MEAN)[0])),
        tpot_interval=(interval.tpot.low, interval.tpot.high),
        ttft_interval=(interval.ttft.low, interval.ttft.high),
    )


def observed(
    state: DriftState, prediction: Prediction, *, tpot_s: float | None, ttft_s: float | None, requests: float
) -> DriftState:
    """Add one window's mean latencies."""
    if requests <= 0 or tpot_s is None or tpot_s <= 0:
        return state
    kept = min(state.requests, MEMORY_REQUESTS)
    weight = requests / (kept + requests)
    tpot = log(tpot_s / prediction.tpot_s)
    ttft = log(ttft_s / prediction.ttft_s) if ttft_s is not None and ttft_s > 0 else state.ttft_log
    return DriftState(
        tpot_log=state.tpot_log + weight * (tpot - state.tpot_log),
        ttft_log=state.ttft_log + weight * (ttft - state.ttft_log),
        requests=min(kept + requests, MEMORY_REQUESTS),
    )


def assess(state: DriftState, prediction: Prediction) -> Drift:
    if state.requests < MIN_REQUESTS:
        return Drift(tpot_ratio=None, ttft_ratio=None, rate_scale=1.0, needs_refit=False)
    ratio, (low, high) = exp(state.tpot_log), prediction.tpot_interval
    scale = 1.0 if abs(state.tpot_log) < log(1 + DEAD_BAND) else 1 / min(max(ratio, low), high)
    return Drift(
        tpot_ratio=ratio,
        ttft_ratio=exp(state.ttft_log),
        rate_scale=round(scale, 2),  # so that noise does not change the plan's input
        needs_refit=not low <= ratio <= high,
    )
