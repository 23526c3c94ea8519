"""Service level objectives: latency limits, each at the mean or at a percentile.

TTFT is the time to the first token, TPOT the time per output token after the first (TTFT excluded), E2E the time of the
whole request.  All limits are in milliseconds.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation

MAX_LIMIT_MS = 3_600_000.0


class Metric(StrEnum):
    """The latency of a request."""

    TTFT = "ttft_ms"
    TPOT = "tpot_ms"
    E2E = "e2e_ms"


class Statistic(StrEnum):
    """The statistic over many requests."""

    MEAN = "mean"
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"

    @property
    def quantile(self) -> float | None:
        return None if self is Statistic.MEAN else int(self.value[1:]) / 100

    def of(self, samples: Sequence[float] | npt.NDArray[np.float64]) -> float:
        """The statistic of measured values.  A percentile is the lowest value that this share does not exceed."""
        if self.quantile is None:
            return float(np.mean(samples))
        return float(np.quantile(samples, self.quantile, method="inverted_cdf"))


PERCENTILES = tuple(statistic for statistic in Statistic if statistic.quantile is not None)


class LatencyLimits(Frozen):
    """The limits of one metric; absent ones do not bind."""

    mean: float | None = Field(default=None, gt=0, le=MAX_LIMIT_MS)
    p50: float | None = Field(default=None, gt=0, le=MAX_LIMIT_MS)
    p90: float | None = Field(default=None, gt=0, le=MAX_LIMIT_MS)
    p95: float | None = Field(default=None, gt=0, le=MAX_LIMIT_MS)
    p99: float | None = Field(default=None, gt=0, le=MAX_LIMIT_MS)

    @model_validator(mode="after")
    def _percentiles_rise(self) -> Self:
        RuleError.raise_for(self._falling_percentiles())
        return self

    def items(self) -> Iterator[tuple[Statistic, float]]:
        """The given limits, in milliseconds."""
        for statistic in Statistic:
            limit_ms: float | None = getattr(self, statistic)
            if limit_ms is not None:
                yield statistic, limit_ms

    def _falling_percentiles(self) -> Iterator[Violation]:
        given = [(statistic, limit_ms) for statistic, limit_ms in self.items() if statistic in PERCENTILES]
        for (lower, lower_ms), (upper, upper_ms) in pairwise(given):
            if upper_ms < lower_ms:
                yield (str(upper),), f"{upper_ms:g} ms is less than {lower} allows, expected at least {lower_ms:g} ms"


class Slo(Frozen):
    """All limits of a workload; at least one is required."""

    ttft_ms: LatencyLimits = LatencyLimits()
    tpot_ms: LatencyLimits = LatencyLimits()
    e2e_ms: LatencyLimits = LatencyLimits()

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if not any(True for _ in self.limits()):
            metrics, statistics = ", ".join(Metric), ", ".join(Statistic)
            raise ValueError(f"needs a limit: at least one of {metrics} at one of {statistics}")
        return self

    def limits(self) -> Iterator[tuple[Metric, Statistic, float]]:
        """Every given limit, in milliseconds."""
        for metric in Metric:
            limits: LatencyLimits = getattr(self, metric)
            for statistic, limit_ms in limits.items():
                yield metric, statistic, limit_ms
