"""Requests drawn from a seed: a Poisson process whose rate follows a load profile.

    rate of class k at t = level(t) * peak_utilization * servers_k / mean_service_k

so that at level 1 every pool is busy for `peak_utilization` of its time, with one request per server at full clock.
All classes are one process with marks, drawn by inverting its integrated rate.
"""

import numpy as np

from fleet.documents import RuleError
from power.arrays import Floats, Ints
from power.server_model import BLOOM_A100, ServerModel
from power.workload.load_profile import Curve, Shape, builtin_shape
from power.workload.request_classes import POLCA_MIX, Mix
from power.workload.workload import TrainingJob, Work

PEAK_UTILIZATION = 0.80
MAX_REQUESTS = 50_000_000
GRID_S = 60.0  # the rate is integrated on; levels are straight between steps ten times as long


def generated_work(
    *,
    servers: int,
    days: float = 14.0,
    seed: int = 0,
    shape: Shape | Curve | None = None,
    mix: Mix = POLCA_MIX,
    model: ServerModel = BLOOM_A100,
    peak_utilization: float = PEAK_UTILIZATION,
    jobs: tuple[TrainingJob, ...] = (),
) -> Work:
    """Generate work for `servers` servers.  The load course of a seed is the same for any number of servers."""
    if not 0 < peak_utilization < 2:
        raise RuleError([(("peak_utilization",), f"must be above 0 and below 2, got {peak_utilization:g}")])
    curve = drawn_curve(shape, days=days, seed=seed)
    pools = mix.pools(servers)
    rates = np.array(
        [
            peak_utilization * pool.servers / kind.mean_service_s(model)
            for kind, pool in zip(mix.kinds, pools, strict=True)
        ]
    )
    rng = np.random.default_rng([seed, 1])
    arrival_s = _arrivals(curve, float(rates.sum()), rng)
    count = len(arrival_s)
    pool = np.searchsorted(np.cumsum(rates[:-1]) / rates.sum(), rng.random(count), side="right")
    return Work(
        duration_s=curve.duration_s,
        pools=pools,
        arrival_s=arrival_s,
        pool=pool,
        prompt_tokens=_even(rng, np.array([kind.prompt_tokens for kind in mix.kinds])[pool]),
        output_tokens=_even(rng, np.array([kind.output_tokens for kind in mix.kinds])[pool]),
        jobs=jobs,
    )


def drawn_curve(shape: Shape | Curve | None, *, days: float, seed: int) -> Curve:
    """Return the course of a seed; a measured one is the same for every seed."""
    if isinstance(shape, Curve):
        return shape.of_days(days)
    return (shape or builtin_shape()).drawn(days=days, rng=np.random.default_rng([seed, 0]))


def _arrivals(curve: Curve, peak_rps: float, rng: np.random.Generator) -> Floats:
    steps = max(1, round(curve.duration_s / min(GRID_S, curve.step_s)))
    grid_s = np.linspace(0, curve.duration_s, steps + 1)
    rate = peak_rps * curve.at(grid_s)
    expected = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(grid_s))])
    if expected[-1] > MAX_REQUESTS:
        message = f"would make about {expected[-1]:,.0f} requests, expected at most {MAX_REQUESTS:,}"
        raise RuleError([(("days",), message)])
    marks = np.sort(rng.random(rng.poisson(expected[-1]))) * expected[-1]
    inside: Floats = np.minimum(np.interp(marks, expected, grid_s), np.nextafter(curve.duration_s, 0))
    return inside


def _even(rng: np.random.Generator, ranges: Ints) -> Ints:
    low, high = ranges[:, 0], ranges[:, 1]
    drawn: Ints = low + (rng.random(len(ranges)) * (high - low + 1)).astype(np.int64)
    return drawn
