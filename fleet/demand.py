"""How many requests arrive: a rate per second over equal steps of time."""

from typing import Annotated, Self

import numpy as np
from pydantic import AwareDatetime, Field, model_validator

from fleet.documents import Frozen, RuleError

MAX_PERIODS = 1_000_000
MAX_DURATION_S = 1e9  # 31 years

Rate = Annotated[float, Field(ge=0, le=1e9)]


class DemandSeries(Frozen):
    """Mean arrival rates over consecutive steps of equal length."""

    start: AwareDatetime | None = None  # None: a shape of no certain day
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
        """The same rate all the time, as one step."""
        return cls(step_s=duration_s, rates_rps=(rate_rps,))

    @property
    def duration_s(self) -> float:
        """From the start of the first step to the end of the last."""
        return self.step_s * len(self.rates_rps)

    @property
    def requests(self) -> float:
        """How many arrive in all."""
        return float(np.sum(self.rates_rps)) * self.step_s

    @property
    def peak_rps(self) -> float:
        """The rate of the busiest step."""
        return max(self.rates_rps)

    @property
    def mean_rps(self) -> float:
        """The rate over the whole time."""
        return float(np.mean(self.rates_rps))

    def quantile_rps(self, quantile: float) -> float:
        """The least rate that this fraction of the steps stays at or below; 1 is the peak."""
        if not 0 <= quantile <= 1:
            raise ValueError(f"quantile {quantile} is out of range, expected 0 to 1")
        return float(np.quantile(self.rates_rps, quantile, method="inverted_cdf"))

    def rate_at(self, offset_s: float) -> float:
        """The rate so many seconds after the start."""
        if not 0 <= offset_s < self.duration_s:
            raise ValueError(f"offset {offset_s} s is out of range, expected 0 to less than {self.duration_s:g} s")
        return self.rates_rps[min(int(offset_s // self.step_s), len(self.rates_rps) - 1)]

    def resampled(self, periods: int) -> Self:
        """The same time and the same number of requests in this many equal steps.

        Within a step the rate is taken as even, so a step that is cut in parts gives each part its share of requests.
        """
        if not 1 <= periods <= MAX_PERIODS:
            raise ValueError(f"{periods} periods is out of range, expected 1 to {MAX_PERIODS:,}")
        arrived = np.concatenate(([0.0], np.cumsum(self.rates_rps)))
        ends = np.linspace(0, len(self.rates_rps), periods + 1)
        per_period = np.diff(np.interp(ends, np.arange(len(arrived)), arrived)).clip(min=0)
        rates_rps = per_period * (periods / len(self.rates_rps))
        return self.model_copy(update={"step_s": self.duration_s / periods, "rates_rps": tuple(map(float, rates_rps))})

    def scaled(self, factor: float) -> Self:
        """The same shape at so many times the rate."""
        rates_rps = tuple(rate_rps * factor for rate_rps in self.rates_rps)
        return type(self)(start=self.start, step_s=self.step_s, rates_rps=rates_rps)
