"""The cheapest counts that survive all failures: cuts are added until integer counts meet them, within one time limit.

Each program has a subset of all rows, so every bound is valid (Benders, 1962; for failures, column-and-constraint
generation: Zeng and Zhao, Solving two-stage robust optimization problems, 2013).

A good mix is first searched among few options.  Its cost bounds the replicas of each option in a cheaper mix
(`presolve`), mostly to 0; only the rest is searched to the end.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np
import numpy.typing as npt

from fleet.solvers import Deadline, Limits, Outcome, Solver, SolveStatus
from planner.problem import Loss, MixProblem
from planner.solve import ilp
from planner.solve.fixed_counts import survives, within_limits
from planner.solve.highs import LoadedProgram
from planner.solve.resilience import presolve
from planner.solve.resilience.scenarios import NOTHING_LOST, Scenarios, ViolatedCut

Floats = npt.NDArray[np.float64]
LOOSE = 1e-3  # replicas: the violation that a relaxation may leave, because its counts are not the result
MIN_GAIN = 1e-3  # relative: with a smaller gain of the relaxation, integer counts are solved
EXACT = 1e-7  # replicas: the violation that a result may leave
ROUNDS_SHARE = 0.85  # of the time; the rest is for repairs if no surviving counts were found
FIRST_SHARE = 0.3  # of the time, for a good mix among few options
FIRST_GAP = 2e-3  # relative gap of that mix
FEW = 6  # options in that mix, and half as many per zone
SEARCH_SHARE = 0.7  # of the remaining time, per run of the solver; the rest is for repairs
ALL_SCENARIOS = 40  # up to this number of scenarios, a new cut becomes a row of each at once
MANY_ROWS = 4000
NO_LOSS = Loss("nothing", {})
FEW_REPLICAS = 30  # below, the start is mostly optimal, and heuristics take most of the time


@dataclass(frozen=True)
class Found:
    """A model with the best counts in its variables, if any, and the proof."""

    model: ilp.MixModel
    outcome: Outcome


@dataclass
class CutRounds:
    model: ilp.MixModel
    scenarios: Scenarios
    solver: Solver
    deadline: Deadline
    serves_by_cuts: bool  # whether `service` rows, not shares, state that all demand is served
    best: Floats | None = None  # values of the program's variables
    best_value: float = float("inf")
    bound: float = -float("inf")
    ended: bool = False
    loaded: LoadedProgram = field(init=False)

    def __post_init__(self) -> None:
        self.loaded = LoadedProgram(self.model.program, seed=self.deadline.limits.seed)
        self._rows: set[tuple[int, int]] = set()

    def run(self, *, start: Sequence[int] | None = None) -> Found:
        if not self.scenarios.is_servable:
            return Found(self.model, Outcome(SolveStatus.INFEASIBLE, float("inf")))
        if start is not None:
            self._start(start)
        whole, self.deadline = self.deadline, self.deadline.part(ROUNDS_SHARE)
        self.relax()
        while not self.ended and not self.deadline.has_struck:
            self._round()
        self.deadline = whole
        if self.best is None and not self.ended:
            self._repair(self._counts(round_up=True))
        return self._found()

    def relax(self) -> None:
        last = -float("inf")
        while not self.deadline.has_struck:
            outcome = self.loaded.relax(self.deadline.rest())
            if outcome.status is SolveStatus.INFEASIBLE:
                self.bound, self.ended = float("inf"), True
            if outcome.status is not SolveStatus.OPTIMAL:
                return
            self.bound = max(self.bound, outcome.bound)
            if outcome.bound < last + MIN_GAIN * abs(last):
                return
            last = outcome.bound
            if not self._cut(self._relaxed_left(), tolerance=LOOSE):
                return

    def _round(self) -> None:
        size = sum(self.loaded.value(n) for n in self.model.replicas.values())
        heuristics = self.best is None or size > FEW_REPLICAS
        limits = self.deadline.rest(SEARCH_SHARE)
        outcome = self.loaded.optimise(self.solver, limits, start=self.best, heuristics=heuristics)
        self.bound = max(self.bound, outcome.bound)
        if outcome.status is SolveStatus.INFEASIBLE:
            self.ended = True
        elif outcome.status.has_mix:
            counts = self._counts()
            if self._keeps(counts):
                self.ended = outcome.status is SolveStatus.OPTIMAL
            elif outcome.status is not SolveStatus.OPTIMAL or self.best is None:
                self._repair(counts)
        if self.best is not None and self.bound >= self.best_value - self._gap():
            self.ended = True

    def _gap(self) -> float:
        return (self.deadline.limits.relative_gap + EXACT) * abs(self.best_value)

    def _keeps(self, counts: tuple[int, ...]) -> bool:
        left = self.scenarios.left(counts)
        if self._cut(left, tolerance=EXACT) or not _survives(self.model.problem, counts):
            return False
        value = sum(self.loaded.value(x) * weight for x, weight in ilp.objective_terms(self.model))
        if value < self.best_value:
            self.best, self.best_value = self.loaded.values, value
        return True

    def _start(self, counts: Sequence[int]) -> None:
        """Start from counts known to survive, if they meet the program's rows."""
        if self._between(counts, counts, self.deadline.rest()).status.has_mix:
            self._keeps(self._counts())

    def _repair(self, counts: Sequence[int]) -> None:
        while not self.deadline.has_struck:
            limits = replace(self.deadline.rest(0.5), relative_gap=max(FIRST_GAP, self.deadline.limits.relative_gap))
            if not self._between(counts, None, limits).status.has_mix:
                return
            grown = self._counts()
            if self._keeps(grown):
                return
            only_rounding = grown == tuple(counts)  # the counts violate no cut but by rounding
            counts = [n + 1 if n else 0 for n in counts] if only_rounding else grown

    def _between(self, least: Sequence[int], most: Sequence[int] | None, limits: Limits) -> Outcome:
        replicas = self.model.replicas
        low = np.array([float(least[o]) for o in replicas])
        high = None if most is None else np.array([float(most[o]) for o in replicas])
        return self.loaded.between(list(replicas.values()), low, high, limits)

    def _counts(self, *, round_up: bool = False) -> tuple[int, ...]:
        counts = [0] * len(self.model.problem.options)
        for o, n in self.model.replicas.items():
            counts[o] = ceil(self.loaded.value(n) - LOOSE) if round_up else round(self.loaded.value(n))
        return tuple(counts)

    def _relaxed_left(self) -> dict[int, Floats]:
        """The relaxation's counts without any loss and without each zone, by its own variables.

        Node losses are left out: the relaxation loses fractions of a node, which gives no cuts.
        """
        counts = np.zeros(len(self.model.problem.options))
        for o, n in self.model.replicas.items():
            counts[o] = self.loaded.value(n)
        left = {NOTHING_LOST: counts} if self.serves_by_cuts else {}
        for k, loss in self.scenarios.losses.items():
            if None in loss.lost.values():
                left[k] = self.scenarios.left(counts)[k]
        return left

    def _cut(self, left: Mapping[int, Floats], *, tolerance: float) -> int:
        if not self.serves_by_cuts:
            left = {k: counts for k, counts in left.items() if k != NOTHING_LOST}
        added = 0
        for broken in self.scenarios.broken(left, tolerance=tolerance):
            added += self._add(broken)
            if self.deadline.has_struck:
                break
        return added

    def add_prices(self, price: Floats, options: Sequence[int]) -> None:
        """The cut of known prices, as a row of every scenario."""
        prices = np.zeros(len(self.model.problem.options))
        prices[list(options)] = price
        if (position := self.scenarios.add_price(prices)) is not None:
            self.add_everywhere(position)

    def add_everywhere(self, position: int) -> int:
        scenarios = [*self.scenarios.losses, *([NOTHING_LOST] if self.serves_by_cuts else [])]
        return sum(self._add_row(k, position) for k in scenarios)

    def _add(self, broken: ViolatedCut) -> int:
        if len(self.scenarios.losses) <= ALL_SCENARIOS and len(self._rows) < MANY_ROWS:
            return self.add_everywhere(broken.position)
        return self._add_row(broken.scenario, broken.position)

    def _add_row(self, scenario: int, position: int) -> int:
        if (scenario, position) in self._rows:
            return 0
        self._rows.add((scenario, position))
        weights, need = self.scenarios.weights(self.scenarios.cuts.pool[position])
        if scenario == NOTHING_LOST:
            terms = ilp.add_service(self.model, position=position, weights=weights.tolist(), need=need)
        else:
            loss = self.scenarios.losses[scenario]
            terms = ilp.add_survivor_cut(
                self.model, scenario=scenario, loss=loss, position=position, weights=weights.tolist(), need=need
            )
        self.loaded.add_row(terms, need)
        return 1

    def _found(self) -> Found:
        if self.best is None:
            status = SolveStatus.INFEASIBLE if self.ended else SolveStatus.TIME_LIMIT
            bound = float("inf") if self.ended else self.bound
            return Found(self.model, Outcome(status, bound))
        self.loaded.write_back(self.best)
        status = SolveStatus.OPTIMAL if self.ended else SolveStatus.FEASIBLE
        return Found(self.model, Outcome(status, min(self.bound, self.best_value)))


