"""For each size of slowdown and each node: has it begun, and when?  CUSUMs of likelihood ratios (Page 1954).

    H0: late = usual + sway + noise           surprise e0 = late - what the filter expects
    Hd: the same + d since the sum last was 0   surprise e1 = late - d - what a filter expects that knows of d
    S_d = max(0, S_d + log f(e1) - log f(e0)),    f(e) = (1 - p) N(e; 0, F) + p / pause

Both filters begin alike when S_d is 0 and have the same gain, so S_d is the log-likelihood ratio of all windows since,
as if wandering and usual had been integrated out (Willsky and Jones 1976).  p is the share of windows with a pause; it
bounds what one window says.  No window counts more than a hiccup may.
"""

from dataclasses import dataclass
from math import pi, sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats
from faults.stragglers.kalman import WINSOR, Gain, Validity

STALE: Final = 0.25  # of a size: when the filter that knows of none has learnt the rest, windows tell no more


@dataclass(frozen=True, slots=True)
class CusumBank:
    """Per size and node."""

    evidence: Floats
    usual: Floats
    sway: Floats
    since_s: Floats
    count: Floats  # windows since
    total: Floats  # lateness in them


class Observed(NamedTuple):
    """One window, as the filter saw it that knows of no slowdown."""

    observed: NDArray[np.bool_]
    expected: Floats
    surprise: Floats  # 0 where not heard
    from_s: float


def start(sizes: int, nodes: int) -> CusumBank:
    """Nothing looked at."""
    zero = np.zeros((sizes, nodes))
    return CusumBank(zero, zero, zero, zero, zero, zero)


def step(
    bank: CusumBank,
    seen: Observed,
    after: Validity,
    gain: Gain,
    *,
    sizes: Floats,
    keep: float,
    pause_density: float,
    most: float,
) -> CusumBank:
    """`after`: what the filter that knows of no slowdown knows now."""
    sway = keep * bank.sway
    apart = sizes[:, None] - seen.expected + (bank.usual + sway)  # what the two filters differ by
    surprise = seen.surprise - apart
    pause = pause_density * sqrt(2.0 * pi) * gain.deviation  # densities but for what all sizes have in common
    said = _log_density(surprise / gain.deviation, pause) - _log_density(seen.surprise / gain.deviation, pause)
    evidence = bank.evidence + np.minimum(said, most) * seen.observed
    live = (evidence > 0.0) & (apart >= STALE * sizes[:, None])
    limit = WINSOR * gain.deviation
    cut = np.minimum(np.maximum(surprise, -limit), limit)
    return CusumBank(
        evidence * live,
        np.where(live, bank.usual + gain.usual * cut, after.usual),
        np.where(live, sway + gain.sway * cut, after.sway),
        np.where(bank.evidence > 0.0, bank.since_s, seen.from_s),
        (bank.count + seen.observed) * live,
        (bank.total + (surprise + sizes[:, None]) * seen.observed) * live,
    )


def _log_density(score: Floats, pause: Floats) -> Floats:
    return np.asarray(np.log(np.exp(-0.5 * score * score) + pause))
