"""The pools of a plan, and one pool through one trace: arrays in, the compiled simulator, arrays out.

An option is a pool of equal replicas, or a prefill and a decode pool.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fleet.documents import RuleError, Violation
from planner.performance.steps import StepCosts, step_s
from planner.replay.kernel_layout import fresh_replicas, fresh_requests, pack_costs
from planner.replay.router import Balancing, candidates
from planner.replay.stream import Seconds, Tokens


class Stage(StrEnum):
    """The part of a request that the replicas of a pool do."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class ReplayPool:
    """Equal replicas of one option, each of which serves requests from first to last token."""

    option: str
    replicas: int
    costs: StepCosts

    def __post_init__(self) -> None:
        RuleError.raise_for(_count_violations("replicas", self.replicas))
        RuleError.raise_for(_cost_violations("costs", self.costs))


@dataclass(frozen=True, slots=True)
class SplitPool:
    """Prefill replicas, and decode replicas that receive the cache over a link."""

    option: str
    prefill_replicas: int
    prefill: StepCosts
    decode_replicas: int
    decode: StepCosts
    transfer_token_s: float  # transfer of one token's cache
    transfer_fixed_s: float = 0.0  # transfer request, once per request

    def __post_init__(self) -> None:
        for field, count in (("prefill_replicas", self.prefill_replicas), ("decode_replicas", self.decode_replicas)):
            RuleError.raise_for(_count_violations(field, count))
        RuleError.raise_for(_cost_violations("prefill", self.prefill))
        RuleError.raise_for(_cost_violations("decode", self.decode))
        for field, time_s in (
            ("transfer_token_s", self.transfer_token_s),
            ("transfer_fixed_s", self.transfer_fixed_s),
        ):
            if not 0 <= time_s < float("inf"):
                raise RuleError([((field,), f"{time_s:g} s is out of range, expected 0 s or more")])


Pool = ReplayPool | SplitPool


def _count_violations(field: str, count: int) -> Iterator[Violation]:
    if count < 1:
        yield (field,), f"{count} is out of range, expected at least 1"


def _cost_violations(field: str, costs: StepCosts) -> Iterator[Violation]:
    if not costs.chunk_tokens >= costs.max_sequences >= 1:
        # vLLM rejects it too: an iteration would have no budget for some decoding sequences.
        allowed = f"expected 1 to chunk_tokens, which is {costs.chunk_tokens}"
        yield (field, "max_sequences"), f"{costs.max_sequences} is out of range, {allowed}"
    if costs.cache_tokens < 1:
        yield (field, "cache_tokens"), f"{costs.cache_tokens} is out of range, expected at least 1"
    first_s = step_s(costs, decoding=1.0, cached_tokens=0.0)
    if not 0 < first_s < float("inf"):
        yield (field,), f"an iteration of one sequence takes {first_s:g} s, expected more than 0 s"
    if not costs.cached_token_s >= 0 or not costs.request_s >= 0:
        yield (field,), "times must not be negative"


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
class PoolLoad:
    """Requests of one option, in order of arrival."""

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


def run_pool(pool: Pool, load: PoolLoad, *, balancing: Balancing, rng: np.random.Generator) -> PoolRun:
    """Requests through one option; a pool without requests is idle."""
    if isinstance(pool, SplitPool):
        return _run_split(pool, load, balancing=balancing, rng=rng)
    return _run_stage(
        load, Stage.BOTH, option=pool.option, costs=pool.costs, replicas=pool.replicas, balancing=balancing, rng=rng
    )


def _run_split(pool: SplitPool, load: PoolLoad, *, balancing: Balancing, rng: np.random.Generator) -> PoolRun:
    """First all prompts, then all decoding, because decoding does not affect the prefill pool."""
    fits = _held_at_end(load) <= pool.decode.cache_tokens
    prefill_load = replace(load.only(fits), output_tokens=np.ones(np.count_nonzero(fits), dtype=np.int64))
    choice: dict[str, Any] = {"option": pool.option, "balancing": balancing, "rng": rng}
    prefill = _run_stage(prefill_load, Stage.PREFILL, costs=pool.prefill, replicas=pool.prefill_replicas, **choice)
    at_hand_s = np.full(len(load.arrival_s), np.nan)
    at_hand_s[fits] = prefill.finish_s + pool.transfer_fixed_s + prefill_load.input_tokens * pool.transfer_token_s
    order = np.argsort(at_hand_s, kind="stable")[: np.count_nonzero(~np.isnan(at_hand_s))]
    decode_load = replace(load.only(order), arrival_s=at_hand_s[order])
    decode = _run_stage(decode_load, Stage.DECODE, costs=pool.decode, replicas=pool.decode_replicas, **choice)
    first_s, finish_s = np.full((2, len(load.arrival_s)), np.nan)
    first_s[order], finish_s[order] = decode.first_s, decode.finish_s
    refused = tuple(replace(result, too_long=int(np.count_nonzero(~fits))) for result in decode.results)
    return PoolRun(first_s, finish_s, prefill.results + refused)


def _run_stage(
    load: PoolLoad,
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
    from planner.replay.kernel import simulate  # noqa: PLC0415 - numba and compiling take seconds

    simulate(pack_costs(costs), state, requests, slots, choices)
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


def _held_at_end(load: PoolLoad) -> Tokens:
    """Cached tokens at the last iteration of a request, which does not read its last token."""
    return load.input_tokens + load.output_tokens - 1
