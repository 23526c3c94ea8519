"""A sweep at one request size: latencies over load, and the highest rate inside the SLO.

docs/explanation/planner/profiles.md has the method.  Latencies bend upwards near saturation, so a straight line between
two loads is above the curve and the rate is conservative.  Only runs at an offered rate show bursts of arrivals, which
determine the high percentiles of TTFT.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise
from math import inf, sqrt

from fleet.slo import Metric, Slo, Statistic
from planner.profiles.points import MeasuredPoint

SAME_LOAD = 1.02  # loads within this factor are one level
FAILED_SHARE_MAX = 0.01  # of requests; a run that loses more does not satisfy the SLO
# 95 % quantiles of Student's t by degrees of freedom: two sides of them make 90 %.
STUDENT_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
NORMAL_95 = 1.645

Limit = tuple[Metric, Statistic, float]


class End(StrEnum):
    ENCLOSED = "enclosed"  # one level satisfies the SLO, the next does not
    NEVER_FAILED = "never failed"  # the true rate may be higher
    ALWAYS_FAILED = "always failed"  # the true rate may be lower, or 0


@dataclass(frozen=True, slots=True)
class SustainedRate:
    """The highest rate inside the SLO at one size, and its 90 % interval."""

    rate_rps: float
    low_rps: float
    high_rps: float  # inf: no measurement bounds it
    end: End
    points: tuple[MeasuredPoint, ...]
    open_loop: bool

    @property
    def serves(self) -> bool:
        return self.rate_rps > 0

    @property
    def cannot_serve(self) -> bool:
        """Whether no rate satisfies the SLO: a request alone on the replica is already too slow."""
        alone = any((point.concurrency or inf) <= 1 for point in self.points)
        return self.end is End.ALWAYS_FAILED and not self.open_loop and alone


@dataclass(frozen=True, slots=True)
class Level:
    points: tuple[MeasuredPoint, ...]

    @property
    def rate_rps(self) -> float:
        return sum(point.achieved_rps for point in self.points) / len(self.points)

    def used(self, limit: Limit) -> float:
        """The share of a limit that the level uses, mean over the repeats; 1 is all of it."""
        metric, statistic, limit_ms = limit
        values = [point.latency(metric).at(statistic) for point in self.points]
        return sum(value for value in values if value is not None) / len(values) / limit_ms

    @property
    def loses_requests(self) -> bool:
        failed = sum(point.failed for point in self.points)
        return failed > FAILED_SHARE_MAX * (failed + sum(point.requests or 0 for point in self.points))


def held(points: Iterable[MeasuredPoint], slo: Slo) -> SustainedRate | None:
    """The result of a sweep; None where no run recorded what the SLO limits."""
    limits = tuple(slo.limits())
    usable = [
        point for point in points if all(point.latency(metric).at(stat) is not None for metric, stat, _ in limits)
    ]
    open_loop = [point for point in usable if point.offered_rps is not None]
    levels = _levels(open_loop or usable)
    if not levels:
        return None
    used = tuple(point for level in levels for point in level.points)
    rate, low, high, end = _crossing(levels, limits)
    spread = _spread(levels)
    return SustainedRate(rate, max(low * (1 - spread), 0.0), high * (1 + spread), end, used, bool(open_loop))


def missing(points: Sequence[MeasuredPoint], slo: Slo) -> str:
    for metric, statistic, _ in slo.limits():
        if all(point.latency(metric).at(statistic) is None for point in points):
            return f"no run recorded {metric} at {statistic}"
    return "no run recorded every metric that the SLO limits"


def _crossing(levels: Sequence[Level], limits: Sequence[Limit]) -> tuple[float, float, float, End]:
    breaks = [level.loses_requests or any(level.used(limit) > 1 for limit in limits) for level in levels]
    if breaks[0]:
        return 0.0, 0.0, levels[0].rate_rps, End.ALWAYS_FAILED
    if not any(breaks):
        highest = max(level.rate_rps for level in levels)
        return highest, highest, inf, End.NEVER_FAILED
    first = breaks.index(True)
    last_good = max(levels[:first], key=lambda level: level.rate_rps)
    bad = levels[first]
    if bad.loses_requests or bad.rate_rps <= last_good.rate_rps:
        return last_good.rate_rps, last_good.rate_rps, max(last_good.rate_rps, bad.rate_rps), End.ENCLOSED
    way = min(_way(levels[first - 1].used(limit), bad.used(limit)) for limit in limits)
    start = levels[first - 1].rate_rps
    rate = max(start + way * (bad.rate_rps - start), last_good.rate_rps)
    return rate, last_good.rate_rps, bad.rate_rps, End.ENCLOSED


def _way(before: float, after: float) -> float:
    """The position between two levels at which a limit is reached, 0 to 1."""
    return 1.0 if after <= 1 else (1 - before) / (after - before)


def _levels(points: Sequence[MeasuredPoint]) -> list[Level]:
    """Repeats grouped, lightest load first."""
    ordered = sorted(points, key=_load)
    number, numbers = 0, [0] * min(1, len(ordered))
    for lighter, heavier in pairwise(ordered):
        number += _load(heavier) > SAME_LOAD * _load(lighter)
        numbers.append(number)
    grouped = groupby(zip(numbers, ordered, strict=True), key=lambda pair: pair[0])
    return [Level(tuple(point for _, point in group)) for _, group in grouped]


def _load(point: MeasuredPoint) -> float:
    return point.offered_rps if point.offered_rps is not None else point.concurrency or 0.0


def _spread(levels: Sequence[Level]) -> float:
    """Half of a 90 % interval for one more run, relative to its rate, from the spread of repeats; 0 without repeats."""
    repeated = [level for level in levels if len(level.points) > 1]
    freedom = sum(len(level.points) - 1 for level in repeated)
    if not freedom:
        return 0.0
    squares = sum((point.achieved_rps / level.rate_rps - 1) ** 2 for level in repeated for point in level.points)
    quantile = STUDENT_95[freedom - 1] if freedom <= len(STUDENT_95) else NORMAL_95
    return min(quantile * sqrt(squares / freedom), 1.0)
