"""Costs of engines, and requests for them."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from planner.performance.steps import StepCosts
from planner.replay import Balancing, Pool, ReplayPool, Stream
from planner.replay.pool import PoolLoad, PoolRun, run_pool
from tests.planner.replay.reference_engine import Size

TICK_S = 2.0**-20  # multiples of this time add up without rounding

NAMES = tuple(field.name for field in fields(StepCosts))
NOTHING: dict[str, Any] = dict.fromkeys(NAMES, 0.0)  # so that a new cost is zero here
PLAIN = StepCosts(
    **{
        **NOTHING,
        "fixed_s": 0.002,
        "weights_s": 0.005,
        "token_s": 3e-5,
        "traffic_s": 1e-6,
        "cached_token_s": 5e-8,
        "pair_s": 1e-10,
        "sequence_s": 1e-5,
        "request_s": 0.002,
        "cache_tokens": 400_000,
        "max_sequences": 256,
        "chunk_tokens": 2048,
    }
)
MAX_TICKS = {"fixed_s": 20_000, "weights_s": 20_000, "experts_s": 20_000, "token_s": 2000, "request_s": 50_000}


def costs(**changes: Any) -> StepCosts:
    """Roughly a dense 8B model on one large GPU, with changes."""
    return replace(PLAIN, **changes)


def run(
    sizes: list[Size], pool: Pool, *, balancing: Balancing = Balancing.MIN_REQUESTS, seed: int = 0, **changes: Any
) -> PoolRun:
    """Run these requests through one pool."""
    columns = list(zip(*sizes, strict=True)) or [(), (), ()]
    load = PoolLoad(
        arrival_s=np.array(columns[0], dtype=np.float64),
        input_tokens=np.array(columns[1], dtype=np.int64),
        output_tokens=np.array(columns[2], dtype=np.int64),
        duration_s=changes.get("duration_s", 10.0),
    )
    return run_pool(pool, load, balancing=balancing, rng=np.random.default_rng(seed))


def poisson(
    *, rate_rps: float, requests: int, input_tokens: int = 500, output_tokens: int = 100, seed: int = 1
) -> Stream:
    """Equal requests with Poisson arrivals."""
    rng = np.random.default_rng(seed)
    return Stream.of(
        times_s=np.cumsum(rng.exponential(1 / rate_rps, size=requests)),
        input_tokens=[input_tokens] * requests,
        output_tokens=[output_tokens] * requests,
    )


def pool(replicas: int = 1, option: str = "H100", **changes: Any) -> ReplayPool:
    """Replicas of that engine."""
    return ReplayPool(option, replicas, costs(**changes))


def _ticks(most: int, *, least: int = 0) -> st.SearchStrategy[float]:
    return st.integers(least, most).map(lambda count: count * TICK_S)


@st.composite
def small_engines(draw: st.DrawFn, *, exact: bool = True) -> StepCosts:
    """Engines so small that caches fill, queues form and prompts are split within a few iterations."""
    max_sequences = draw(st.integers(1, 6))
    times: dict[str, Any] = {
        name: draw(_ticks(MAX_TICKS.get(name, 200), least=int(name == "fixed_s")))
        for name in NAMES
        if name.endswith("_s")
    }
    return StepCosts(
        **times,
        expert_share=draw(st.sampled_from((0.0, 1.0)) if exact else st.floats(0.01, 0.9)),
        cache_tokens=draw(st.integers(15, 90)),
        max_sequences=max_sequences,
        chunk_tokens=draw(st.integers(max_sequences, 24)),
    )


@st.composite
def small_requests(draw: st.DrawFn, *, cache_tokens: int) -> list[Size]:
    """A few requests that fit, some simultaneous, some at the very end of an iteration."""
    count = draw(st.integers(1, 14))
    times_s = sorted(draw(st.lists(st.integers(0, 40).map(lambda n: n / 64), min_size=count, max_size=count)))
    inputs = draw(st.lists(st.integers(1, cache_tokens), min_size=count, max_size=count))
    outputs = draw(st.lists(st.integers(1, 20), min_size=count, max_size=count))
    return [
        (time_s, tokens, min(output, cache_tokens + 1 - tokens))
        for time_s, tokens, output in zip(times_s, inputs, outputs, strict=True)
    ]
