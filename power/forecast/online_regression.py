"""The compiled step of a row's forecast: learn from the new outcomes, then forecast from this reading.

Formulas: docs/explanation/power/forecast.md.  For each target y (a rise, in units of the row's first reading):

    location  m = a'x      decayed least squares on the features known at forecast time
    spread    s = c'x      the same on |y - m|, at least a share of its mean
    quantile  m + k s      k moves by its own error: up by eta q if y was above, down by eta (1 - q) if not

The last line is online conformal calibration (Gibbs and Candes 2021; the quantile tracker of Angelopoulos, Candes and
Tibshirani 2023): its long-run coverage is guaranteed for any input.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import float64, int64, void

from fleet.numba_cache import jit_entry, jit_inner
from power.arrays import Floats
from power.forecast.state_layout import (
    AT_S,
    BRIEF_W,
    CLIMBS,
    FILLED,
    FIRST_FACTORS,
    FIRST_RISE_SHARE,
    HEAD,
    HISTORY,
    LAGS,
    MEAN_W,
    OWN,
    PRIOR_W,
    QUANTILES,
    READINGS,
    STEP_S,
    TARGETS,
    UNIT_W,
    offsets,
)

SLOW_S, BRIEF_S = 600.0, 20.0  # memory of the means
MEMORY = 1 - 1 / 21_600  # of the least squares: half a day of readings each 2 s
RIDGE = 20.0  # strength of the prior that a feature has no weight, in readings
SOLVE_EACH = 16
MIN_PIVOT = 1e-9
MIN_SPREAD, MIN_OF_ALL = 0.25, 1e-6  # of the mean spread; of the first reading
# Steps of the factors per quantile, in spreads: larger in the tail, which has few outcomes.
ETAS = (0.01, 0.02, 0.06, 0.25)
EARLY = 400.0  # readings over which larger steps shrink to these
TRUSTED = 150.0  # readings learnt from before the weights are used
WIDE = 8.0  # spreads; one outcome counts as at most so many when it is learnt from
N_LAGS, N_QUANTILES = len(LAGS), len(QUANTILES)
MAX_LAG = LAGS[-1]


class Parts(NamedTuple):
    """Views into the table; see `state_layout`."""

    features: int
    entry: int
    ring: Floats
    gram: Floats
    sums: Floats
    weights: Floats
    factors: Floats
    now: Floats


_offsets = jit_inner(offsets)


@jit_inner
def _parts(table: Floats, drivers: int) -> Parts:
    at = _offsets(drivers)
    return Parts(
        at.features,
        at.entry,
        table[at.ring : at.gram],
        table[at.gram : at.sums],
        table[at.sums : at.weights],
        table[at.weights : at.factors],
        table[at.factors : at.now],
        table[at.now :],
    )


@jit_inner
def _entry_of(parts: Parts, reading: int) -> Floats:
    at = (reading % HISTORY) * parts.entry
    return parts.ring[at : at + parts.entry]


@jit_inner
def _means(table: Floats, drivers: int, at_s: float, row_w: float) -> None:
    """Update the means of the reading and of each driver; a gap reduces the weight of the past."""
    gone_s = at_s - table[AT_S] if table[READINGS] > 0 else 0.0
    first = 1 / (table[READINGS] + 1)
    slow, brief = max(1 - np.exp(-gone_s / SLOW_S), first), max(1 - np.exp(-gone_s / BRIEF_S), first)
    table[MEAN_W] += slow * (row_w - table[MEAN_W])
    table[BRIEF_W] += brief * (row_w - table[BRIEF_W])
    for i in range(HEAD, HEAD + drivers):
        table[i + drivers] += slow * (table[i] - table[i + drivers])


@jit_inner
def _describe(table: Floats, parts: Parts, drivers: int, row_w: float) -> None:
    """Write the reading and its features into its entry."""
    unit_w, here = table[UNIT_W], int(table[READINGS])
    values = _entry_of(parts, here)
    values[0] = row_w / unit_w
    values[1] = 1.0
    values[2] = (row_w - table[MEAN_W]) / unit_w
    values[3] = (row_w - table[BRIEF_W]) / unit_w
    values[4] = table[MEAN_W] / unit_w - 1
    for i in range(CLIMBS):
        known = table[FILLED] > i
        values[5 + i] = _entry_of(parts, here - i)[0] - _entry_of(parts, here - i - 1)[0] if known else 0.0
    for i in range(drivers):
        values[1 + OWN + i] = (table[HEAD + i] - table[HEAD + drivers + i]) / unit_w


@jit_inner
def _outcomes(parts: Parts, now: int, ago: int, rises: Floats) -> None:
    """Write the outcomes of a past reading: per lag the highest rise up to the lag."""
    base = _entry_of(parts, now - ago)[0]
    highest, ahead = -np.inf, 0
    for i in range(N_LAGS):
        lag = LAGS[i]
        if lag > ago:
            break
        while ahead < lag:
            ahead += 1
            highest = max(highest, _entry_of(parts, now - ago + ahead)[0] - base)
        rises[i] = highest


@jit_inner
def _calibrate(parts: Parts, then: Floats, lag: int, rises: Floats, boost: float) -> None:
    """Move the factors of one lag by the error of the past forecast.

    One burst is part of as many outcomes as the lag is long, so a long lag takes smaller steps.
    """
    pace = boost / np.sqrt(LAGS[lag])
    location = then[1 + parts.features + lag]
    spread = then[1 + parts.features + TARGETS + lag]
    z = (rises[lag] - location) / spread
    for q in range(N_QUANTILES):
        at = lag * N_QUANTILES + q
        above = 1.0 if z > parts.factors[at] else 0.0
        parts.factors[at] += ETAS[q] * pace * (above - (1 - QUANTILES[q]))


@jit_inner
def _learn(parts: Parts, then: Floats, rises: Floats) -> None:
    """Add one reading with all its outcomes to the least squares."""
    features = parts.features
    for i in range(features):
        for j in range(i + 1):  # only the lower half is factorised
            parts.gram[i * features + j] = parts.gram[i * features + j] * MEMORY + then[1 + i] * then[1 + j]
    for target in range(TARGETS):
        location, spread = then[1 + features + target], then[1 + features + TARGETS + target]
        off = min(max(rises[target] - location, -WIDE * spread), WIDE * spread)
        at, beside = target * features, (TARGETS + target) * features
        for i in range(features):
            parts.sums[at + i] = parts.sums[at + i] * MEMORY + then[1 + i] * (location + off)
            parts.sums[beside + i] = parts.sums[beside + i] * MEMORY + then[1 + i] * abs(off)


@jit_inner
def _factorised(parts: Parts) -> npt.NDArray[np.float64]:
    """Return the Cholesky factor of the squares, with the ridge on all but the constant."""
    features, gram = parts.features, parts.gram
    ridge = 1 + RIDGE / gram[0]  # the constant's square counts readings
    low = np.zeros((features, features))
    for i in range(features):
        for j in range(i + 1):
            left = gram[i * features + j] * (ridge if i == j and i > 0 else 1.0)
            for k in range(j):
                left -= low[i, k] * low[j, k]
            low[i, j] = np.sqrt(max(left, MIN_PIVOT)) if i == j else left / low[j, j]
    return low


@jit_inner
def _solve(parts: Parts) -> None:
    """Compute the weights of every location and spread from the sums."""
    features, weights = parts.features, parts.weights
    low = _factorised(parts)
    for at in range(0, 2 * TARGETS * features, features):
        for i in range(features):
            left = parts.sums[at + i]
            for k in range(i):
                left -= low[i, k] * weights[at + k]
            weights[at + i] = left / low[i, i]
        for i in range(features - 1, -1, -1):
            left = weights[at + i]
            for k in range(i + 1, features):
                left -= low[k, i] * weights[at + k]
            weights[at + i] = left / low[i, i]


@jit_inner
def _forecast(parts: Parts, values: Floats, prior: float) -> None:
    """Write location and spread of each target into the entry, and the quantiles into `now`."""
    features, weights = parts.features, parts.weights
    known = parts.gram[0] >= TRUSTED
    for target in range(TARGETS):
        location, spread = 0.0, prior
        if known:
            at, beside = target * features, (TARGETS + target) * features
            spread = 0.0
            for i in range(features):
                location += weights[at + i] * values[1 + i]
                spread += weights[beside + i] * values[1 + i]
            spread = max(spread, MIN_SPREAD * weights[beside], MIN_OF_ALL)
        values[1 + features + target] = location
        values[1 + features + TARGETS + target] = spread
        highest = -np.inf
        for q in range(target * N_QUANTILES, (target + 1) * N_QUANTILES):
            highest = max(highest, location + parts.factors[q] * spread)
            parts.now[q] = highest


@jit_entry(void(float64[::1], int64, float64, float64))
def take(table: Floats, drivers: int, at_s: float, row_w: float) -> None:
    """Add one reading; the drivers' watts are already in the table."""
    parts = _parts(table, drivers)
    here = int(table[READINGS])
    if here > 0 and abs(at_s - table[AT_S] - table[STEP_S]) > 0.5 * table[STEP_S]:
        table[FILLED] = 0.0  # a gap: this reading is no outcome of forecasts before it
    filled = int(table[FILLED])
    _means(table, drivers, at_s, row_w)
    _describe(table, parts, drivers, row_w)
    rises = np.empty(TARGETS)
    boost = 1 + EARLY / (EARLY / 4 + here)
    for lag in range(N_LAGS):
        if filled >= LAGS[lag]:
            _outcomes(parts, here, LAGS[lag], rises)
            if parts.gram[0] >= TRUSTED + MAX_LAG:  # forecasts by the prior do not train the factors
                _calibrate(parts, _entry_of(parts, here - LAGS[lag]), lag, rises, boost)
    if filled >= MAX_LAG:  # `rises` are those of the longest lag now, hence of all
        _learn(parts, _entry_of(parts, here - MAX_LAG), rises)
        if here % SOLVE_EACH == 0:
            _solve(parts)
    prior_w = table[PRIOR_W] if table[PRIOR_W] > 0 else FIRST_RISE_SHARE * row_w
    _forecast(parts, _entry_of(parts, here), max(prior_w / table[UNIT_W] / FIRST_FACTORS[-1], MIN_OF_ALL))
    table[READINGS], table[AT_S] = here + 1.0, at_s
    table[FILLED] = min(filled + 1.0, float(MAX_LAG))
