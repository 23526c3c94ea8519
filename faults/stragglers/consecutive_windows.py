"""A run of large windows that together last longer than a hiccup.  docs/explanation/faults/stragglers.md, "Detection"

A slowdown may begin at any time of the first window; the later windows are equally late:

    lasts = window (sum of (e^x_k - 1) / max of them - 2 noise / max x_k)        by the share of each window
    log-likelihood ratio >= -n log p + log(pause / (2 sqrt(pi) noise)) - (x_n - x_(n-1))^2 / (4 noise^2)

against n pauses, each anywhere within `pause`.
"""

from collections.abc import Sequence
from math import ceil, log, pi, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats
from faults.stragglers.settings import StragglerSettings, nats_of_large

MIN: Final = 3  # windows: the first is partial, and two cannot be compared for equality
SURE: Final = 2.0  # standard errors of the duration


def windows_of(settings: StragglerSettings, window_s: float) -> int:
    """Return the number of windows: 3 of 5 s, 5 of 2.5 s."""
    return max(ceil(settings.hiccup_s / window_s), MIN)


def alike(
    lately: Sequence[Floats],
    run: Floats,
    settings: StragglerSettings,
    *,
    noise: float,
    large_share: float,
    bar: float,
    window_s: float,
) -> NDArray[np.bool_]:
    """Return a flag per node.  `lately`: lateness by window, the newest first; `run`: large windows in a row."""
    found, count = np.zeros(run.size, dtype=bool), windows_of(settings, window_s)
    nodes = np.flatnonzero(run >= count)
    if len(lately) < count or not nodes.size:
        return found
    late = np.array([window[nodes] for window in lately[:count]])
    most = late.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        windows = np.expm1(late).sum(axis=0) / np.expm1(most) - SURE * noise / most
        same = log(settings.pause / (2.0 * sqrt(pi) * noise)) - ((late[0] - late[1]) / (2.0 * noise)) ** 2
    enough = count * nats_of_large(large_share) + same >= bar
    found[nodes] = (windows * window_s >= settings.hiccup_s) & enough
    return found
