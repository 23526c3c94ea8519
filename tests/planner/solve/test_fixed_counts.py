"""Solutions of given counts, and mixes found without a solver."""

from dataclasses import replace

from hypothesis import given

from fleet.solvers import SolveStatus
from planner.problem import Change, MixProblem
from planner.solve.fixed_counts import at_counts, one_option_per_load, within_limits
from planner.solve.solution import MixSolution
from tests.planner.small_problems import limited_problems, solved, three_types


def bare(problem: MixProblem) -> MixSolution:
    return MixSolution.without_mix(problem, status=SolveStatus.FEASIBLE, bound=0.0)


@given(limited_problems())
def test_one_option_per_workload_is_no_better_than_the_optimum(problem: MixProblem) -> None:
    counts = one_option_per_load(problem)
    found = None if counts is None else at_counts(problem, bare(problem), counts)
    if found is not None:
        best = solved(problem)
        assert best.status is SolveStatus.OPTIMAL
        assert (found.objective_value or 0.0) >= (best.objective_value or 0.0) - 1e-6


def test_the_cheapest_option_that_serves_all_sizes_is_used() -> None:
    problem = three_types(stock=(None, None, None))
    counts = one_option_per_load(problem)
    assert counts is not None
    assert (counts[0], sum(n > 0 for n in counts)) == (0, 1)  # L4 cannot serve the longest requests
    found = at_counts(problem, bare(problem), counts)
    assert found is not None
    fewer = tuple(max(0, n - 1) for n in counts)
    assert at_counts(problem, bare(problem), fewer) is None


def test_insufficient_stock_of_each_option_gives_none() -> None:
    assert one_option_per_load(three_types(stock=(None, 1, 1))) is None


def test_starts_and_stops_are_limited() -> None:
    running = tuple(replace(option, held=1) for option in three_types().options)
    for change, allowed in ((Change(max_started=1), (2, 1, 0)), (Change(max_stopped=1), (3, 1, 0))):
        problem = replace(three_types(), options=running, change=change)
        beyond = (3, 1, 0) if change.max_started else (3, 0, 0)
        assert within_limits(problem, units=problem.units_of(allowed), replicas=allowed)
        assert not within_limits(problem, units=problem.units_of(beyond), replicas=beyond)
