"""The terms of a cap plan: its risk, the clocks to choose from, the slack of each priority."""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Annotated, Self

from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation
from power.policies.loss import Slack
from power.server_model import Clock

MIN_RISK = 1e-9
FULL_CLOCK_ONLY = (1.0,)

Risk = Annotated[float, Field(ge=MIN_RISK, le=0.5)]
Levels = Annotated[tuple[Clock, ...], Field(min_length=1, max_length=64)]


class Terms(Frozen):
    """The terms of a cap plan."""

    risk: Risk = Field(default=1e-3, description="Chance that a feed's power is above its limit at a moment.")
    token_clocks: Levels = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4)
    prompt_clocks: Levels = (1.0, 0.97, 0.93, 0.86, 0.79, 0.7, 0.6)
    training_clocks: Levels = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
    slack: Slack = Slack()
    within_slo: bool = Field(
        default=False, description="Never slow a class by more than its slack, even to keep a feed within its limit."
    )
    lost_share: float = Field(default=1e-3, ge=0, le=1, description="Of the time, on one side of a 2N feed.")

    @model_validator(mode="after")
    def _start_at_full_clock(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    @cached_property
    def sigmas(self) -> float:
        """Return the number of standard deviations above the mean that a normal distribution exceeds with this risk."""
        return NormalDist().inv_cdf(1 - self.risk)

    def _violations(self) -> Iterator[Violation]:
        for field in ("token_clocks", "prompt_clocks", "training_clocks"):
            levels: tuple[float, ...] = getattr(self, field)
            if levels[0] != 1 or any(low >= high for high, low in pairwise(levels)):
                yield (field,), "must start at 1 and fall"
