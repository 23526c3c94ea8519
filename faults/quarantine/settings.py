"""The rules of the policy.  docs/explanation/faults/quarantine.md"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation

Share = Annotated[float, Field(gt=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0, le=366 * 86_400.0)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class PolicyMode(StrEnum):
    """Effect of a decision."""

    OBSERVE = "observe"  # none: dry run
    RECOMMEND = "recommend"  # a proposal, which an operator approves
    APPLY = "apply"


class DisruptionBudget(Frozen):
    """How many nodes of a group may be out of service at once."""

    share: Share
    count: Count

    def of(self, size: int) -> int:
        """Return the limit of nodes of a group of this size; at least one, so that a small group can remediate."""
        return min(self.count, max(1, int(self.share * size)))


class QuarantineRules(Frozen):
    """All rules.  Each guardrail can only refuse."""

    mode: PolicyMode = PolicyMode.OBSERVE
    pool: DisruptionBudget = DisruptionBudget(share=0.1, count=16)
    domain: DisruptionBudget = DisruptionBudget(share=0.25, count=4)
    rate_count: Count = 3
    rate_window_s: Seconds = 600.0
    breaker_share: Share = 0.1
    breaker_nodes: Count = 3
    breaker_window_s: Seconds = 300.0
    breaker_hold_s: Seconds = 600.0
    without_spare: bool = False
    min_confidence: Annotated[float, Field(ge=0.0, le=1.0)] = (
        0.85  # three kinds of evidence that agree give 1 - 2^-3, which is above
    )
    confirm_s: Seconds = 30.0  # slow classes only; a hang or a crash has already stopped the job
    cooldown_s: Seconds = 600.0  # quarantine before the first probe
    probes: Count = 1  # passed in a row before the release
    failed_probes: Count = 4  # then the node is cordoned
    max_cooldown_s: Seconds = 4 * 3600.0
    probation_s: Seconds = 3600.0
    strikes: Count = 3
    strike_window_s: Seconds = 7 * 86_400.0

    @model_validator(mode="after")
    def _fits(self) -> "QuarantineRules":
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        if self.max_cooldown_s < self.cooldown_s:
            yield ("max_cooldown_s",), f"is below cooldown_s, allowed: {self.cooldown_s:g} and more"
        if self.strike_window_s < self.probation_s:
            yield ("strike_window_s",), f"is below probation_s, allowed: {self.probation_s:g} and more"
