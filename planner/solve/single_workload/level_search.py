"""P1 by lists: all units per class within a cost level, tested against the demand, for rising levels.

The cheapest combination on a complete list that carries the demand is the optimum.  If none does, the level is a bound
and the next level is higher.  Each feasibility test ends the search or gives a row, which shortens this list and later
ones.  A list above `MAX_CANDIDATES` is tried again at a lower level.  The work is limited; branch and bound continues
from the bound reached.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleet.solvers import Limits
from planner.solve.single_workload.bounds import SLACK, Projections
from planner.solve.single_workload.candidates import Box, list_candidates
from planner.solve.single_workload.feasibility import FeasibilityTest, OutOfTimeError, Row, row_at
from planner.solve.single_workload.presolve import Classes
from planner.solve.single_workload.table import Floats

FIRST_STEP = 0.25  # part of the gap
RAISED, LOWERED = 3.0, 0.3  # the factor on the step after a complete list, and after an incomplete one
MAX_LISTS, LIST_S = 20, 0.05  # their number, and the time assumed for one: the planner's pure code has no clock
MAX_TESTS, TEST_S = 120, 0.005
MAX_TESTS_OF_SAMPLE = 8  # of a list that is not complete
MAX_CANDIDATES = 40_000  # combinations at once


@dataclass(frozen=True, slots=True)
class LevelResult:
    """The best counts found, if any, and a bound; `is_complete`: no better counts exist."""

    counts: Floats | None
    bound_usd_per_h: float
    is_complete: bool


class LevelSearch:
    """One presolved table, and the rows found for it."""

    def __init__(self, classes: Classes, projections: Projections, prices: Floats, *, limits: Limits) -> None:
        self._classes, self._projections = classes, projections
        self._rows: list[Row] = [row_at(classes.units, prices)]
        self._prices, self._limits = np.maximum(prices, classes.cheapest_usd_per_h), limits
        self._lists_left = min(MAX_LISTS, int(limits.time_limit_s / 2 / LIST_S))
        self._tests_left = min(MAX_TESTS, int(limits.time_limit_s / 2 / TEST_S))

    @cached_property
    def _service(self) -> FeasibilityTest:
        return FeasibilityTest(self._classes.units, self._prices, limits=self._limits)

    def run(self, *, bound_usd_per_h: float, target_usd_per_h: float, below: Callable[[float], float]) -> LevelResult:
        """The cheapest mix within the target; `below` gives the next target after a mix of some cost."""
        best: Floats | None = None
        bound, target = bound_usd_per_h, target_usd_per_h
        step = FIRST_STEP * (target - bound)
        for _ in range(self._lists_left):
            level = min(target, bound + step)
            try:
                found = self._cheapest(level)
            except OutOfTimeError:
                break
            if found is None or (found.counts is not None and found.is_complete):
                return found or LevelResult(best, bound, is_complete=False)
            if found.counts is not None:
                best, target = found.counts, below(found.bound_usd_per_h)
            bound, step = (max(bound, level), step * RAISED) if found.is_complete else (bound, step * LOWERED)
            if bound >= target:
                return LevelResult(best, bound, is_complete=True)
        return LevelResult(best, bound, is_complete=False)

    def _cheapest(self, level: float) -> LevelResult | None:
        """The cheapest mix up to a level, or of a sample; None if no tests are left."""
        least, most = self._projections.ranges(level * (1 + SLACK))
        if np.any(least > most):
            return LevelResult(None, level, is_complete=True)
        candidates = list_candidates(
            Box(self._classes, least, most), self._rows, at_most_usd_per_h=level, max_combinations=MAX_CANDIDATES
        )
        counts, costs = candidates.counts, candidates.cost_usd_per_h
        tested = 0
        while len(counts) and (candidates.is_complete or tested < MAX_TESTS_OF_SAMPLE):
            if tested >= self._tests_left:
                return None
            tested += 1
            row = self._service.violated_row(counts[0])
            if row is None:
                return LevelResult(counts[0], float(costs[0]), candidates.is_complete)
            self._rows.append(row)
            kept = counts @ row.weights >= row.least
            counts, costs = counts[kept], costs[kept]
        self._tests_left -= tested
        return LevelResult(None, level, candidates.is_complete)
