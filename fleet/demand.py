"""Request arrivals: a rate per second over equal steps of time."""

from typing import Annotated, Self

import numpy as np
from pydantic import AwareDatetime, Field, model_validator

from fleet.documents import Frozen, RuleError

MAX_PERIODS = 1_000_000
MAX_DURATION_S = 1e9  # 31 years

Rate = Annotated[float, Field(ge=0, le=1e9)]


class DemandSeries(Frozen):
    """Mean arrival rates over consecutive steps of equal length."""

    start: AwareDatetime | None = None  # None: a profile without a date
    step_s: float = Field(gt=0, le=MAX_DURATION_S)
    rates_rps: tuple[Rate, ...] = Field(min_length=1, max_length=MAX_PERIODS)

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.duration_s > MAX_DURATION_S:
            longest_s = MAX_DURATION_S / len(self.rates_rps)
            raise RuleError([(("step_s",), f"of {len(self.rates_rps)} steps must be at most {longest_s:g} s")])
        return self

    @classmethod
    def constant(cls, rate_rps: float, *, duration_s: float = 3600.0) -> Self:
        return cls(step_s=duration_s, rates_rps=(rate_rps,))

    @property
    def duration_s(self) -> float:
        return self.step_s * len(self.rates_rps)

    @property
    def requests(self) -> float:
        return float(np.sum(self.rates_rps)) * self.step_s

    @property
    def peak_rps(self) -> float:
        return max(self.rates_rps)

    @property
    def mean_rps(self) -> float:
        return float(np.mean(self.rates_rps))

    def scaled(self, factor: float) -> Self:
        rates_rps = tuple(rate_rps * factor for rate_rps in self.rates_rps)
        return type(self)(start=self.start, step_s=self.step_s, rates_rps=rates_rps)
