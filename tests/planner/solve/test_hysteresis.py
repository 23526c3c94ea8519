"""Hysteresis: the same request gets the same plan, and the running mix changes only for a sufficient saving."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.solvers import Limits, Solver, SolveStatus
from planner.problem import Limit, LimitKind, Load, Loss, MixProblem, Supply
from planner.solve.dispatch import solve_mix
from planner.solve.fixed_counts import keep_running, within_limits
from tests.planner.mixes import RoutedOption, mix_of, mix_problems

LIMITS = Limits(time_limit_s=20)


def holding(problem: MixProblem, *counts: int) -> MixProblem:
    options = tuple(replace(option, held=n) for option, n in zip(problem.options, counts, strict=True))
    return replace(problem, options=options)


def equal_pair(*, rate_rps: float = 3.0) -> MixProblem:
    """Two options that differ only in their names."""
    supplies = (Supply("f", 1.0, available=9), Supply("g", 1.0, available=9))
    ways = (RoutedOption("o", "L4", 0, 0, (1.0,)), RoutedOption("p", "L4", 0, 1, (1.0,)))
    return mix_of((Load("w", (rate_rps,)),), supplies, ways)


def kept_counts(problem: MixProblem, *, within: float) -> tuple[int, ...]:
    solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
    return keep_running(problem, solution, within=within).replicas


@pytest.mark.parametrize("counts", [(3, 0), (0, 3), (1, 2)])
def test_the_running_mix_stays_among_equally_good_ones(counts: tuple[int, int]) -> None:
    assert kept_counts(holding(equal_pair(), *counts), within=0.0) == counts


def test_a_more_expensive_mix_stays_only_within_the_band() -> None:
    problem = holding(equal_pair(), 4, 0)
    assert kept_counts(problem, within=0.34) == (4, 0)
    assert sum(kept_counts(problem, within=0.33)) == 3


def test_a_running_mix_that_does_not_serve_the_demand_is_replaced() -> None:
    assert sum(kept_counts(holding(equal_pair(rate_rps=3.5), 3, 0), within=1.0)) == 4


def test_a_running_mix_that_breaks_a_limit_is_replaced() -> None:
    budget = Limit("quota", LimitKind.QUOTA, 2.0, units={0: 1.0})
    assert kept_counts(replace(holding(equal_pair(), 3, 0), limits=(budget,)), within=0.0)[0] <= 2


def test_a_running_mix_that_does_not_survive_a_loss_is_replaced() -> None:
    loss = Loss("zone", {0: None})
    assert kept_counts(replace(holding(equal_pair(), 3, 0), losses=(loss,)), within=5.0) != (3, 0)


def test_without_a_running_mix_the_solution_is_unchanged() -> None:
    problem = equal_pair()
    solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
    assert keep_running(problem, solution, within=1.0) is solution


@given(mix_problems(max_units=4), st.lists(st.integers(0, 3), min_size=4, max_size=4), st.sampled_from((0.0, 0.2)))
def test_a_kept_mix_meets_the_limits_and_is_within_the_band(
    problem: MixProblem, counts: list[int], within: float
) -> None:
    running = holding(problem, *counts[: len(problem.options)])
    solution = solve_mix(running, solver=Solver.HIGHS, limits=LIMITS)
    found = keep_running(running, solution, within=within)
    assert found.status.has_mix == solution.status.has_mix
    if found.status.has_mix:
        assert found.cost_usd_per_h is not None
        assert (
            solution.bound - 1e-6
            <= found.cost_usd_per_h
            <= max(solution.cost_usd_per_h or 0, solution.bound * (1 + within)) + 1e-6
        )
        assert within_limits(running, units=found.units, replicas=found.replicas)
        assert all(least <= units for least, units in zip(running.units_of(found.replicas), found.units, strict=True))
        assert found.bound <= found.cost_usd_per_h
        if found.status is SolveStatus.OPTIMAL:
            assert found.cost_usd_per_h == pytest.approx(solution.cost_usd_per_h)
