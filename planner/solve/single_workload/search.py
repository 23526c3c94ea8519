"""P1 of one workload.

1. `presolve` merges and removes options.  2. `bounds` gives a lower bound from the relaxation's prices.
3. `initial_solution` finds a mix.  If the two differ by less than the step of all costs, the mix is proven.
4. Otherwise the bounds give the counts that a cheaper mix may have.  If there are few, `level_search` lists the mixes
and finds the cheapest.  5. If there are many, HiGHS continues from the mix and the bound.

Step 5 runs twice: first for mixes that close at most part of the gap, which leaves far fewer counts.  If one exists,
the cheapest of them is the optimum; otherwise the result is a better bound.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleet.solvers import Limits, Outcome, SolveStatus
from planner.solve.single_workload import program
from planner.solve.single_workload.bounds import SLACK, Projections, projections
from planner.solve.single_workload.initial_solution import initial_mix, offers_of
from planner.solve.single_workload.level_search import LevelSearch
from planner.solve.single_workload.presolve import Classes, presolved
from planner.solve.single_workload.table import Floats, Table

AIMS = (0.45, 1.0)  # parts of the gap; the optimum is about as often in its lower half as in its upper


@dataclass(frozen=True, slots=True)
class Mix:
    """Units per option of a table, and what is proven about them."""

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
    state = _State(initial_mix(classes, prices), max(0.0, found.bound_usd_per_h * (1 - SLACK)), ended=True)
    if state.units is None:
        return _answer(table, classes, _proven_by_initial_mix(classes, state, limits))
    each = replace(limits, time_limit_s=limits.time_limit_s / (1 + len(AIMS)))
    state = _searched_by_level(table, classes, found, state, prices=prices, limits=each)
    for aim in AIMS:
        state = _improved(table, classes, found, state, aim=aim, limits=each)
    return _answer(table, classes, state)


@dataclass(frozen=True, slots=True)
class _State:
    """The best units per offer so far, the bound, and whether the last HiGHS run ended."""

    units: npt.NDArray[np.int64] | None
    bound: float
    ended: bool


def _prices(classes: Classes, limits: Limits) -> Floats | None:
    if not np.isfinite(classes.stock).any():
        return classes.unlimited_usd_per_h
    return program.capacity_prices(classes, limits=limits)


def _proven_by_initial_mix(classes: Classes, state: _State, limits: Limits) -> _State:
    """HiGHS on everything, if the beam found no mix, mostly because stock is scarce."""
    everything = np.zeros(len(classes.units)), np.full(len(classes.units), np.inf)
    run = program.cheapest(classes, everything, start=None, limits=limits)
    return _State(run.units, max(state.bound, run.bound_usd_per_h), run.ended)


def _searched_by_level(
    table: Table, classes: Classes, found: Projections, state: _State, *, prices: Floats, limits: Limits
) -> _State:
    """The optimum if the better mixes can be listed; else the bound and mix that lists of some of them give."""
    if state.units is None:
        return state
    cost = float(state.units @ classes.price_usd_per_h)
    target, _ = _target(table, cost, limits)
    if state.bound >= target:
        return state
    least, most = found.ranges(target * (1 + SLACK))
    kept = np.flatnonzero(most > 0)
    left, inside = classes.only(kept), np.isin(classes.offer_class, kept)
    if np.any(least > most) or not np.isfinite(left.units).any(axis=0).all():
        return replace(state, bound=max(state.bound, target))
    sieve = LevelSearch(left, found.only(kept), prices[kept], limits=limits)
    run = sieve.run(
        bound_usd_per_h=state.bound,
        target_usd_per_h=target,
        below=lambda cost_usd_per_h: _target(table, cost_usd_per_h, limits)[0],
    )
    units = state.units
    if run.counts is not None:
        units = np.zeros(len(classes.stock), dtype=np.int64)
        units[inside] = offers_of(left, run.counts)
    return replace(state, units=units, bound=max(state.bound, run.bound_usd_per_h))


def _improved(
    table: Table, classes: Classes, found: Projections, state: _State, *, aim: float, limits: Limits
) -> _State:
    """HiGHS on the counts of mixes that cost at most a part of the way from the bound to the best known cost."""
    if state.units is None:
        return state
    cost = float(state.units @ classes.price_usd_per_h)
    target, beyond = _target(table, cost, limits)
    if state.bound >= target:
        return replace(state, ended=True)
    most_usd_per_h = target if aim == 1 else state.bound + aim * (target - state.bound)
    outside = beyond if aim == 1 else most_usd_per_h  # a lower bound on every mix with other counts
    least, most = found.ranges(most_usd_per_h * (1 + SLACK))
    kept = np.flatnonzero(most > 0)
    left, inside = classes.only(kept), np.isin(classes.offer_class, kept)
    if np.any(least > most) or not np.isfinite(left.units).any(axis=0).all():
        return _State(state.units, max(state.bound, outside), ended=True)
    start = state.units[inside] if aim == 1 else None
    run = program.cheapest(left, (least[kept], most[kept]), start=start, limits=limits)
    units = state.units
    if run.units is not None and float(run.units @ left.price_usd_per_h) < cost:
        units = np.zeros(len(classes.stock), dtype=np.int64)
        units[inside] = run.units
    bound = max(state.bound, min(outside, run.bound_usd_per_h))
    return _State(units, bound, run.ended)


def _target(table: Table, cost: float, limits: Limits) -> tuple[float, float]:
    """The highest relevant cost of a mix, and a lower bound on every dearer one."""
    if table.step_usd_per_h and not limits.relative_gap:
        return cost - table.step_usd_per_h * (1 - 1e-3), cost
    target = cost * (1 - max(SLACK, limits.relative_gap))
    return target, target


def _answer(table: Table, classes: Classes, state: _State) -> Mix:
    if state.units is None:
        status = SolveStatus.INFEASIBLE if state.ended else SolveStatus.TIME_LIMIT
        return _mix(table, status, np.inf if state.ended else state.bound)
    cost = float(state.units @ classes.price_usd_per_h)
    counts = np.zeros(len(table.stock), dtype=np.int64)
    counts[classes.offer_option] = state.units
    status = SolveStatus.OPTIMAL if state.ended else SolveStatus.FEASIBLE
    return _mix(table, status, _lifted(table, min(state.bound, cost), cost), counts)


def _lifted(table: Table, bound: float, cost: float) -> float:
    """A bound rounded up to the step of all costs."""
    step = table.step_usd_per_h
    return min(cost, np.ceil(bound / step - 1e-6) * step if step else bound)


def _mix(table: Table, status: SolveStatus, bound: float, units: npt.NDArray[np.int64] | None = None) -> Mix:
    counts = np.zeros(len(table.stock), dtype=np.int64) if units is None else units
    return Mix(Outcome(status, bound), counts)
