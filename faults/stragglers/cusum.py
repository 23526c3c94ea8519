"""CUSUMs of likelihood ratios (Page 1954), for each size of slowdown and each node, and runs of large windows.

p is the share of windows with a pause; it bounds the evidence of one window.  No window counts more than a hiccup may.
Formulas: docs/explanation/faults/stragglers.md, "Detection"
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log, pi, sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats
from faults.stragglers.kalman import WINSOR, FilterState, Gain
from faults.stragglers.settings import StragglerSettings, nats_of_large

STALE: Final = 0.25  # of a size: once the filter without slowdown has learnt the rest, windows have no more evidence
MIN: Final = 3  # windows: the first is partial, and two cannot be compared for equality
SURE: Final = 2.0  # standard errors of the duration


@dataclass(frozen=True, slots=True)
class CusumBank:
    evidence: Floats
    usual: Floats
    sway: Floats
    since_s: Floats
    count: Floats  # windows since
    total: Floats  # lateness in them


class Observed(NamedTuple):
    observed: NDArray[np.bool_]
    expected: Floats
    surprise: Floats  # 0 if not observed
    from_s: float


def start(sizes: int, nodes: int) -> CusumBank:
    zero = np.zeros((sizes, nodes))
    return CusumBank(zero, zero, zero, zero, zero, zero)


def step(
    bank: CusumBank,
    observation: Observed,
    after: FilterState,
    gain: Gain,
    *,
    sizes: Floats,
    keep: float,
    pause_density: float,
    most: float,
) -> CusumBank:
    """Add one window; `after` is the state of the filter without slowdown."""
    sway = keep * bank.sway
    difference = sizes[:, None] - observation.expected + (bank.usual + sway)  # the difference between the two filters
    surprise = observation.surprise - difference
    pause = pause_density * sqrt(2.0 * pi) * gain.deviation  # densities without the factor common to all sizes
    reported = _log_density(surprise / gain.deviation, pause) - _log_density(
        observation.surprise / gain.deviation, pause
    )
    evidence = bank.evidence + np.minimum(reported, most) * observation.observed
    live = (evidence > 0.0) & (difference >= STALE * sizes[:, None])
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


def windows_of(settings: StragglerSettings, window_s: float) -> int:
    """Return the number of windows: 3 of 5 s, 5 of 2.5 s."""
    return max(ceil(settings.hiccup_s / window_s), MIN)


def outlasts_hiccup(
    recent_lateness: Sequence[Floats],
    run: Floats,
    settings: StragglerSettings,
    *,
    noise: float,
    large_share: float,
    bar: float,
    window_s: float,
) -> NDArray[np.bool_]:
    """Return, per node, whether a run of large windows together lasts longer than a hiccup.

    `recent_lateness`: by window, the newest first; `run`: large windows in a row.  A slowdown may begin at any time of
    the first window; the later windows are equally late, against n pauses, each anywhere within `pause`:

        lasts = window (sum of (e^x_k - 1) / max of them - 2 noise / max x_k)        by the share of each window
        log-likelihood ratio >= -n log p + log(pause / (2 sqrt(pi) noise)) - (x_n - x_(n-1))^2 / (4 noise^2)
    """
    found, count = np.zeros(run.size, dtype=bool), windows_of(settings, window_s)
    nodes = np.flatnonzero(run >= count)
    if len(recent_lateness) < count or not nodes.size:
        return found
    late = np.array([window[nodes] for window in recent_lateness[:count]])
    most = late.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        windows = np.expm1(late).sum(axis=0) / np.expm1(most) - SURE * noise / most
        same = log(settings.pause / (2.0 * sqrt(pi) * noise)) - ((late[0] - late[1]) / (2.0 * noise)) ** 2
    enough = count * nats_of_large(large_share) + same >= bar
    found[nodes] = (windows * window_s >= settings.hiccup_s) & enough
    return found
