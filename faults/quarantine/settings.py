"""What may be taken out, how fast, and how it comes back.  docs/faults/isolation.md"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation

Share = Annotated[float, Field(gt=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0, le=366 * 86_400.0)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Mode(StrEnum):
    """How far a decision goes."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    APPLY = "apply"


class Allowance(Frozen):
    """How much of a group may be out at once."""

    share: Share
    count: Count

    def of(self, size: int) -> int:
        """Nodes of a group of this size; one at least, so that a small one can heal at all."""
        return min(self.count, max(1, int(self.share * size)))


class IsolationRules(Frozen):
    """The whole policy.  Every rule can only say no."""

    mode: Mode = Mode.OBSERVE
    pool: Allowance = Allowance(share=0.1, count=16)
    domain: Allowance = Allowance(share=0.25, count=4)
    rate_count: Count = 3
    rate_window_s: Seconds = 600.0
    breaker_share: Share = 0.1
    breaker_nodes: Count = 3
    breaker_window_s: Seconds = 300.0
    breaker_hold_s: Seconds = 600.0
    without_spare: bool = False
    min_confidence: Annotated[float, Field(ge=0.0, le=1.0)] = (
        0.85  # of three kinds of evidence that agree: 1 - 2^-3 is above
    )
    confirm_s: Seconds = 30.0  # slow classes; a hang or a crash has stopped the job already
    probation_s: Seconds = 600.0
    probes: Count = 1  # passed in a row before release
    failed_probes: Count = 4  # then the node is kept out
    longest_wait_s: Seconds = 4 * 3600.0
    watch_s: Seconds = 3600.0
    strikes: Count = 3
    strike_window_s: Seconds = 7 * 86_400.0

    @model_validator(mode="after")
    def _fits(self) -> "IsolationRules":
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        if self.longest_wait_s < self.probation_s:
            yield ("longest_wait_s",), f"is below probation_s, allowed: {self.probation_s:g} and more"
        if self.strike_window_s < self.watch_s:
            yield ("strike_window_s",), f"is below watch_s, allowed: {self.watch_s:g} and more"
