"""A forecast of the loads of the next windows, by the smoothing with the best back-test.

Each candidate forecasts every window from those before it.  Its error is the part of a layer's tokens assigned to wrong
experts, mean over windows and layers,

    error = mean of  1/2 sum over experts of |share - forecast|,

and the best one is used only if it is better than the naive forecast by `CAUTION` over the number of back-tests.  The
band is, per layer, the root mean square of log(share / forecast), weighted by share; it grows with the square root of
the windows ahead.
"""

from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Floats
from placement.drift.smoothing import CANDIDATES, NAIVE, Smoothing, ahead_of_each, ahead_of_last, shares_of

CAUTION = 0.3  # over the number of back-tests: a single jump must not pass for a trend
SHORTEST = 3  # windows; with fewer all candidates forecast the same


@dataclass(frozen=True, eq=False)
class Forecast:
    shares: Floats  # [windows ahead, layers, experts], of each layer's tokens
    layer_tokens: Floats  # [layers]: of the last window, assumed to stay
    spread: Floats  # [layers]: of a share's logarithm, one window ahead; 0 with a single window
    smoothing: Smoothing
    error: float  # in back-tests, one window ahead
    naive_error: float  # of the naive forecast: the next window equals the last one

    @property
    def tokens(self) -> Floats:
        """[windows ahead, layers, experts]."""
        loads: Floats = self.shares * self.layer_tokens[:, np.newaxis]
        return loads

    def band(self, *, deviations: float) -> tuple[Floats, Floats]:
        """Lower and upper tokens at this number of standard deviations, [windows ahead, layers, experts]."""
        ahead = np.sqrt(np.arange(1, len(self.shares) + 1))[:, np.newaxis, np.newaxis]
        factor = np.exp(deviations * ahead * self.spread[:, np.newaxis])
        return self.tokens / factor, self.tokens * factor

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
    naive_error = error = _error(shares, NAIVE)
    best = NAIVE
    if len(windows) >= SHORTEST:
        errors = [_error(shares, candidate) for candidate in CANDIDATES]
        at = int(np.argmin(errors))
        if errors[at] < naive_error * (1 - CAUTION / (len(windows) - 1)):
            best, error = CANDIDATES[at], errors[at]
    return Forecast(
        shares=ahead_of_last(shares, by=best, windows=ahead),
        layer_tokens=windows[-1].sum(axis=-1),
        spread=_spread(shares, best),
        smoothing=best,
        error=error,
        naive_error=naive_error,
    )


def _error(shares: Floats, by: Smoothing) -> float:
    if len(shares) == 1:
        return 0.0
    return float(np.abs(shares[1:] - ahead_of_each(shares[:-1], by=by)).sum(axis=-1).mean() / 2)


def _spread(shares: Floats, by: Smoothing) -> Floats:
    if len(shares) == 1:
        return np.zeros(shares.shape[1])
    off = np.log(shares[1:] / ahead_of_each(shares[:-1], by=by))
    spread: Floats = np.sqrt((off**2 * shares[1:]).sum(axis=-1).mean(axis=0))
    return spread