def solve(problem: MixProblem, *, routes: Collection[int], solver: Solver, deadline: Deadline) -> Found:
    if presolve.applies(problem, routes):
        views = presolve.scenario_values(problem, routes=routes, limits=deadline.rest())
        if views:
            return _reduced(problem, views, solver, deadline)
    return _rounds(problem, routes, solver, deadline).run()


def _reduced(
    problem: MixProblem, views: Sequence[presolve.ScenarioValues], solver: Solver, deadline: Deadline
) -> Found:
    """First among few options, then among those that a cheaper mix may use."""
    valuation, zones = views[0].valuation, [view.zone for view in views[1:]]
    kept, most, start = presolve.undominated(problem, valuation), None, None
    simple = None if problem.limits else presolve.simple_mix(valuation, zones=zones)
    known = None if simple is None else tuple(simple.get(o, 0) for o in range(len(problem.options)))
    few = [r for r in presolve.candidates(views, max_count=FEW) if r in kept]
    if known is not None and _holds(problem, known):
        start = known
        kept, most = _may_be_cheaper(problem, views, kept, start)
        few = [r for r in few if r in kept]
    if len(few) < len(kept):
        part = deadline.part(FIRST_SHARE)
        loose = replace(part, limits=replace(part.limits, relative_gap=max(FIRST_GAP, part.limits.relative_gap)))
        options = {problem.routes[r].legs[0].option for r in few}
        inside = start is not None and all(o in options for o, n in enumerate(start) if n)
        found = _rounds(problem, few, solver, loose, views=views, most=most).run(start=start if inside else None)
        if found.outcome.status.has_mix:
            start = found.model.counts_of_replicas()
            kept, most = _may_be_cheaper(problem, views, kept, start)
    return _rounds(problem, kept, solver, deadline, views=views, most=most).run(start=start)


