"""`solve_mix`: optimal, within every limit, and equal for both solvers."""

from dataclasses import replace
from itertools import product
from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.solvers import Limits, Solver, SolveStatus, run
from planner.objectives import SERVED
from planner.problem import Limit, LimitKind, Load, MixProblem, Supply
from planner.solve import ilp
from planner.solve.dispatch import DECOMPOSED_LOADS, solve_mix
from planner.solve.solution import MixSolution
from tests.planner.mixes import RoutedOption, cheapest_by_trying, mix_of, mix_problems, reached_by
from tests.planner.small_problems import three_types

LIMITS = Limits(time_limit_s=20)
PATIENCE_S = 20.0  # generous on a busy machine; a solver that ignores its limit takes minutes


def cost(problem: MixProblem, *, solver: Solver = Solver.HIGHS) -> float | None:
    return solve_mix(problem, solver=solver, limits=LIMITS).cost_usd_per_h


def two_by_two(*, available: tuple[int | None, int | None] = (None, None), rate_rps: float = 30.0) -> MixProblem:
    """A small GPU at 1 $/h and a large one at 4 $/h, four buckets of unequal weight."""
    return mix_of(
        loads=(Load("chat", tuple(rate_rps * share for share in (0.2, 0.1, 0.5, 0.2))),),
        supplies=(Supply("small", 1.0, available=available[0]), Supply("large", 4.0, available=available[1])),
        ways=(
            RoutedOption("small", "L4", 0, 0, (2.0, 1.0, 5.0, 0.0)),
            RoutedOption("large", "H100", 0, 1, (20.0, 20.0, 40.0, 20.0)),
        ),
    )


class TestCheapest:
    @given(mix_problems(max_units=2))
    def test_the_cost_matches_exhaustive_search(self, problem: MixProblem) -> None:
        solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        expected = cheapest_by_trying(problem)
        if expected is None:
            assert solution.status is SolveStatus.INFEASIBLE
        else:
            assert solution.status is SolveStatus.OPTIMAL
            assert solution.cost_usd_per_h == pytest.approx(expected, abs=1e-9)

    @given(mix_problems(max_units=None) | mix_problems(max_units=6))
    def test_both_solvers_agree(self, problem: MixProblem) -> None:
        highs, cbc = (solve_mix(problem, solver=solver, limits=LIMITS) for solver in Solver)
        assert highs.status is cbc.status
        assert highs.cost_usd_per_h == pytest.approx(cbc.cost_usd_per_h, abs=1e-6)

    @given(mix_problems(max_units=None) | mix_problems(max_units=6))
    def test_every_constraint_of_the_formulation_holds(self, problem: MixProblem) -> None:
        solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        if solution.status.has_mix:
            assert_within_limits(problem, solution)
            assert solution.bound == pytest.approx(solution.cost_usd_per_h, abs=1e-6)

    @given(mix_problems(max_units=None), st.floats(1.0, 3.0))
    def test_more_demand_never_lowers_the_cost(self, problem: MixProblem, factor: float) -> None:
        loads = tuple(replace(load, rate_rps=tuple(factor * rate for rate in load.rate_rps)) for load in problem.loads)
        before, after = cost(problem), cost(replace(problem, loads=loads))
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            assert after >= before - 1e-9

    @given(mix_problems(max_units=4), st.integers(0, 3))
    def test_more_stock_never_raises_the_cost(self, problem: MixProblem, more: int) -> None:
        supplies = tuple(replace(supply, available=(supply.available or 0) + more) for supply in problem.supplies)
        before, after = cost(problem), cost(replace(problem, supplies=supplies))
        if before is not None:
            assert after is not None
            assert after <= before + 1e-9

    def test_a_fully_loaded_replica_with_rounding_error_counts_as_one(self) -> None:
        tenth = Load("w", (0.1, 0.2))  # 0.1 + 0.2 > 0.3 in binary floating point
        problem = mix_of((tenth,), (Supply("f", 1.0),), (RoutedOption("o", "L4", 0, 0, (0.3, 0.3)),))
        assert solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS).replicas == (1,)

    @given(
        st.lists(st.floats(-9, 6).map(lambda power: 10.0**power), min_size=3, max_size=3),
        st.lists(st.lists(st.floats(-3, 5), min_size=3, max_size=3), min_size=2, max_size=2),
    )
    def test_no_demand_is_lost_at_any_magnitude(self, rates: list[float], powers: list[list[float]]) -> None:
        tables = [tuple(max(10.0**power, rate / 1e5) for power, rate in zip(row, rates, strict=True)) for row in powers]
        problem = mix_of(
            (Load("w", tuple(rates)),),
            (Supply("f0", 1.0), Supply("f1", 3.7)),
            tuple(RoutedOption(f"o{f}", f"g{f}", 0, f, table) for f, table in enumerate(tables)),
        )
        solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        assert solution.status.has_mix
        assert_within_limits(problem, solution)

    def test_the_same_problem_gets_the_same_solution(self) -> None:
        problem = two_by_two(rate_rps=137.0)
        first, second = (solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS) for _ in range(2))
        assert first == second


