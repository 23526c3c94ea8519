"""Three large windows in a row that together last longer than a hiccup.  docs/faults/stragglers.md, section 1

A slowdown may begin at any moment of the first window; from then on windows are as late as each other:

    lasts = window (sum of (e^x_k - 1) / max of them - 2 noise / max x_k)        by how much of it each window has
    log-likelihood ratio >= -3 log p + log(pause / (2 sqrt(pi) noise)) - (x_3 - x_2)^2 / (4 noise^2)

against three pauses, of which each lies anywhere within `pause`.
"""

from collections.abc import Sequence
from math import log, pi, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats
from faults.stragglers.settings import StragglerSettings, nats_of_large

WINDOWS: Final = 3
SURE: Final = 2.0  # standard errors, of how long it lasts


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
    """Per node.  `lately`: lateness window by window, the newest first; `run`: large windows in a row."""
    found = np.zeros(run.size, dtype=bool)
    nodes = np.flatnonzero(run >= WINDOWS)
    if len(lately) < WINDOWS or not nodes.size:
        return found
    late = np.array([window[nodes] for window in lately[:WINDOWS]])
    most = late.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        windows = np.expm1(late).sum(axis=0) / np.expm1(most) - SURE * noise / most
        same = log(settings.pause / (2.0 * sqrt(pi) * noise)) - ((late[0] - late[1]) / (2.0 * noise)) ** 2
    enough = WINDOWS * nats_of_large(large_share) + same >= bar
    found[nodes] = (windows * window_s >= settings.hiccup_s) & enough
    return found
