"""One pool through one trace: arrays in, the compiled simulator, arrays out."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, cast

import numpy as np
import numpy.typing as npt

from planner.performance.steps import StepCosts
from planner.replay.fleet import Pool, SplitPool, Stage
from planner.replay.kernel_layout import Records, Slots, fresh_replicas, fresh_requests, pack_costs
from planner.replay.router import Balancing, candidates
from planner.replay.stream import Seconds, Tokens


class Kernel(Protocol):
    """`planner.replay.kernel`, imported at its first use, because numba and compilation take seconds."""

    def simulate(
        self, packed: Records, replicas: Records, requests: Records, slots: Slots, candidates: Slots, /
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class PoolResult:
    """Usage of the replicas of one stage of one option."""

    option: str
    stage: Stage
    replicas: int
    requests: int
    too_long: int  # rejected requests, larger than an empty replica's cache
    busy: float  # share of the time, over all replicas, until the last of them finishes
    peak_cache: float  # largest used share of one replica's cache
    preemptions: int
    iterations: int
    left_over: int  # not yet finished when the trace ends


@dataclass(frozen=True, slots=True, eq=False)
class PoolRun:
    """Times of the first and last token of each request; NaN for a rejected one."""

    first_s: Seconds
    finish_s: Seconds
    results: tuple[PoolResult, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Load:
    arrival_s: Seconds
    input_tokens: Tokens
    output_tokens: Tokens
    duration_s: float

    def only(self, chosen: npt.NDArray[Any]) -> Self:
        return replace(
            self,
            arrival_s=self.arrival_s[chosen],
            input_tokens=self.input_tokens[chosen],
            output_tokens=self.output_tokens[chosen],
        )


def load_kernel() -> Kernel:
    from planner.replay import kernel  # noqa: PLC0415 - numba and compiling take seconds

    return cast("Kernel", kernel)


def run_pool(
    pool: Pool,
    *,
    arrival_s: Seconds,
    input_tokens: Tokens,
    output_tokens: Tokens,
    duration_s: float,
    balancing: Balancing,
    rng: np.random.Generator,
) -> PoolRun:
    """Requests in order of arrival through one option; a pool without requests is idle."""
    load = _Load(arrival_s, input_tokens, output_tokens, duration_s)
    if isinstance(pool, SplitPool):
        return _run_split(pool, load, balancing=balancing, rng=rng)
    return _run_stage(
        load, Stage.BOTH, option=pool.option, costs=pool.costs, replicas=pool.replicas, balancing=balancing, rng=rng
    )


def _run_split(pool: SplitPool, load: _Load, *, balancing: Balancing, rng: np.random.Generator) -> PoolRun:
    """First all prompts, then all decoding, because decoding does not affect the prefill pool."""
    fits = _held_at_end(load) <= pool.decode.cache_tokens
    asked = replace(load.only(fits), output_tokens=np.ones(np.count_nonzero(fits), dtype=np.int64))
    choice: dict[str, Any] = {"option": pool.option, "balancing": balancing, "rng": rng}
    prefill = _run_stage(asked, Stage.PREFILL, costs=pool.prefill, replicas=pool.prefill_replicas, **choice)
    at_hand_s = np.full(len(load.arrival_s), np.nan)
    at_hand_s[fits] = prefill.finish_s + pool.transfer_fixed_s + asked.input_tokens * pool.transfer_token_s
    order = np.argsort(at_hand_s, kind="stable")[: np.count_nonzero(~np.isnan(at_hand_s))]
    handed = replace(load.only(order), arrival_s=at_hand_s[order])
    decode = _run_stage(handed, Stage.DECODE, costs=pool.decode, replicas=pool.decode_replicas, **choice)
    first_s, finish_s = np.full((2, len(load.arrival_s)), np.nan)
    first_s[order], finish_s[order] = decode.first_s, decode.finish_s
    refused = tuple(replace(result, too_long=int(np.count_nonzero(~fits))) for result in decode.results)
    return PoolRun(first_s, finish_s, prefill.results + refused)


def _run_stage(
    load: _Load,
    stage: Stage,
    *,
    option: str,
    costs: StepCosts,
    replicas: int,
    balancing: Balancing,
    rng: np.random.Generator,
) -> PoolRun:
    fits = _held_at_end(load) <= costs.cache_tokens
    requests = fresh_requests(
        arrival_s=load.arrival_s[fits],
        input_tokens=load.input_tokens[fits],
        output_tokens=load.output_tokens[fits],
        delay_s=0.0 if stage is Stage.DECODE else costs.request_s,
        carried=stage is Stage.DECODE,
    )
    state = fresh_replicas(replicas)
    slots = np.zeros((replicas, 2, costs.max_sequences), dtype=np.int64)
    choices = candidates(balancing, replicas=replicas, requests=len(requests), rng=rng)
    load_kernel().simulate(pack_costs(costs), state, requests, slots, choices)
    first_s, finish_s = np.full((2, len(load.arrival_s)), np.nan)
    first_s[fits], finish_s[fits] = requests["first_s"], requests["finish_s"]
    over_s = max(load.duration_s, float(state["clock_s"].max()))
    result = PoolResult(
        option=option,
        stage=stage,
        replicas=replicas,
        requests=len(requests),
        too_long=int(np.count_nonzero(~fits)),
        busy=float(state["busy_s"].sum()) / (replicas * over_s),
        peak_cache=float(state["peak_tokens"].max()) / costs.cache_tokens,
        preemptions=int(state["preemptions"].sum()),
        iterations=int(state["iterations"].sum()),
        left_over=int(np.count_nonzero(requests["finish_s"] > load.duration_s)),
    )
    return PoolRun(first_s, finish_s, (result,))


def _held_at_end(load: _Load) -> Tokens:
    """Cached tokens at the last iteration of a request, which does not read its last token."""
    return load.input_tokens + load.output_tokens - 1
