"""Level and damped trend of each expert's share of its layer's tokens, in logarithms.

With y_t the logarithm of the share in window t (Gardner and McKenzie, Management Science 31, 1985),

    level_t = alpha y_t + (1 - alpha)(level_(t-1) + phi trend_(t-1))
    trend_t = beta (level_t - level_(t-1)) + (1 - beta) phi trend_(t-1)
    forecast of t + h = level_t + (phi + phi^2 + ... + phi^h) trend_t

from level_1 = y_1 and no trend, so the first forecast is the last window for all parameters.  alpha = 1 without trend
is the naive forecast.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placement.arrays import Floats


@dataclass(frozen=True, slots=True)
class Smoothing:
    """The speeds of level and trend, and the damping of the trend."""

    alpha: float
    beta: float = 0.0
    phi: float = 0.0


NAIVE = Smoothing(1.0)
CANDIDATES = (
    NAIVE,
    *(Smoothing(alpha) for alpha in (0.2, 0.4, 0.6, 0.8)),
    *(Smoothing(alpha, beta, phi) for alpha in (0.4, 0.7, 1.0) for beta in (0.2, 0.5, 1.0) for phi in (0.5, 0.8, 1.0)),
)


def shares_of(tokens: Floats) -> Floats:
    """[windows, layers, experts]: parts of the layer's tokens; an expert without tokens counts half a token."""
    counted = np.maximum(tokens, 0.5)
    shares: Floats = counted / counted.sum(axis=-1, keepdims=True)
    return shares


def ahead_of_each(shares: Floats, *, by: Smoothing) -> Floats:
    """[windows, layers, experts]: forecast shares one window after each, from it and those before it."""
    return np.stack([_shares(level + by.phi * trend) for level, trend in _states(shares, by)])


def ahead_of_last(shares: Floats, *, by: Smoothing, windows: int) -> Floats:
    """[windows, layers, experts]: forecast shares of the next windows."""
    *_, (level, trend) = _states(shares, by)
    reach = np.cumsum(by.phi ** np.arange(1, windows + 1))
    return np.stack([_shares(level + factor * trend) for factor in reach])


def _states(shares: Floats, by: Smoothing) -> Iterator[tuple[Floats, Floats]]:
    """Level and trend after each window."""
    logs = np.log(shares)
    level, trend = logs[0], np.zeros_like(logs[0])
    yield level, trend
    for log in logs[1:]:
        before = level
        level = by.alpha * log + (1 - by.alpha) * (level + by.phi * trend)
        trend = by.beta * (level - before) + (1 - by.beta) * by.phi * trend
        yield level, trend


def _shares(logs: Floats) -> Floats:
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    shares: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return shares
