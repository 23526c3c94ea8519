"""P1 of one workload.

1. `presolve` merges and removes options.  2. `bounds` gives a lower bound from the relaxation's prices.
3. `initial_solution` finds a mix.  If the two differ by less than the step of all costs, the mix is proven.
4. Otherwise the bounds give the counts that a cheaper mix may have.  If there are few, `LevelSearch` lists the mixes
and finds the cheapest.  5. If there are many, HiGHS continues from the mix and the bound.

Step 5 runs twice: first for mixes that close at most part of the gap, which leaves far fewer counts.  If one exists,
the cheapest of them is the optimum; otherwise the result is a better bound.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fleet.solvers import Limits, Outcome, SolveStatus
from planner.solve.single_workload import program
from planner.solve.single_workload.bounds import SLACK, Projections, projections
from planner.solve.single_workload.candidates import Box, list_candidates
from planner.solve.single_workload.initial_solution import initial_mix, offers_of
from planner.solve.single_workload.program import FeasibilityTest, Found, OutOfTimeError, Row, row_at
from planner.solve.single_workload.table import Classes, Floats, Table, presolved

FIRST_STEP = 0.25  # part of the gap
RAISED, LOWERED = 3.0, 0.3  # the factor on the step after a complete list, and after an incomplete one
MAX_LISTS, LIST_S = 20, 0.05  # their number, and the time assumed for one: the planner's pure code has no clock
MAX_TESTS, TEST_S = 120, 0.005
MAX_TESTS_OF_SAMPLE = 8  # of a list that is not complete
MAX_CANDIDATES = 40_000  # combinations at once
AIMS = (0.45, 1.0)  # parts of the gap; the optimum is about as often in its lower half as in its upper


@dataclass(frozen=True, slots=True)
class Mix:
    outcome: Outcome
    units: npt.NDArray[np.int64]


def cheapest(table: Table, *, limits: Limits) -> Mix:
    """The cheapest units that carry a workload; no units without demand."""
    if not len(table.buckets):
        return _mix(table, SolveStatus.OPTIMAL, 0.0)
    classes = presolved(table)
    if not np.isfinite(classes.units).any(axis=0).all():
        return _mix(table, SolveStatus.INFEASIBLE, np.inf)
    prices = _prices(classes, limits)
    if prices is None:
        return _mix(table, SolveStatus.INFEASIBLE, np.inf)
    found = projections(classes, prices)
    state = Found(initial_mix(classes, prices), max(0.0, found.bound_usd_per_h * (1 - SLACK)), ended=True)
    if state.units is None:
        return _result(table, classes, _proven_by_initial_mix(classes, state, limits))
    each = replace(limits, time_limit_s=limits.time_limit_s / (1 + len(AIMS)))
    state = _searched_by_level(table, classes, found, state, prices=prices, limits=each)
    for aim in AIMS:
        state = _improved(table, classes, found, state, aim=aim, limits=each)
    return _result(table, classes, state)


def _prices(classes: Classes, limits: Limits) -> Floats | None:
    if not np.isfinite(classes.stock).any():
        return classes.unlimited_usd_per_h
    return program.capacity_prices(classes, limits=limits)


def _proven_by_initial_mix(classes: Classes, state: Found, limits: Limits) -> Found:
    """HiGHS on everything, if the beam found no mix, mostly because stock is scarce."""
    everything = np.zeros(len(classes.units)), np.full(len(classes.units), np.inf)
    run = program.cheapest(classes, everything, start=None, limits=limits)
    return replace(run, bound_usd_per_h=max(state.bound_usd_per_h, run.bound_usd_per_h))


def _searched_by_level(
    table: Table, classes: Classes, found: Projections, state: Found, *, prices: Floats, limits: Limits
) -> Found:
    """The optimum if the better mixes can be listed; else the bound and mix that lists of some of them give."""
    if state.units is None:
        return state
    cost = float(state.units @ classes.price_usd_per_h)
    target, _ = _target(table, cost, limits)
    if state.bound_usd_per_h >= target:
        return state
    least, most = found.ranges(target * (1 + SLACK))
    kept = np.flatnonzero(most > 0)
    left, inside = classes.only(kept), np.isin(classes.offer_class, kept)
    if np.any(least > most) or not np.isfinite(left.units).any(axis=0).all():
        return replace(state, bound_usd_per_h=max(state.bound_usd_per_h, target))
    sieve = LevelSearch(left, found.only(kept), prices[kept], limits=limits)
    run = sieve.run(
        bound_usd_per_h=state.bound_usd_per_h,
        target_usd_per_h=target,
        below=lambda cost_usd_per_h: _target(table, cost_usd_per_h, limits)[0],
    )
    units = state.units
    if run.counts is not None:
        units = np.zeros(len(classes.stock), dtype=np.int64)
        units[inside] = offers_of(left, run.counts)
    return replace(state, units=units, bound_usd_per_h=max(state.bound_usd_per_h, run.bound_usd_per_h))


def _improved(table: Table, classes: Classes, found: Projections, state: Found, *, aim: float, limits: Limits) -> Found:
    """HiGHS on the counts of mixes that cost at most a part of the way from the bound to the best known cost."""
    if state.units is None:
        return state
    cost = float(state.units @ classes.price_usd_per_h)
    target, beyond = _target(table, cost, limits)
    if state.bound_usd_per_h >= target:
        return replace(state, ended=True)
    max_usd_per_h = target if aim == 1 else state.bound_usd_per_h + aim * (target - state.bound_usd_per_h)
    outside = beyond if aim == 1 else max_usd_per_h  # a lower bound on every mix with other counts
    least, most = found.ranges(max_usd_per_h * (1 + SLACK))
    kept = np.flatnonzero(most > 0)
    left, inside = classes.only(kept), np.isin(classes.offer_class, kept)
    if np.any(least > most) or not np.isfinite(left.units).any(axis=0).all():
        return Found(state.units, max(state.bound_usd_per_h, outside), ended=True)
    start = state.units[inside] if aim == 1 else None
    run = program.cheapest(left, (least[kept], most[kept]), start=start, limits=limits)
    units = state.units
    if run.units is not None and float(run.units @ left.price_usd_per_h) < cost:
        units = np.zeros(len(classes.stock), dtype=np.int64)
        units[inside] = run.units
    bound = max(state.bound_usd_per_h, min(outside, run.bound_usd_per_h))
    return Found(units, bound, run.ended)


def _target(table: Table, cost: float, limits: Limits) -> tuple[float, float]:
    """The highest relevant cost of a mix, and a lower bound on every dearer one."""
    if table.step_usd_per_h and not limits.relative_gap:
        return cost - table.step_usd_per_h * (1 - 1e-3), cost
    target = cost * (1 - max(SLACK, limits.relative_gap))
    return target, target


def _result(table: Table, classes: Classes, state: Found) -> Mix:
    if state.units is None:
        status = SolveStatus.INFEASIBLE if state.ended else SolveStatus.TIME_LIMIT
        return _mix(table, status, np.inf if state.ended else state.bound_usd_per_h)
    cost = float(state.units @ classes.price_usd_per_h)
    counts = np.zeros(len(table.stock), dtype=np.int64)
    counts[classes.offer_option] = state.units
    status = SolveStatus.OPTIMAL if state.ended else SolveStatus.FEASIBLE
    return _mix(table, status, _lifted(table, min(state.bound_usd_per_h, cost), cost), counts)


def _lifted(table: Table, bound: float, cost: float) -> float:
    """A bound rounded up to the step of all costs."""
    step = table.step_usd_per_h
    return min(cost, np.ceil(bound / step - 1e-6) * step if step else bound)


def _mix(table: Table, status: SolveStatus, bound: float, units: npt.NDArray[np.int64] | None = None) -> Mix:
    counts = np.zeros(len(table.stock), dtype=np.int64) if units is None else units
    return Mix(Outcome(status, bound), counts)


@dataclass(frozen=True, slots=True)
class LevelResult:
    """The best counts found, if any, and a bound; `is_complete`: no better counts exist."""

    counts: Floats | None
    bound_usd_per_h: float
    is_complete: bool


class LevelSearch:
    """P1 by lists: all units per class within a cost level, tested against the demand, for rising levels.

    The cheapest combination on a complete list that carries the demand is the optimum.  If none does, the level is a
    bound and the next level is higher.  Each feasibility test ends the search or gives a row, which shortens this list
    and later ones.  A list above `MAX_CANDIDATES` is tried again at a lower level.
    """

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
