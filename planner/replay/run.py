"""A plan through a day: the option, replica and token times of every request of a trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleet.documents import RuleError
from fleet.sizes.histogram import SizeBuckets
from fleet.slo import Metric, Statistic
from planner.replay.kernel_layout import NONE_INDEX
from planner.replay.pool import Pool, PoolLoad, PoolResult, PoolRun, run_pool
from planner.replay.router import Balancing, Routing, options_of
from planner.replay.stream import Seconds, Stream, Tokens

WARM_UP_S = 300.0  # empty replicas at the start would improve the result
WARM_UP_SHARE = 0.1  # of a short trace at most this share is the warm-up
MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class ReplayResult:
    """The result of every request.  A latency is NaN where there is none: not served, or no second token."""

    stream: Stream
    warm_up_s: float
    seed: int
    balancing: Balancing
    option: Tokens  # position in `options`, NONE_INDEX where the bucket has no weights
    options: tuple[str, ...]
    ttft_s: Seconds
    tpot_s: Seconds
    e2e_s: Seconds
    pools: tuple[PoolResult, ...]
    runs: Mapping[Pool, tuple[Tokens, PoolRun]] = field(repr=False)  # the requests of a pool, and their token times

    @property
    def after_warm_up(self) -> npt.NDArray[np.bool_]:
        return self.stream.arrival_s >= self.warm_up_s

    @property
    def unrouted(self) -> int:
        return int(np.count_nonzero(self.option == NONE_INDEX))

    @property
    def too_long(self) -> int:
        return sum(pool.too_long for pool in self.pools)

    @property
    def left_over(self) -> int:
        """Requests in service or waiting at the end of the trace.  They are served to the end and count."""
        return int(np.count_nonzero(self.stream.arrival_s + self.e2e_s > self.stream.duration_s))

    def samples_ms(self, metric: Metric) -> Seconds:
        """The metric of every counted request that has it; infinite for a request that was not served."""
        seconds = {Metric.TTFT: self.ttft_s, Metric.TPOT: self.tpot_s, Metric.E2E: self.e2e_s}[metric]
        samples_ms = np.where(np.isnan(self.e2e_s), np.inf, seconds)[self.after_warm_up] * MS_PER_S
        return np.asarray(samples_ms[~np.isnan(samples_ms)])

    def measured_ms(self, metric: Metric, statistic: Statistic) -> float:
        """One statistic of one metric; NaN without samples."""
        samples_ms = self.samples_ms(metric)
        return statistic.of(samples_ms) if len(samples_ms) else float("nan")


def replay(
    stream: Stream,
    pools: Sequence[Pool],
    routing: Routing,
    buckets: SizeBuckets,
    *,
    seed: int,
    balancing: Balancing = Balancing.MIN_REQUESTS,
    warm_up_s: float | None = None,
    known: ReplayResult | None = None,
) -> ReplayResult:
    """One workload's requests through its pools, until the last token of the last one.

    The same arguments give the same result.  The default warm-up is 300 s or a tenth of the trace, whichever is less.
    With an earlier result of the same trace and seed, pools with the same requests are not simulated again.
    """
    options = tuple(pool.option for pool in pools)
    if len(set(options)) != len(options):
        raise RuleError([(("pools",), "two pools are of the same option")])
    if warm_up_s is None:
        warm_up_s = min(WARM_UP_S, WARM_UP_SHARE * stream.duration_s)
    # One random stream for the routing and one per option's name, so that a pool's draws do not depend on other pools.
    option = options_of(stream, buckets, routing, options, rng=_stream(seed, ""))
    if known is not None and (known.stream is not stream or (known.seed, known.balancing) != (seed, balancing)):
        known = None
    runs: dict[Pool, tuple[Tokens, PoolRun]] = {}
    for position, pool in enumerate(pools):
        mine = np.flatnonzero(option == position)
        load = PoolLoad(
            stream.arrival_s[mine], stream.input_tokens[mine], stream.output_tokens[mine], stream.duration_s
        )
        found = _known_run(known, pool, mine)
        runs[pool] = mine, found or run_pool(pool, load, balancing=balancing, rng=_stream(seed, pool.option))
    return _gathered(stream, option, runs, seed=seed, balancing=balancing, warm_up_s=warm_up_s)


def _gathered(
    stream: Stream,
    option: Tokens,
    runs: Mapping[Pool, tuple[Tokens, PoolRun]],
    *,
    seed: int,
    balancing: Balancing,
    warm_up_s: float,
) -> ReplayResult:
    first_s, finish_s = np.full((2, stream.requests), np.nan)
    for mine, run in runs.values():
        first_s[mine], finish_s[mine] = run.first_s, run.finish_s
    gaps = np.where(stream.output_tokens > 1, stream.output_tokens - 1.0, np.nan)
    return ReplayResult(
        stream=stream,
        warm_up_s=warm_up_s,
        seed=seed,
        balancing=balancing,
        option=option,
        options=tuple(pool.option for pool in runs),
        ttft_s=first_s - stream.arrival_s,
        tpot_s=(finish_s - first_s) / gaps,
        e2e_s=finish_s - stream.arrival_s,
        pools=tuple(result for _, run in runs.values() for result in run.results),
        runs=runs,
    )


def _stream(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, *name.encode()])


def _known_run(known: ReplayResult | None, pool: Pool, mine: Tokens) -> PoolRun | None:
    if known is None or pool not in known.runs:
        return None
    before, run = known.runs[pool]
    return run if np.array_equal(before, mine) else None
