"""Pruning: spare replicas are removed, and the rest is solved at the utilisation that it needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.solvers import Limits, Solver
from planner.problem import Load, MixProblem, Supply
from planner.solve.dispatch import solve_mix
from planner.solve.fixed_counts import pruned
from planner.solve.solution import MixSolution
from planner.validation.slo_validation import resolved_at_utilisation
from tests.planner.mixes import RoutedOption, mix_of

LIMITS = Limits(time_limit_s=10)


def two_types(rate_rps: float = 4.0) -> MixProblem:
    supplies = (Supply("cheap", 1.0), Supply("dear", 3.0))
    ways = (RoutedOption("cheap", "L4", 0, 0, (1.0,)), RoutedOption("dear", "H100", 0, 1, (4.0,)))
    return mix_of((Load("w", (rate_rps,)),), supplies, ways)


def solve(problem: MixProblem) -> MixSolution:
    return solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 30))
def test_pruned_counts_are_sufficient_and_minimal(cheap: int, dear: int, needed: int) -> None:
    def holds(counts: tuple[int, ...]) -> bool:
        return counts[0] + 4 * counts[1] >= needed

    if not holds((cheap, dear)):
        return
    left = pruned(two_types(), (cheap, dear), holds=holds)
    assert holds(left)
    assert all(a <= b for a, b in zip(left, (cheap, dear), strict=True))
    for option in (0, 1):
        if left[option]:
            assert not holds(tuple(n - (o == option) for o, n in enumerate(left)))


def test_the_most_expensive_replica_is_pruned_first() -> None:
    assert pruned(two_types(), (4, 1), holds=lambda counts: counts[0] + 4 * counts[1] >= 4) == (4, 0)


def test_a_mix_is_proven_at_the_utilisation_that_it_needs() -> None:
    problem, best, mine = resolved_at_utilisation(two_types(rate_rps=4.0), (2, 0), solve=solve)
    assert problem.loads[0].utilisation == pytest.approx(2.0, rel=1e-3)
    assert (mine.replicas, mine.cost_usd_per_h) == ((2, 0), 2.0)
    assert best.cost_usd_per_h == 2.0
    assert mine.bound <= 2.0


def test_an_expensive_replica_is_optimal_at_the_utilisation_that_it_needs() -> None:
    _, best, mine = resolved_at_utilisation(two_types(rate_rps=4.0), (0, 1), solve=solve)
    assert mine.cost_usd_per_h == 3.0
    assert best.cost_usd_per_h == 3.0
    _, best, mine = resolved_at_utilisation(two_types(rate_rps=2.0), (0, 1), solve=solve)
    assert (mine.cost_usd_per_h, best.cost_usd_per_h) == (3.0, 3.0)
