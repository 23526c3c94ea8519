"""Congested uplinks: Poisson arrivals on each cable, exponential durations, lognormal excess."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BLOCK_S = 600.0  # events are drawn for one block at a time


@dataclass(frozen=True, slots=True)
class CongestionRates:
    per_uplink_h: float = 0.5
    mean_s: float = 30.0
    excess: float = 0.4  # median of (usual over now) - 1
    sigma: float = 0.6  # of its logarithm


class Congestion:
    """The state of all uplinks, window by window.  Events from before the start are in progress then."""

    def __init__(self, uplinks: int, congestion_rates: CongestionRates, rng: np.random.Generator) -> None:
        self._uplinks = uplinks
        self._congestion_rates = congestion_rates
        self._rng = rng
        self._events: NDArray[np.float64] = np.empty((4, 0))  # uplink, from, to, factor
        self._drawn_to_s = -8.0 * congestion_rates.mean_s
        self.path: NDArray[np.float32] = np.zeros((uplinks + 1, 2), np.float32)  # the last entry stands for no uplink

    def advance(self, from_s: float, to_s: float, *, skew_s: float = 0.0) -> NDArray[np.float32]:
        """Return [uplink, 2]: log slowdown over a window, by clocks that are early and late by `skew_s`.

        The next window reuses the array.
        """
        while self._drawn_to_s < to_s + skew_s:
            self._draw(from_s)
        uplink, begin, end, factor = self._events[:, self._near(from_s - skew_s, to_s + skew_s)]
        self.path[:] = 0.0
        for column, late_s in enumerate((-skew_s, skew_s)):
            share = np.minimum(end, to_s + late_s) - np.maximum(begin, from_s + late_s)
            # While the cable is congested, 1 / factor of the usual bytes pass.
            slowdown = -np.log1p(-np.maximum(share, 0.0) / (to_s - from_s) * (1.0 - 1.0 / factor))
            np.maximum.at(self.path[:, column], uplink.astype(np.int64), slowdown.astype(np.float32))
        return self.path

    def _near(self, from_s: float, to_s: float) -> NDArray[np.bool_]:
        _, begin, end, _ = self._events
        return np.asarray((begin < to_s) & (end > from_s))

    def lasting(self, uplink: int, from_s: float, to_s: float) -> float:
        at, begin, end, factor = self._events
        here = (at == uplink) & (begin < to_s) & (end > from_s)
        return float(factor[here].max(initial=1.0))

    def _draw(self, from_s: float) -> None:
        rates = self._congestion_rates
        count = int(self._rng.poisson(rates.per_uplink_h * self._uplinks * _BLOCK_S / 3600.0))
        begin = self._drawn_to_s + self._rng.uniform(0.0, _BLOCK_S, count)
        end = begin + self._rng.exponential(rates.mean_s, count)
        factor = 1.0 + rates.excess * self._rng.lognormal(0.0, rates.sigma, count)
        uplink = self._rng.integers(0, self._uplinks, count).astype(np.float64)
        kept = self._events[:, self._events[2] > from_s - _BLOCK_S]  # the scorer reads the recent past
        self._events = np.concatenate([kept, np.stack([uplink, begin, end, factor])], axis=1)
        self._drawn_to_s += _BLOCK_S