class TestSpare:
    def test_unneeded_free_units_are_not_hired(self) -> None:
        problem = mix_of(
            (Load("w", (3.0,)),), (Supply("owned", 0.0, available=50),), (RoutedOption("o", "L4", 0, 0, (1.0,)),)
        )
        solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        assert (solution.units, solution.replicas, solution.cost_usd_per_h) == ((3,), (3,), 0.0)

    def test_a_hired_instance_runs_only_the_replicas_it_needs(self) -> None:
        problem = mix_of(
            (Load("w", (3.0,)),), (Supply("node", 20.0, slots=8),), (RoutedOption("o", "H100", 0, 0, (1.0,)),)
        )
        solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        assert (solution.units, solution.replicas) == ((1,), (3,))

    def test_workloads_share_an_instance(self) -> None:
        loads = (Load("a", (2.0,)), Load("b", (1.0,)))
        options = (
            RoutedOption("a/tp2", "H100", 0, 0, (1.0,), slots=2),
            RoutedOption("b/tp4", "H100", 1, 0, (1.0,), slots=4),
        )
        problem = mix_of(loads, (Supply("node", 20.0, slots=8),), options)
        solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        assert (solution.units, solution.replicas) == ((1,), (2, 1))


class TestRouting:
    def test_equal_replicas_are_equally_busy(self) -> None:
        options = tuple(RoutedOption(f"o{f}", "L4", 0, f, (1.0, 1.0)) for f in range(2))
        problem = mix_of((Load("w", (0.9, 0.6)),), tuple(Supply(f"f{f}", 1.0, available=1) for f in range(2)), options)
        assert solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS).busy == pytest.approx((0.75, 0.75))

    def test_a_workload_without_demand_gets_only_its_minimum(self) -> None:
        problem = replace(two_by_two(), loads=(Load("idle", (0.0, 0.0, 0.0, 0.0), min_replicas=2),))
        solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        assert (solution.replicas, solution.shares, solution.cost_usd_per_h) == ((2, 0), {}, 2.0)


class TestLimits:
    def test_demand_beyond_the_stock_is_infeasible(self) -> None:
        solution = solve_mix(two_by_two(available=(9, 0)), solver=Solver.HIGHS, limits=LIMITS)
        assert solution.status is SolveStatus.INFEASIBLE
        assert (solution.cost_usd_per_h, solution.bound, solution.replicas) == (None, float("inf"), (0, 0))

    @pytest.mark.parametrize("solver", list(Solver))
    def test_without_time_there_is_a_bound_but_no_mix(self, solver: Solver) -> None:
        solution = solve_mix(coupled(hard()), solver=solver, limits=Limits(time_limit_s=1e-6))
        assert (solution.status, solution.cost_usd_per_h) == (SolveStatus.TIME_LIMIT, None)
        assert 0 <= solution.bound < float("inf")

    @pytest.mark.parametrize("solver", list(Solver))
    def test_an_expired_time_limit_returns_the_best_mix_with_its_gap(self, solver: Solver) -> None:
        problem = hard()
        solution = solve_mix(problem, solver=solver, limits=Limits(time_limit_s=2.0))
        assert solution.status is SolveStatus.FEASIBLE
        assert solution.cost_usd_per_h is not None
        assert 0 < solution.bound < solution.cost_usd_per_h
        assert_within_limits(problem, solution)

    @pytest.mark.parametrize("solver", list(Solver))
    def test_a_wider_gap_still_bounds_the_optimum(self, solver: Solver) -> None:
        problem = two_by_two(rate_rps=211.0)
        exact = cost(problem)
        assert exact is not None
        loose = solve_mix(problem, solver=solver, limits=Limits(time_limit_s=20, relative_gap=0.2))
        assert loose.cost_usd_per_h is not None
        assert loose.bound <= exact + 1e-6
        assert exact <= loose.cost_usd_per_h + 1e-6 <= exact / 0.8 + 1e-5


@pytest.mark.parametrize("rate_rps", [3000.0, 30_000.0])
def test_a_large_fleet_on_tight_stock_keeps_the_time_limit(rate_rps: float) -> None:
    problem = three_types(stock=(None, 300, 100), rate_rps=rate_rps)
    started_s = process_time()
    solution = solve_mix(problem, solver=Solver.HIGHS, limits=Limits(time_limit_s=2.0))
    assert process_time() - started_s < 2.5
    assert solution.status.has_mix or solution.status is SolveStatus.INFEASIBLE
    if solution.status.has_mix:
        assert_within_limits(problem, solution)


