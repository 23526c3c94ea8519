"""The pools of a plan: per option a pool of equal replicas, or a prefill and a decode pool."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from fleet.documents import RuleError, Violation
from planner.performance.steps import StepCosts, step_s


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

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (Stage.BOTH,)

    def without_one(self, stage: Stage) -> Self | None:
        if stage is not Stage.BOTH:
            raise ValueError(f"a pool that is not split has no {stage} replicas")
        return replace(self, replicas=self.replicas - 1) if self.replicas > 1 else None


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

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (Stage.PREFILL, Stage.DECODE)

    def without_one(self, stage: Stage) -> Self | None:
        if stage is Stage.PREFILL:
            return replace(self, prefill_replicas=self.prefill_replicas - 1) if self.prefill_replicas > 1 else None
        if stage is Stage.DECODE:
            return replace(self, decode_replicas=self.decode_replicas - 1) if self.decode_replicas > 1 else None
        raise ValueError("a split pool has no replicas that do both")


Pool = ReplayPool | SplitPool


def _count_violations(field: str, count: int) -> Iterator[Violation]:
    if count < 1:
        yield (field,), f"{count} is out of range, expected at least 1"


def _cost_violations(field: str, costs: StepCosts) -> Iterator[Violation]:
    """Costs at which the simulated time would stop, or that no engine accepts."""
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
