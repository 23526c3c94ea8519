"""The fast method finds the optimum of the other methods, and its bound is never above it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given

from fleet.solvers import Limits, Solver, SolveStatus, run
from planner.objectives import ENERGY
from planner.problem import Change, Limit, LimitKind, Load, Loss, MixProblem, Supply
from planner.solve import ilp, single_workload
from planner.solve.dispatch import solve_mix
from planner.solve.fixed_counts import route
from planner.solve.single_workload.initial_solution import initial_mix
from planner.solve.single_workload.table import presolved
from tests.planner.mixes import RoutedOption, mix_of
from tests.planner.solve.single_workload.tables import cheapest_by_trying, plain_problems

LIMITS = Limits(time_limit_s=20)


def table_of(problem: MixProblem) -> single_workload.Table:
    tables = single_workload.tables_of(problem, routes=range(len(problem.routes)))
    assert tables is not None
    return tables[0]


def random_problem(*, seed: int, options: int = 12, buckets: int = 20, rate_rps: float = 100.0) -> MixProblem:
    """Options that differ in every rate at similar cost per request."""
    generator = np.random.default_rng(seed)
    prices = np.round(generator.uniform(1, 9, options), 2)
    speed = generator.uniform(2, 20, buckets)
    ways = tuple(
        RoutedOption(
            f"o{o}",
            "gpu",
            0,
            o,
            tuple(float(rate) for rate in prices[o] * generator.lognormal(0, 0.2, buckets) * speed),
        )
        for o in range(options)
    )
    demand = tuple(float(rate) for rate in rate_rps * generator.dirichlet(np.ones(buckets)))
    return mix_of((Load("w", demand),), tuple(Supply(f"f{o}", float(p)) for o, p in enumerate(prices)), ways)


class TestOptimum:
    @given(plain_problems(max_options=3))
    def test_the_cost_matches_exhaustive_search(self, problem: MixProblem) -> None:
        table = table_of(problem)
        most = np.where(np.isfinite(table.units), table.units, 0.0).sum(axis=1)
        assume(float(np.prod(np.minimum(most, table.stock) + 1)) < 300)
        mix, expected = single_workload.cheapest(table, limits=LIMITS), cheapest_by_trying(table)
        if expected is None:
            assert mix.outcome.status is SolveStatus.INFEASIBLE
        else:
            assert mix.outcome.status is SolveStatus.OPTIMAL
            assert table.cost_usd_per_h(mix.units) == pytest.approx(expected, rel=1e-7)

    @given(plain_problems(max_options=5))
    def test_the_search_matches_the_ilp_formulation_and_cbc(self, problem: MixProblem) -> None:
        mine = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        model = ilp.cheapest(problem, routes=range(len(problem.routes)))
        outcome = run(model.program, solver=Solver.HIGHS, limits=LIMITS)
        cbc = solve_mix(problem, solver=Solver.CBC, limits=LIMITS)
        assert mine.status is outcome.status is cbc.status
        if mine.cost_usd_per_h is not None:
            named = problem.cost_usd_per_h(model.counts_of_units())
            assert mine.cost_usd_per_h == pytest.approx(named, rel=1e-6)
            assert mine.cost_usd_per_h == pytest.approx(cbc.cost_usd_per_h, rel=1e-6)
            assert mine.bound <= named * (1 + 1e-9)

    @pytest.mark.parametrize("rate_rps", [3.0, 30.0, 300.0, 3000.0])
    def test_many_similar_options_reach_the_optimum(self, rate_rps: float) -> None:
        problem = random_problem(seed=int(rate_rps), options=8, buckets=12, rate_rps=rate_rps)
        model = ilp.cheapest(problem, routes=range(len(problem.routes)))
        run(model.program, solver=Solver.HIGHS, limits=LIMITS)
        mine = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        assert mine.status is SolveStatus.OPTIMAL
        assert mine.cost_usd_per_h == pytest.approx(problem.cost_usd_per_h(model.counts_of_units()), abs=1e-6)
        assert mine.bound == pytest.approx(mine.cost_usd_per_h, abs=1e-5)

    @given(plain_problems(max_options=4), plain_problems(max_options=4))
    def test_independent_workloads_cost_the_sum_of_their_costs(self, one: MixProblem, other: MixProblem) -> None:
        problem = together(one, other)
        both = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        alone = [solve_mix(part, solver=Solver.HIGHS, limits=LIMITS).cost_usd_per_h for part in (one, other)]
        if alone[0] is None or alone[1] is None:
            assert both.status is SolveStatus.INFEASIBLE
        else:
            assert both.cost_usd_per_h == pytest.approx(alone[0] + alone[1])


class TestInitialMix:
    @given(plain_problems(max_options=5))
    def test_the_initial_mix_carries_the_demand(self, problem: MixProblem) -> None:
        table = table_of(problem)
        assume(len(table.buckets) > 0)
        classes = presolved(table)
        assume(len(classes.units) > 0 and bool(np.isfinite(classes.units).any(axis=0).all()))
        units = initial_mix(classes, classes.cheapest_usd_per_h)
        assume(units is not None)
        assert units is not None
        assert np.all(units <= classes.stock)
        counts = np.zeros(len(table.stock), dtype=int)
        counts[classes.offer_option] = units
        route(problem, replicas=tuple(int(count) for count in counts))  # raises if the demand is not carried


class TestLimits:
    def test_a_wider_gap_still_bounds_the_optimum(self) -> None:
        table = table_of(random_problem(seed=5, options=8, buckets=12))
        best = single_workload.cheapest(table, limits=LIMITS)
        loose = single_workload.cheapest(table, limits=replace(LIMITS, relative_gap=0.05))
        cost, optimum = table.cost_usd_per_h(loose.units), table.cost_usd_per_h(best.units)
        assert loose.outcome.bound <= optimum + 1e-6 <= cost + 2e-6
        assert cost - loose.outcome.bound <= 0.05 * cost + 1e-6

    def test_without_time_the_initial_mix_is_returned_with_its_gap(self) -> None:
        table = table_of(random_problem(seed=1, options=70, buckets=60))
        rushed = single_workload.cheapest(table, limits=Limits(time_limit_s=1e-6))
        assert rushed.outcome.status is SolveStatus.FEASIBLE
        cost = table.cost_usd_per_h(rushed.units)
        assert 0.5 * cost < rushed.outcome.bound < cost
        route(random_problem(seed=1, options=70, buckets=60), replicas=tuple(int(n) for n in rushed.units))


class TestChoiceOfSolver:
    def test_problems_with_more_than_one_table_use_the_ilp_formulation(self) -> None:
        problem = random_problem(seed=0, options=2, buckets=2)
        assert single_workload.tables_of(problem, routes=[0, 1]) is not None
        shared = replace(problem, options=tuple(replace(option, supply=0) for option in problem.options))
        others = (
            shared,
            replace(problem, objective=ENERGY),
            replace(problem, limits=(Limit("budget", LimitKind.BUDGET, 9.0, units={0: 1.0}),)),
            replace(problem, losses=(Loss("node", {0: 1}),)),
            replace(problem, change=Change(max_started=1)),
            replace(problem, erring_buckets=1),
            replace(problem, loads=(replace(problem.loads[0], min_replicas=2),)),
            replace(problem, supplies=tuple(replace(supply, price_usd_per_h=0.0) for supply in problem.supplies)),
        )
        assert [single_workload.tables_of(other, routes=[0, 1]) for other in others] == [None] * len(others)


def together(one: MixProblem, other: MixProblem) -> MixProblem:
    """Both in one problem, side by side."""
    shift = len(one.options)
    options = tuple(replace(option, supply=option.supply + shift) for option in other.options)
    routes = tuple(
        replace(way, load=1, legs=tuple(replace(leg, option=leg.option + shift) for leg in way.legs))
        for way in other.routes
    )
    return MixProblem(
        loads=(*one.loads, *other.loads),
        supplies=(*one.supplies, *other.supplies),
        options=(*one.options, *options),
        routes=(*one.routes, *routes),
    )