def _survives(problem: MixProblem, counts: tuple[int, ...]) -> bool:
    left = {loss.survivors(counts): loss for loss in problem.losses or (NO_LOSS,)}
    return all(survives(problem, loss, replicas=counts) for loss in left.values())


def _holds(problem: MixProblem, counts: tuple[int, ...]) -> bool:
    units = problem.units_of(counts, own_nodes=True)
    return within_limits(problem, units=units, replicas=counts) and _survives(problem, counts)


def _may_be_cheaper(
    problem: MixProblem, views: Sequence[presolve.ScenarioValues], routes: Sequence[int], counts: Sequence[int]
) -> tuple[list[int], dict[int, int]]:
    """Routes and counts of mixes at most this dear."""
    cost_usd_per_h = sum(
        supply.price_usd_per_h * units
        for supply, units in zip(problem.supplies, problem.units_of(counts, own_nodes=True), strict=True)
    )
    most = presolve.max_replicas(views, cutoff_usd_per_h=cost_usd_per_h, lost=_nodes(problem))
    return [r for r in routes if most[problem.routes[r].legs[0].option] > 0], most


def relaxed(problem: MixProblem, *, deadline: Deadline) -> ilp.MixModel:
    """P1 with the cuts of its LP relaxation."""
    rounds = _rounds(problem, range(len(problem.routes)), Solver.HIGHS, deadline)
    if rounds.scenarios.is_servable:
        rounds.relax()
    return rounds.model


def fewest_gpus(found: ilp.MixModel, *, ceiling: float, solver: Solver, deadline: Deadline) -> ilp.MixModel | None:
    """P2 on the units of P1; None if time runs out."""
    problem = found.problem
    by_cuts = _by_cuts(problem)
    model = ilp.fewest_gpus(
        problem,
        units=found.counts_of_units(),
        ceiling=ceiling,
        routes=found.routes,
        losses=_losses(problem, found.options),
        by_counts=by_cuts,
    )
    scenarios = Scenarios(problem, routes=model.routes, losses=_losses(problem, model.options))
    result = CutRounds(model, scenarios, solver, deadline, serves_by_cuts=by_cuts).run()
    return result.model if result.outcome.status.has_mix else None


def _rounds(
    problem: MixProblem,
    routes: Collection[int],
    solver: Solver,
    deadline: Deadline,
    *,
    views: Sequence[presolve.ScenarioValues] = (),
    most: Mapping[int, int] | None = None,
) -> CutRounds:
    options = sorted({leg.option for r in routes for leg in problem.routes[r].legs})
    losses = _losses(problem, options)
    by_cuts = _by_cuts(problem)
    model = ilp.cheapest(problem, routes=routes, losses=losses, by_counts=by_cuts, most=most)
    scenarios = Scenarios(problem, routes=routes, losses=losses)
    rounds = CutRounds(model, scenarios, solver, deadline, serves_by_cuts=by_cuts)
    rounds.bound = max((view.valuation.min_usd_per_h for view in views), default=-float("inf"))
    if scenarios.is_servable:
        for view in views:
            rounds.add_prices(presolve.prices_in(view, views[0].valuation), views[0].valuation.options)
    return rounds


def _by_cuts(problem: MixProblem) -> bool:
    """Whether counts alone decide: an objective independent of the routing, and no erring profiles."""
    return problem.objective.counts_price and not problem.objective.counts_power and not problem.erring_buckets


def _losses(problem: MixProblem, options: Collection[int]) -> dict[int, Loss]:
    """The failures that affect some of these options."""
    return {k: loss for k, loss in enumerate(problem.losses) if any(o in loss.lost for o in options)}


def _nodes(problem: MixProblem) -> dict[int, int]:
    """Per option, the most replicas that a partial failure takes."""
    lost: dict[int, int] = {}
    for loss in problem.losses:
        for o, count in loss.lost.items():
            if count is not None:
                lost[o] = max(lost.get(o, 0), count)
    return lost
