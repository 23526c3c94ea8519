"""CUSUMs of likelihood ratios (Page 1954), for each size of slowdown and each node.

    H0: late = usual + sway + noise           innovation e0 = late - the filter's prediction
    Hd: the same + d since the sum last was 0   innovation e1 = late - d - the prediction of a filter that knows d
    S_d = max(0, S_d + log f(e1) - log f(e0)),    f(e) = (1 - p) N(e; 0, F) + p / pause

Both filters are equal when S_d is 0 and have the same gain, so S_d is the log-likelihood ratio of all windows since,
with sway and usual integrated out (Willsky and Jones 1976).  p is the share of windows with a pause; it bounds the
evidence of one window.  No window counts more than a hiccup may.
"""

from dataclasses import dataclass
from math import pi, sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats
from faults.stragglers.kalman import WINSOR, Gain, Validity

STALE: Final = 0.25  # of a size: once the filter without slowdown has learnt the rest, windows have no more evidence


@dataclass(frozen=True, slots=True)
class CusumBank:
    """CUSUM state per size and node."""

    evidence: Floats
    usual: Floats
    sway: Floats
    since_s: Floats
    count: Floats  # windows since
    total: Floats  # lateness in them


class Observed(NamedTuple):
    """One window, by the filter without slowdown."""

    observed: NDArray[np.bool_]
    expected: Floats
    surprise: Floats  # 0 if not observed
    from_s: float


def start(sizes: int, nodes: int) -> CusumBank:
    """Return the bank before the first window."""
    zero = np.zeros((sizes, nodes))
    return CusumBank(zero, zero, zero, zero, zero, zero)


def step(
    bank: CusumBank,
    observation: Observed,
    after: Validity,
    gain: Gain,
    *,
    sizes: Floats,
    keep: float,
    pause_density: float,
    most: float,
) -> CusumBank:
    """Add one window; `after` is the state of the filter without slowdown."""
    sway = keep * bank.sway
    apart = sizes[:, None] - observation.expected + (bank.usual + sway)  # the difference between the two filters
    surprise = observation.surprise - apart
    pause = pause_density * sqrt(2.0 * pi) * gain.deviation  # densities without the factor common to all sizes
    reported = _log_density(surprise / gain.deviation, pause) - _log_density(
        observation.surprise / gain.deviation, pause
    )
    evidence = bank.evidence + np.minimum(reported, most) * observation.observed
    live = (evidence > 0.0) & (apart >= STALE * sizes[:, None])
    limit = WINSOR * gain.deviation
    cut = np.minimum(np.maximum(surprise, -limit), limit)
    return CusumBank(
        evidence * live,
        np.where(live, bank.usual + gain.usual * cut, after.usual),
        np.where(live, sway + gain.sway * cut, after.sway),
        np.where(bank.evidence > 0.0, bank.since_s, observation.from_s),
        (bank.count + observation.observed) * live,
        (bank.total + (surprise + sizes[:, None]) * observation.observed) * live,
    )


def _log_density(score: Floats, pause: Floats) -> Floats:
    return np.asarray(np.log(np.exp(-0.5 * score * score) + pause))
