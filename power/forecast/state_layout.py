"""Offsets of a row's forecast state in its one array of floats; a step copies one block.

head      count of readings, last time, last reading, slow means
inputs    the drivers of the reading in progress, then their slow means
ring      per past reading: the reading, its features, and its forecasts
gram      decayed sums of x x'
sums      decayed sums of x y and x |residual|, per target
weights   solutions: location and spread, per target
factors   distance of a quantile from the location in spreads, per target and quantile
now       the forecast, per target and quantile
"""

from typing import NamedTuple

QUANTILES = (0.5, 0.9, 0.99, 0.999)
LAGS = (1, 2, 5, 10, 20)  # readings ahead; with one each 2 s: 2 to 40 s
TARGETS = len(LAGS)  # for each lag the highest reading up to it
HISTORY = LAGS[-1] + 1
# Before the first outcomes, in spreads: wider than a normal distribution, since rises have a heavy tail.
FIRST_FACTORS = (0.0, 1.8, 4.0, 7.0)
FIRST_RISE_SHARE = 0.12  # of the reading, at the last quantile: POLCA's largest in 40 s (arXiv 2308.12908)

# Places in the head.
READINGS, AT_S, MEAN_W, BRIEF_W, FILLED, UNIT_W, STEP_S, PRIOR_W = range(8)
HEAD = 8
CLIMBS = 8  # from reading to reading, that are features: jobs that train swing every few seconds
OWN = 4 + CLIMBS  # features without the drivers


class Offsets(NamedTuple):
    features: int  # their number: one, three of the means, the last differences, and the drivers minus their means
    entry: int  # floats per reading in the ring
    ring: int
    gram: int
    sums: int
    weights: int
    factors: int
    now: int  # the quantiles forecast from the last reading, above the reading, in units of the first one
    size: int


def offsets(drivers: int) -> Offsets:
    """Return the offsets; the engine compiles this function."""
    features = OWN + drivers
    entry = 1 + features + 2 * TARGETS
    ring = HEAD + 2 * drivers
    gram = ring + HISTORY * entry
    sums = gram + features * features
    weights = sums + 2 * TARGETS * features
    factors = weights + 2 * TARGETS * features
    now = factors + TARGETS * len(QUANTILES)
    return Offsets(features, entry, ring, gram, sums, weights, factors, now, now + TARGETS * len(QUANTILES))
