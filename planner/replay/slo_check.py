"""The SLO check of a replay, and whether the plan has spare replicas."""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Self

import numpy as np
from pydantic import Field

from fleet.documents import Frozen
from fleet.slo import Metric, Slo, Statistic
from planner.replay.pool import Stage
from planner.replay.run import ReplayResult

# Requests beyond a percentile that make its estimate steady: the 99th of 1000 requests is the worst but ten.
SAMPLES_BEYOND = 10
MIN_WAITS = 30  # requests behind each of two medians
GROWTH = 3.0  # the last tenth's median wait over the first half's
GROWN_WAIT_S = 5.0  # a lower wait can come from a busy last tenth of a trace
BACKLOG_SHARE = 0.01  # unfinished at the end: a note reports more than this share; fewer are only the last to arrive


class LimitCheck(Frozen):
    """One limit of the SLO against what the replay measured."""

    metric: Metric
    statistic: Statistic
    limit_ms: float
    measured_ms: float | None = Field(description="Absent where it is infinite: requests were not served.")
    holds: bool
    requests: int = Field(ge=0, description="Requests behind the statistic.")
    enough: bool = Field(description="Whether the number of requests makes the statistic steady.")

    def __str__(self) -> str:
        measured = "nothing served" if self.measured_ms is None else f"{self.measured_ms:.4g} ms"
        result = "holds" if self.holds else "broken"
        return f"{self.statistic} {self.metric.name}: {measured} of {self.limit_ms:g} ms, {result}"


class SloCheck(Frozen):
    """All limits of one workload.  `verified` is true only when every one of them holds."""

    verified: bool
    limits: tuple[LimitCheck, ...]
    requests: int = Field(ge=0, description="Requests that arrived after the warm-up.")
    not_served: int = Field(ge=0, description="Of the whole trace: too long for a replica, or without a route.")
    notes: tuple[str, ...] = ()

    @property
    def broken(self) -> tuple[LimitCheck, ...]:
        return tuple(limit for limit in self.limits if not limit.holds)


class Removal(Frozen):
    """The effect of removing one replica."""

    option: str
    stage: Stage
    verified: bool
    broken: tuple[LimitCheck, ...] = Field(description="Limits that break; empty where no replica could serve.")


class Tightness(Frozen):
    """A plan is tight when no replica of any option can be removed."""

    tight: bool
    removals: tuple[Removal, ...]

    @classmethod
    def of(cls, removals: Sequence[Removal]) -> Self:
        return cls(tight=not any(removal.verified for removal in removals), removals=tuple(removals))

    @property
    def spare(self) -> tuple[Removal, ...]:
        return tuple(removal for removal in self.removals if removal.verified)


def check_slo(result: ReplayResult, slo: Slo) -> SloCheck:
    limits = tuple(_limit(result, metric, statistic, limit_ms) for metric, statistic, limit_ms in slo.limits())
    return SloCheck(
        verified=all(limit.holds for limit in limits) and not queue_grows(result),
        limits=limits,
        requests=int(result.after_warm_up.sum()),
        not_served=result.unrouted + result.too_long,
        notes=tuple(_notes(result, limits)),
    )


def _limit(result: ReplayResult, metric: Metric, statistic: Statistic, limit_ms: float) -> LimitCheck:
    count = len(result.samples_ms(metric))
    measured_ms = result.measured_ms(metric, statistic) if count else 0.0  # no request has the limited metric
    return LimitCheck(
        metric=metric,
        statistic=statistic,
        limit_ms=limit_ms,
        measured_ms=measured_ms if isfinite(measured_ms) else None,
        holds=measured_ms <= limit_ms,
        requests=count,
        enough=count >= min_requests(statistic),
    )


def min_requests(statistic: Statistic) -> int:
    """The number of requests that makes a statistic steady: 1000 for p99, 100 for p90."""
    beyond = 0.1 if statistic.quantile is None else 1 - statistic.quantile
    return round(SAMPLES_BEYOND / beyond)


def queue_grows(result: ReplayResult) -> bool:
    """Whether the wait for the first token grows until the end: too small a fleet fails only later."""
    end_s = result.stream.duration_s
    counted_s = end_s - result.warm_up_s
    late = result.stream.arrival_s >= end_s - counted_s / 10
    early = result.after_warm_up & (result.stream.arrival_s < result.warm_up_s + counted_s / 2)
    waits = [result.ttft_s[part & np.isfinite(result.ttft_s)] for part in (early, late)]
    if min(len(wait) for wait in waits) < MIN_WAITS:
        return False
    before_s, after_s = (float(np.median(wait)) for wait in waits)
    return after_s > max(GROWN_WAIT_S, GROWTH * before_s)


def _notes(result: ReplayResult, limits: Sequence[LimitCheck]) -> Iterator[str]:
    if queue_grows(result):
        yield "the queue grows until the end: the fleet is too small for the mean rate, so the plan is not verified"
    for limit in limits:
        if not limit.enough:
            name = f"{limit.statistic} {limit.metric.name}"
            yield f"{name} rests on {limit.requests:,} requests, fewer than {min_requests(limit.statistic):,}"
    if result.too_long:
        yield f"{result.too_long:,} requests are too long for the cache of their replica and count as never served"
    if result.unrouted:
        yield f"{result.unrouted:,} requests are of sizes without a route and count as never served"
    if result.left_over > BACKLOG_SHARE * result.stream.requests:
        yield f"{result.left_over:,} requests were still being served when the trace ended"
