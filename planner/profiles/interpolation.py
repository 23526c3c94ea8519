"""Rates between measured sizes (docs/explanation/planner/profiles.md).

A larger request never has a higher rate: a rate that a larger size sustains, a smaller one sustains too.  Inside a
rectangle of measured sizes the rate is linear in the logarithms of tokens and rate.  Its range has all curves through
the corners that fall nowhere faster than with slope -2, or twice their mean slope where that is more: attention is
quadratic in the input, time in flight and cache grow with the output, and a binding SLO steepens the fall.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from math import exp, inf, log

from fleet.slo import Metric, Slo, Statistic
from planner.profiles.load_curves import SustainedRate, held
from planner.profiles.points import Latency, MeasuredPoint

SAME_SIZE = 1.05
LARGER_AT_MAX = 2.0  # the largest factor, on either side, at which a larger size stands for a smaller one
LARGER_TRIED = 3  # on either side
SCALED_AT_MAX = 2.0
STEEPEST = 2.0
RANGE_SHARE = 0.5

Size = tuple[float, float]  # input and output tokens


class Basis(StrEnum):
    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    LARGER = "larger"  # the rate of a larger size
    SCALED = "moved"  # scaled from a smaller size of the same bucket
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Cell:
    """The rate at one size; a cell without basis has only bounds."""

    max_rps: float
    low_rps: float
    high_rps: float
    basis: Basis
    reason: str = ""  # why there is no basis

    def between(self, rate_rps: float) -> float:
        """A rate from another source, clipped to the measured bounds."""
        return min(max(rate_rps, self.low_rps), self.high_rps)


def grouped(points: Sequence[MeasuredPoint]) -> dict[Size, tuple[MeasuredPoint, ...]]:
    """The points by size; sizes within 5 % are one, named by the largest of them on either side."""
    groups: list[list[MeasuredPoint]] = []
    for point in sorted(points, key=_size):
        home = next((group for group in groups if _same(_size(group[0]), _size(point))), None)
        if home is None:
            groups.append([point])
        else:
            home.append(point)
    return {(max(p.input_tokens for p in g), max(p.output_tokens for p in g)): tuple(g) for g in groups}


def at_size(size: Size, *, lower: Size, sweeps: Mapping[Size, SustainedRate], slo: Slo) -> Cell:
    """The rate at a size, from sweeps at others; `lower` is the lower edge of the size's bucket."""
    low_rps, high_rps = _bounds(size, sweeps)
    near = [known for known in sweeps if _same(known, size)]
    if near:
        return _measured(sweeps[min(near, key=lambda known: _distance(known, size))], low_rps, high_rps)
    serving = {known: sweep for known, sweep in sweeps.items() if sweep.serves}
    cell = _interpolated(size, serving) or _of_larger(size, serving) or _scaled(size, lower, serving, slo)
    if cell is None:
        return Cell(0.0, low_rps, high_rps, Basis.NONE, _why_not(size, sweeps))
    rate_rps = min(max(cell.max_rps, low_rps), high_rps)
    return Cell(
        rate_rps,
        min(max(cell.low_rps, low_rps), rate_rps),
        max(min(cell.high_rps, high_rps), rate_rps),
        cell.basis,
    )


def scaled_run(point: MeasuredPoint, size: Size) -> MeasuredPoint:
    """A run scaled by the worst case to a size that is larger on either side.

    TTFT grows with the square of the input, TPOT with the context that a step reads, the time in flight with each by
    its share.  The tokens in flight stay equal, so fewer requests are in flight; their rate follows by Little's law.
    """
    longer_in, longer_out = (max(new / old, 1.0) for new, old in zip(size, _size(point), strict=True))
    context = max(sum(size) / (point.input_tokens + point.output_tokens), 1.0)
    first = _share_of_first(point)
    whole = first * longer_in**2 + (1 - first) * context * longer_out
    slower = {Metric.TTFT: longer_in**2, Metric.TPOT: context, Metric.E2E: whole}
    fewer = 1 / (context * slower[Metric.E2E])
    return point.model_copy(
        update={
            "input_tokens": point.input_tokens * longer_in,
            "output_tokens": point.output_tokens * longer_out,
            "achieved_rps": point.achieved_rps * fewer,
            **{str(metric): _times(point.latency(metric), factor) for metric, factor in slower.items()},
        }
    )