def many(*, loads: int) -> MixProblem:
    """Workloads on two GPU types, with a scarce better one."""
    random = Random(loads)
    supplies = (Supply("small", 1.0, available=40 * loads), Supply("large", 3.5, available=2 * loads))
    ways = tuple(
        RoutedOption(f"w{w}/f{f}", f"g{f}", w, f, tuple((1.0, 6.0)[f] * random.uniform(0.5, 1.5) for _ in range(3)))
        for w in range(loads)
        for f in range(2)
    )
    rates = (tuple(random.uniform(1, 6) for _ in range(3)) for _ in range(loads))
    return mix_of(tuple(Load(f"w{w}", rate) for w, rate in enumerate(rates)), supplies, ways)


@pytest.mark.parametrize("loads", [2, DECOMPOSED_LOADS])
def test_few_and_many_workloads_on_one_stock_reach_the_optimum(loads: int) -> None:
    problem = many(loads=loads)
    solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
    whole = ilp.cheapest(problem, routes=range(len(problem.routes)))
    assert run(whole.program, solver=Solver.HIGHS, limits=LIMITS).status is SolveStatus.OPTIMAL
    assert solution.cost_usd_per_h == pytest.approx(problem.cost_usd_per_h(whole.counts_of_units()), rel=1e-6)
    assert_within_limits(problem, solution)


@pytest.mark.parametrize("time_limit_s", [0.05, 0.5])
def test_all_solver_runs_share_the_time_limit(time_limit_s: float) -> None:
    problem = replace(coupled(hard()), objective=SERVED)
    started_s = process_time()
    solve_mix(problem, solver=Solver.HIGHS, limits=Limits(time_limit_s=time_limit_s))
    assert process_time() - started_s < 1.1 * time_limit_s + 1.0  # building two programs comes on top


@pytest.mark.parametrize("solver", list(Solver))
def test_solvers_print_nothing(solver: Solver, capfd: pytest.CaptureFixture[str]) -> None:
    for problem in (two_by_two(), two_by_two(available=(0, 0)), two_by_two(rate_rps=0.0)):
        solve_mix(problem, solver=solver, limits=LIMITS)
    assert capfd.readouterr() == ("", "")


def coupled(problem: MixProblem) -> MixProblem:
    """The same with a budget that does not bind, so that the MIP solves it."""
    weights = {f: supply.price_usd_per_h for f, supply in enumerate(problem.supplies)}
    return replace(problem, limits=(Limit("budget", LimitKind.BUDGET, 1e6, units=weights),))


def hard() -> MixProblem:
    """Seventy options with unrelated rates: not proven optimal within seconds."""
    random = Random(1)
    size = [random.uniform(1, 20) for _ in range(60)]
    prices = [random.uniform(0.5, 8) for _ in range(70)]
    return mix_of(
        loads=(Load("w", tuple(random.uniform(1, 30) for _ in size)),),
        supplies=tuple(Supply(f"f{o}", price) for o, price in enumerate(prices)),
        ways=tuple(
            RoutedOption(f"o{o}", f"g{o}", 0, o, tuple(price * random.uniform(3, 12) / tokens for tokens in size))
            for o, price in enumerate(prices)
        ),
    )


def assert_within_limits(problem: MixProblem, solution: MixSolution) -> None:
    """Check the rows of docs/explanation/planner/formulation.md, section 3, from the solution alone."""
    for w, b in product(range(len(problem.loads)), range(len(problem.loads[0].rate_rps))):
        shares = {o: x for (o, c), x in solution.shares.items() if c == b and problem.routes[o].load == w}
        assert all(x > 0 and reached_by(problem)[o][1][b] > 0 for o, x in shares.items())
        assert sum(shares.values()) == pytest.approx(1.0 if problem.loads[w].rate_rps[b] > 0 else 0.0)
    for o, count in enumerate(solution.replicas):
        busy = sum(
            x * problem.busy_per_share(problem.routes[o], problem.routes[o].legs[0], b)
            for (p, b), x in solution.shares.items()
            if p == o
        )
        assert busy <= problem.loads[problem.routes[o].load].utilisation * count * (1 + 1e-6)
    for f, supply in enumerate(problem.supplies):
        taken = sum(
            n * option.slots for n, option in zip(solution.replicas, problem.options, strict=True) if option.supply == f
        )
        assert taken <= supply.slots * solution.units[f]
        assert supply.available is None or solution.units[f] <= supply.available
    for w, load in enumerate(problem.loads):
        running = sum(solution.replicas[o] for o in problem.options_of(w))
        assert running >= load.min_replicas
