"""A forecast of the loads of the next windows, by the smoothing with the best back-test.

docs/explanation/placement/migration.md has the formulas (Gardner and McKenzie, Management Science 31, 1985) and the
back-test.  From level_1 = y_1 and no trend the first forecast is the last window for all parameters.  alpha = 1 without
trend is the naive forecast.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout

CAUTION = 0.3  # over the number of back-tests: a single jump must not pass for a trend
MIN_WINDOWS = 3  # windows; with fewer all candidates forecast the same
DRAWS = 32


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


@dataclass(frozen=True, eq=False)
class Forecast:
    shares: Floats  # [windows ahead, layers, experts], of each layer's tokens
    layer_tokens: Floats  # [layers]: of the last window, assumed to stay
    spread: Floats  # [layers]: of a share's logarithm, one window ahead; 0 with a single window
    smoothing: Smoothing

    @property
    def tokens(self) -> Floats:
        """[windows ahead, layers, experts]."""
        loads: Floats = self.shares * self.layer_tokens[:, np.newaxis]
        return loads

    def drawn(self, rng: np.random.Generator, *, draws: int) -> Floats:
        """[draws, windows ahead, layers, experts]: random samples of tokens; errors add up from window to window."""
        steps = rng.standard_normal((draws, *self.shares.shape)) * self.spread[:, np.newaxis]
        weights = self.shares * np.exp(np.cumsum(steps, axis=1))
        loads: Floats = weights / weights.sum(axis=-1, keepdims=True) * self.layer_tokens[:, np.newaxis]
        return loads


def forecast(windows: Floats, *, ahead: int = 1) -> Forecast:
    """From tokens [windows, layers, experts], oldest first."""
    if windows.ndim != 3 or len(windows) < 1:
        raise RuleError([(("windows",), f"must be windows x layers x experts, got {windows.shape}")])
    if ahead < 1:
        raise RuleError([(("ahead",), f"must be at least 1, got {ahead}")])
    shares = shares_of(windows)
    best = NAIVE
    if len(windows) >= MIN_WINDOWS:
        errors = [_error(shares, candidate) for candidate in CANDIDATES]
        at = int(np.argmin(errors))
        if errors[at] < errors[CANDIDATES.index(NAIVE)] * (1 - CAUTION / (len(windows) - 1)):
            best = CANDIDATES[at]
    return Forecast(
        shares=ahead_of_last(shares, by=best, windows=ahead),
        layer_tokens=windows[-1].sum(axis=-1),
        spread=_spread(shares, best),
        smoothing=best,
    )


def _error(shares: Floats, by: Smoothing) -> float:
    return float(np.abs(shares[1:] - ahead_of_each(shares[:-1], by=by)).sum(axis=-1).mean() / 2)


def _spread(shares: Floats, by: Smoothing) -> Floats:
    if len(shares) == 1:
        return np.zeros(shares.shape[1])
    off = np.log(shares[1:] / ahead_of_each(shares[:-1], by=by))
    spread: Floats = np.sqrt((off**2 * shares[1:]).sum(axis=-1).mean(axis=0))
    return spread


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


@dataclass(frozen=True, slots=True)
class Staleness:
    now: float  # mean imbalance in the last window
    expected: tuple[float, ...]  # mean imbalance in each future window
    act_in: int | None  # windows until the mean is above `act_above`: 0 is now; None: not foreseen


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
    now = imbalance(expert_of_slot, windows[-1], layout=layout, rule=rule).mean
    drawn = forecast(windows, ahead=ahead).drawn(np.random.default_rng(seed), draws=DRAWS)
    means = _mean_imbalances(expert_of_slot, drawn, layout, rule).mean(axis=0).tolist()
    above = (window for window, mean in enumerate([now, *means]) if mean > act_above)
    return Staleness(now=now, expected=tuple(means), act_in=next(above, None))


def _mean_imbalances(expert_of_slot: Ints, drawn: Floats, layout: Layout, rule: Dispatch) -> Floats:
    """[draws, windows]: mean imbalance over layers."""
    draws, ahead, layers, experts = drawn.shape
    placed = np.tile(expert_of_slot, (draws * ahead, 1))
    per_row = imbalance(placed, drawn.reshape(-1, experts), layout=layout, rule=rule).per_layer
    means: Floats = per_row.reshape(draws, ahead, layers).mean(axis=2)
    return means