def _share_of_first(point: MeasuredPoint) -> float:
    """TTFT's share of a request's time in flight; where the means do not give it, 1, which is the worst case."""
    ttft_ms, tpot_ms, whole_ms = point.ttft_ms.mean, point.tpot_ms.mean, point.e2e_ms.mean
    if ttft_ms is None or (tpot_ms is None and whole_ms is None):
        return 1.0
    after_ms = whole_ms - ttft_ms if whole_ms is not None else (tpot_ms or 0.0) * (point.output_tokens - 1)
    return ttft_ms / (ttft_ms + max(after_ms, 0.0))


def _measured(sweep: SustainedRate, low_rps: float, high_rps: float) -> Cell:
    if sweep.serves or sweep.cannot_serve:
        high = sweep.high_rps if sweep.serves else 0.0
        return Cell(sweep.rate_rps, sweep.low_rps, high, Basis.MEASURED)
    return Cell(0.0, low_rps, high_rps, Basis.NONE, "breaks the SLO at the lightest load that was measured")


def _interpolated(size: Size, sweeps: Mapping[Size, SustainedRate]) -> Cell | None:
    around = [corners for low in sweeps for high in sweeps if (corners := _corners(low, high, size, sweeps))]
    if not around:
        return None
    corners = min(around, key=lambda found: _distance(found[0], found[3]))
    ways = [_fraction(corners[0][side], corners[3][side], size[side]) for side in (0, 1)]
    weights = [a * b for a, b in product((1 - ways[0], ways[0]), (1 - ways[1], ways[1]))]
    found = [sweeps[corner] for corner in corners]
    rate = _mean(weights, [sweep.rate_rps for sweep in found])
    below, above = (sum(parts) for parts in zip(*(_slack(corners, ways, side, sweeps) for side in (0, 1)), strict=True))
    low = _mean(weights, [max(sweep.low_rps, 1e-12) for sweep in found]) * exp(-below)
    return Cell(rate, low, _mean(weights, [sweep.high_rps for sweep in found]) * exp(above), Basis.INTERPOLATED)


def _corners(
    low: Size, high: Size, size: Size, sweeps: Mapping[Size, SustainedRate]
) -> tuple[Size, Size, Size, Size] | None:
    """The rectangle's corners as measured, row by row; a side on which the size was measured needs no width."""
    for side in (0, 1):
        if not low[side] / SAME_SIZE <= size[side] <= high[side] * SAME_SIZE:
            return None
    others = [_find((low[0], high[1]), sweeps), _find((high[0], low[1]), sweeps)]
    return None if others[0] is None or others[1] is None else (low, others[0], others[1], high)


def _find(size: Size, sweeps: Mapping[Size, SustainedRate]) -> Size | None:
    return next((known for known in sweeps if _same(known, size)), None)


def _fraction(low: float, high: float, tokens: float) -> float:
    """The position of a size between two others, in logarithms, 0 to 1."""
    return 0.0 if high <= low * SAME_SIZE else min(max(log(tokens / low) / log(high / low), 0.0), 1.0)


def _slack(
    corners: tuple[Size, Size, Size, Size], ways: Sequence[float], side: int, sweeps: Mapping[Size, SustainedRate]
) -> tuple[float, float]:
    """The range of a curve below and above the straight line along one side of the rectangle, in logarithms."""
    width = max(log(corners[3][side] / corners[0][side]), 0.0)
    way, other = ways[side], ways[1 - side]
    if not 0 < way < 1:
        return 0.0, 0.0
    pairs = ((0, 2), (1, 3)) if side == 0 else ((0, 1), (2, 3))
    falls = [log(sweeps[corners[a]].rate_rps / sweeps[corners[b]].rate_rps) for a, b in pairs]
    fall = max((1 - other) * falls[0] + other * falls[1], 0.0)
    maximum = max(STEEPEST * width, 2 * fall)
    below, above = min((maximum - fall) * way, fall * (1 - way)), min(fall * way, (maximum - fall) * (1 - way))
    return below * RANGE_SHARE, above * RANGE_SHARE


