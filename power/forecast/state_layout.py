"""Offsets of a row's forecast state in its one array of floats; a step copies one block.

head      count of readings, last time, last reading, slow means
inputs    the drivers of the reading in progress
ring      per past reading: the reading, its features, and its forecasts
gram      decayed sums of x x'
sums      decayed sums of x y and x |residual|, per target
weights   solutions: location and spread, per target
factors   distance of a quantile from the location in spreads, per target and quantile
"""

from dataclasses import dataclass
from functools import cached_property

QUANTILES = (0.5, 0.9, 0.99, 0.999)
LAGS = (1, 2, 5, 10, 20)  # readings ahead; with one each 2 s: 2 to 40 s
TARGETS = 2 * len(LAGS)  # for each lag the highest reading up to it, then for each the reading at it
HISTORY = LAGS[-1] + 1
# Before the first outcomes, in spreads: wider than a normal distribution, since rises have a heavy tail.
FIRST_FACTORS = (0.0, 1.8, 4.0, 7.0)
FIRST_RISE_SHARE = 0.12  # of the reading, at the last quantile: POLCA's largest in 40 s (arXiv 2308.12908)

# Places in the head.
READINGS, AT_S, MEAN_W, BRIEF_W, FILLED, UNIT_W, STEP_S, PRIOR_W = range(8)
HEAD = 8
CLIMBS = 8  # from reading to reading, that are features: jobs that train swing every few seconds
OWN = 4 + CLIMBS  # features without the drivers


@dataclass(frozen=True)
class Layout:
    """Offsets for a number of drivers."""

    drivers: int

    @cached_property
    def features(self) -> int:
        """Return the number of features: one, three of the means, the last differences, and the drivers minus their
        means.
        """
        return OWN + self.drivers

    @cached_property
    def entry(self) -> int:
        """Return the number of floats per reading in the ring."""
        return 1 + self.features + 2 * TARGETS

    @cached_property
    def inputs(self) -> int:
        """Return the offset of the first driver; the slow means of the drivers follow."""
        return HEAD

    @cached_property
    def ring(self) -> int:
        """Return the offset of the first entry of the ring."""
        return self.inputs + 2 * self.drivers

    @cached_property
    def gram(self) -> int:
        """Return the offset of the sums of squares."""
        return self.ring + HISTORY * self.entry

    @cached_property
    def sums(self) -> int:
        """Return the offset of the sums of products."""
        return self.gram + self.features**2

    @cached_property
    def weights(self) -> int:
        """Return the offset of the solutions."""
        return self.sums + 2 * TARGETS * self.features

    @cached_property
    def factors(self) -> int:
        """Return the offset of the factors."""
        return self.weights + 2 * TARGETS * self.features

    @cached_property
    def now(self) -> int:
        """Return the offset of the quantiles forecast from the last reading, in watts above the reading."""
        return self.factors + TARGETS * len(QUANTILES)

    @cached_property
    def size(self) -> int:
        """Return the total number of floats."""
        return self.now + TARGETS * len(QUANTILES)
