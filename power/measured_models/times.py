"""Fits of times (docs/explanation/power/measured-models.md, 3): a prompt by its tokens, a token by its batch.

    prompt of p tokens    s0 + s1 * p + s2 * p^2
    one token, n together t0 * (1 + g * (n - 1))

Relative least squares: a short prompt counts as much as a long one.  A negative coefficient is set to 0.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from power.arrays import Floats
from power.measured_models.document import Error
from power.measured_models.points import error_of

MAX_GROWTH = 1.0


def token_times(batches: Sequence[float], seconds: Sequence[float]) -> tuple[float, float, Error]:
    """Return `t0`, `g`, and the error of each batch predicted from the others."""
    features = np.column_stack((np.ones(len(batches)), np.asarray(batches) - 1))
    (alone, slope), error = _fitted(features, np.asarray(seconds, dtype=float))
    growth = min(MAX_GROWTH, slope / alone) if alone > 0 else MAX_GROWTH
    return round(alone or slope, 6), round(growth, 6), error


def prompt_times(tokens: Sequence[float], seconds: Sequence[float]) -> tuple[tuple[float, float, float], Error]:
    """Return `s0`, `s1`, `s2`, and the error of each length predicted from the others."""
    at = np.asarray(tokens, dtype=float)
    (none, each, square), error = _fitted(np.column_stack((np.ones(len(at)), at, at**2)), np.asarray(seconds))
    return (float(f"{none:.4g}"), float(f"{each:.4g}"), float(f"{square:.4g}")), error


def _fitted(features: Floats, seconds: Floats) -> tuple[Floats, Error]:
    predicted = np.empty(len(seconds))
    for at in range(len(seconds)):
        rest = np.arange(len(seconds)) != at
        predicted[at] = features[at] @ _not_negative(features[rest], seconds[rest])
    return _not_negative(features, seconds), error_of(np.maximum(0, predicted), seconds)


def _not_negative(features: Floats, seconds: Floats) -> Floats:
    """Fit least squares of relative errors without negative coefficients: the best over all sets of columns."""
    scaled, columns = features / seconds[:, None], range(features.shape[1])
    best, least = np.zeros(len(columns)), np.inf
    for kept in (list(some) for size in range(1, len(columns) + 1) for some in combinations(columns, size)):
        found = np.linalg.lstsq(scaled[:, kept], np.ones(len(seconds)), rcond=None)[0]
        off = float(np.sum((scaled[:, kept] @ found - 1) ** 2))
        if np.all(found >= 0) and off < least:
            least, best = off, np.zeros(len(columns))
            best[kept] = found
    return best
