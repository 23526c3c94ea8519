"""The compiled passes over all probes of a window: the comparison with history, and learning.  See `probes`."""

import numpy as np
from numba import boolean, float32, float64, uint8, void
from numpy.typing import NDArray

from fleet.numba_cache import jit_entry

_F, _H, _B, _U = float64[::1], float32[::1], boolean[::1], uint8[::1]
NU = 4.0
WINSOR = 2.0  # scales: the largest step of one window
FAR = 4.5  # scales, above which a young history learns nothing
RUN = 4  # windows: noise alone (t4) is beyond 6 scales in so many once in 10^11, and a hiccup touches three
STRANGE = 6.0  # scales
CONTRADICTS = -3.0  # nats of a window's traffic: slightly slow links have less
LONGEST = 250  # windows for which a run is counted


@jit_entry(void(_F, _H, _H, float64, float64, float64, float64, _F, _F, _F))
def measure(  # noqa: PLR0917 - compiled code takes no keywords
    measured: NDArray[np.float64],
    mean: NDArray[np.float32],
    windows: NDArray[np.float32],
    noise2: float,
    spread2: float,
    outlying: float,
    spread_tail: float,
    residual: NDArray[np.float64],
    scale: NDArray[np.float64],
    tail: NDArray[np.float64],
) -> None:
    """Compare probes with history, as `edge_kernels.measure` compares edges."""
    flat = 1.0 / spread_tail
    for pair in range(measured.size):
        unknown = 1.0 / (1.0 / spread2 + windows[pair] / noise2)
        variance = noise2 * outlying + unknown
        residual[pair] = measured[pair] - mean[pair]
        scale[pair] = np.sqrt(variance)
        tail[pair] = 1.0 / (flat + (1.0 / NU - flat) * noise2 * outlying / variance)


@jit_entry(void(_F, _F, _H, _H, _B, _F, _B, _U, float64, float64, float64, float64, _H, _H, _U, _F))
def learn(  # noqa: PLR0917 - compiled code takes no keywords
    residual: NDArray[np.float64],
    scale: NDArray[np.float64],
    mean: NDArray[np.float32],
    windows: NDArray[np.float32],
    doubtful: NDArray[np.bool_],
    traffic: NDArray[np.float64],
    away: NDArray[np.bool_],
    run: NDArray[np.uint8],
    ratio: float,  # noise over spread, squared
    warm: float,
    memory: float,
    worth: float,  # windows; 0 for the first, whose scatter is unknown
    new_mean: NDArray[np.float32],
    new_windows: NDArray[np.float32],
    new_run: NDArray[np.uint8],
    counts: NDArray[np.float64],  # as `Strange`
) -> None:
    """Update the baseline of unsuspected pairs; count the runs of strange pairs."""
    for pair in range(residual.size):
        new_mean[pair], new_windows[pair], new_run[pair] = mean[pair], windows[pair], 0
        z = residual[pair] / scale[pair]
        if z != z:  # noqa: PLR0124 - NaN
            continue
        counts[3 if away[pair] else 1] += 1.0
        if z > STRANGE:
            new_run[pair] = np.uint8(min(run[pair] + 1, LONGEST))
            if run[pair] + 1 == RUN and traffic[pair] <= CONTRADICTS:
                counts[2 if away[pair] else 0] += 1.0
        if worth <= 0.0 or doubtful[pair] or (windows[pair] < warm and abs(z) > FAR):
            continue
        new_windows[pair] = min(windows[pair] + np.float32(worth), np.float32(memory))
        step = min(WINSOR, max(-WINSOR, z)) * scale[pair] / (new_windows[pair] + ratio)
        new_mean[pair] = np.float32(mean[pair] + step)
