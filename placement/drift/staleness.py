"""The imbalance of the current placement now and in the next windows, and when that requires moves.

The next windows' loads are sampled around their forecast.  The maximum load counts, so loads that scatter make a
placement less even than their mean does; the imbalance of the forecast alone would be too low.
"""

from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.drift.forecast import Forecast, forecast
from placement.imbalance import imbalance
from placement.layout import Layout

DRAWS = 32
LOW, HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class Expected:
    """Mean imbalance over layers in a future window."""

    mean: float
    low: float  # 10 % quantile of the samples
    high: float  # 90 % quantile
    part_above: float  # of the samples above `act_above`


@dataclass(frozen=True, slots=True)
class Staleness:
    now: float  # mean imbalance in the last window
    expected: tuple[Expected, ...]  # per future window
    act_above: float
    act_in: int | None  # windows until the mean is above `act_above`: 0 is now; None: not foreseen
    act_in_earliest: int | None  # until the 90 % quantile is
    act_in_latest: int | None  # until the 10 % quantile is
    forecast: Forecast


def staleness(
    expert_of_slot: Ints,
    windows: Floats,
    *,
    layout: Layout,
    rule: Dispatch = Dispatch.EQUAL,
    act_above: float,
    ahead: int = 4,
    seed: int = 0,
) -> Staleness:
    """The staleness of a placement [layers, slots], from tokens [windows, layers, experts], oldest first."""
    if not act_above >= 1:
        raise RuleError([(("act_above",), f"must be at least 1, got {act_above:g}")])
    predicted = forecast(windows, ahead=ahead)
    now = imbalance(expert_of_slot, windows[-1], layout=layout, rule=rule).mean
    drawn = predicted.drawn(np.random.default_rng(seed), draws=DRAWS)
    values = _means(expert_of_slot, drawn, layout, rule)
    low, high = np.quantile(values, (LOW, HIGH), axis=0)
    means, above = values.mean(axis=0), (values > act_above).mean(axis=0)
    return Staleness(
        now=now,
        expected=tuple(
            Expected(*(float(figure) for figure in window)) for window in zip(means, low, high, above, strict=True)
        ),
        act_above=act_above,
        act_in=_first_above(now, means, act_above),
        act_in_earliest=_first_above(now, high, act_above),
        act_in_latest=_first_above(now, low, act_above),
        forecast=predicted,
    )


def _means(expert_of_slot: Ints, drawn: Floats, layout: Layout, rule: Dispatch) -> Floats:
    """[draws, windows]: mean imbalance over layers."""
    draws, ahead, layers, experts = drawn.shape
    placed = np.tile(expert_of_slot, (draws * ahead, 1))
    per_row = imbalance(placed, drawn.reshape(-1, experts), layout=layout, rule=rule).per_layer
    means: Floats = per_row.reshape(draws, ahead, layers).mean(axis=2)
    return means


def _first_above(now: float, coming: Floats, level: float) -> int | None:
    above = np.flatnonzero(np.array([now, *coming]) > level)
    return int(above[0]) if len(above) else None