def _of_larger(size: Size, sweeps: Mapping[Size, SustainedRate]) -> Cell | None:
    """The best rate of the next larger sizes, measured or interpolated."""
    sides = [[size[side], *_next_larger(size[side], [known[side] for known in sweeps])] for side in (0, 1)]
    larger = [cell for raised in product(*sides) if (cell := _interpolated((raised[0], raised[1]), sweeps)) is not None]
    if not larger:
        return None
    best = max(larger, key=lambda cell: cell.max_rps)
    return Cell(best.max_rps, best.low_rps, inf, Basis.LARGER)


def _next_larger(tokens: float, known: Sequence[float]) -> list[float]:
    return sorted({each for each in known if tokens < each <= tokens * LARGER_AT_MAX})[:LARGER_TRIED]


def _scaled(size: Size, lower: Size, sweeps: Mapping[Size, SustainedRate], slo: Slo) -> Cell | None:
    inside = [
        known
        for known in sweeps
        if all(
            start < theirs <= mine * SAME_SIZE and mine <= theirs * SCALED_AT_MAX
            for theirs, mine, start in zip(known, size, lower, strict=True)
        )
    ]
    if not inside:
        return None
    known = min(inside, key=lambda each: _distance(each, size))
    found = held([scaled_run(point, size) for point in sweeps[known].points], slo)
    if found is None or not found.serves:
        return None
    return Cell(found.rate_rps, found.low_rps, sweeps[known].high_rps, Basis.SCALED)


def _bounds(size: Size, sweeps: Mapping[Size, SustainedRate]) -> tuple[float, float]:
    """The bounds of a size by monotony: at least the rate of a larger one, at most that of a smaller one."""
    low, high = 0.0, inf
    for known, sweep in sweeps.items():
        if all(theirs * SAME_SIZE >= mine for theirs, mine in zip(known, size, strict=True)):
            low = max(low, sweep.low_rps)
        if all(theirs <= mine * SAME_SIZE for theirs, mine in zip(known, size, strict=True)):
            high = min(high, 0.0 if sweep.cannot_serve else sweep.high_rps)
    return min(low, high), high


def _why_not(size: Size, sweeps: Mapping[Size, SustainedRate]) -> str:
    if not sweeps:
        return "nothing was measured that the SLO limits"
    if not any(sweep.serves for sweep in sweeps.values()):
        return "no measured size holds the SLO at the loads that were measured"
    largest = max(known[0] for known in sweeps), max(known[1] for known in sweeps)
    beyond = [
        side
        for side, mine, maximum in zip(("input", "output"), size, largest, strict=True)
        if mine > maximum * SAME_SIZE
    ]
    return f"lies beyond the measured {' and '.join(beyond)} sizes" if beyond else "is too far from any measured size"


def _mean(weights: Sequence[float], rates: Sequence[float]) -> float:
    """The geometric mean; a rate of weight 0 is ignored, so it may be infinite."""
    return exp(sum(weight * log(rate) for weight, rate in zip(weights, rates, strict=True) if weight > 0))


def _times(latency: Latency, factor: float) -> Latency:
    values = {statistic: getattr(latency, statistic) for statistic in Statistic}
    return Latency.model_construct(
        **{str(statistic): None if value is None else value * factor for statistic, value in values.items()}
    )


def _size(point: MeasuredPoint) -> Size:
    return point.input_tokens, point.output_tokens


def _same(one: Size, other: Size) -> bool:
    return all(max(a, b) <= min(a, b) * SAME_SIZE for a, b in zip(one, other, strict=True))


def _distance(one: Size, other: Size) -> float:
    return sum(log(a / b) ** 2 for a, b in zip(one, other, strict=True))
