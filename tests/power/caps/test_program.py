"""The cap program against enumeration: choices, bounds, prices and conflicts."""

from itertools import product
from math import inf, sqrt

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fleet.solvers import Limits, Solver, SolveStatus
from power.caps.options import Option, raises_no_peak, undominated
from power.caps.power_model import Draw
from power.caps.program import CapProblem, Choice, FeedLimit
from power.caps.solving import CapResult, broken, solve

EXACT = Limits(time_limit_s=30.0)
SIGMAS = 3.09


def menu(levels: list[tuple[float, float, float, float]]) -> tuple[Option, ...]:
    """Options of one class, the first without loss."""
    made = [Option(1, 1, Draw(mean, own, common), 1, loss) for mean, own, common, loss in levels]
    return undominated([made[0]._replace(loss=0.0), *made[1:]], sigmas=SIGMAS)


watts = st.floats(0, 100).map(lambda value: round(value, 2))
level = st.tuples(watts, watts.map(lambda w: w / 5), watts.map(lambda w: w / 10), watts)
menus = st.lists(st.lists(level, min_size=1, max_size=4).map(menu), min_size=2, max_size=4)


@st.composite
def problems(draw: st.DrawFn) -> CapProblem:
    """Two feeds under one, classes on either."""
    options = tuple(draw(menus))
    half = len(options) // 2
    members = (tuple(range(len(options))), tuple(range(half)), tuple(range(half, len(options))))
    limits = [draw(st.floats(20, 400)) for _ in members]
    feeds = tuple(FeedLimit(f"f{at}", limit, on) for at, (limit, on) in enumerate(zip(limits, members, strict=True)))
    return CapProblem(options, feeds, SIGMAS)


def best_by_enumeration(problem: CapProblem) -> float:
    every = product(*(range(len(menu)) for menu in problem.options))
    return min((problem.loss(choice) for choice in every if not broken(problem, choice)), default=inf)


def solved(problem: CapProblem, solver: Solver = Solver.HIGHS) -> CapResult:
    return solve(problem, solver=solver, limits=EXACT)


@given(problems())
def test_the_solution_has_the_least_loss_of_all_choices(problem: CapProblem) -> None:
    result, best = solved(problem), best_by_enumeration(problem)
    if best == inf:
        assert result.status is SolveStatus.INFEASIBLE
        assert result.choice is None
        assert sum(result.excess_w.values()) > 0
        return
    assert result.status is SolveStatus.OPTIMAL
    assert result.choice is not None
    assert not broken(problem, result.choice)
    assert result.loss == pytest.approx(best, abs=1e-6)
    assert result.bound <= best + 1e-6


@given(problems(), st.floats(1, 3))
@hypothesis_settings(max_examples=15)
def test_more_power_never_loses_more(problem: CapProblem, factor: float) -> None:
    feeds = tuple(FeedLimit(feed.name, feed.limit_w * factor, feed.members) for feed in problem.feeds)
    before, after = solved(problem), solved(CapProblem(problem.options, feeds, SIGMAS))
    if before.loss is not None:
        assert after.loss is not None
        assert after.loss <= before.loss + 1e-6


@given(problems())
@hypothesis_settings(max_examples=15)
def test_the_missing_power_is_sufficient_and_necessary(problem: CapProblem) -> None:
    missing_w = solved(problem).excess_w
    if not missing_w:
        return
    assert _eased(problem, missing_w, share=1.001).status is not SolveStatus.INFEASIBLE
    assert _eased(problem, missing_w, share=0.9).status is SolveStatus.INFEASIBLE


def _eased(problem: CapProblem, missing_w: dict[int, float], *, share: float) -> CapResult:
    more = [missing_w.get(at, 0.0) * share for at in range(len(problem.feeds))]
    feeds = (FeedLimit(f.name, f.limit_w + w, f.members) for f, w in zip(problem.feeds, more, strict=True))
    return solved(CapProblem(problem.options, tuple(feeds), SIGMAS))


def test_both_solvers_agree() -> None:
    options = tuple(menu([(100, 8, 4, 0), (80, 7, 3, 1 + g), (50, 5, 2, 4 + g)]) for g in range(6))
    problem = CapProblem(options, (FeedLimit("row", 520.0, tuple(range(6))),), SIGMAS)
    assert solved(problem).loss == pytest.approx(solved(problem, Solver.CBC).loss)
    assert solved(problem).loss == pytest.approx(best_by_enumeration(problem))


def test_a_price_predicts_the_saving_of_a_small_increase() -> None:
    options = tuple(menu([(100 - w, 0, 0, w * (1 + g / 10)) for w in range(50)]) for g in range(4))
    members = tuple(range(4))

    def loss(limit_w: float) -> CapResult:
        return solved(CapProblem(options, (FeedLimit("row", limit_w, members),), SIGMAS))

    tight, eased = loss(310.0), loss(311.0)
    assert tight.loss is not None
    assert eased.loss is not None
    assert tight.prices[0] == pytest.approx(tight.loss - eased.loss, rel=1e-3)


def test_without_solver_time_a_feasible_choice_is_returned() -> None:
    options = tuple(menu([(100, 8, 4, 0), (80, 7, 3, 1 + g / 7), (50, 5, 2, 4 + g)]) for g in range(8))
    problem = CapProblem(options, (FeedLimit("row", 700.0, tuple(range(8))),), SIGMAS)
    result = solve(problem, solver=Solver.HIGHS, limits=Limits(time_limit_s=0.0))
    assert result.status.has_mix
    assert result.choice is not None
    assert not broken(problem, result.choice)


@given(st.lists(level, min_size=3, max_size=6), level, level)
def test_a_draw_judged_not_to_raise_the_peak_does_not_raise_it(
    others: list[tuple[float, float, float, float]],
    one: tuple[float, float, float, float],
    two: tuple[float, float, float, float],
) -> None:
    new, old = Draw(*one[:3]), Draw(*two[:3])
    if not raises_no_peak(new, old, sigmas=SIGMAS):
        return
    rest = [Draw(*draw[:3]) for draw in others]
    assert _peak_w([*rest, new]) <= _peak_w([*rest, old]) + 1e-6


def _peak_w(draws: list[Draw]) -> float:
    own, common = sum(draw.own_w**2 for draw in draws), sum(draw.common_w for draw in draws)
    return sum(draw.mean_w for draw in draws) + SIGMAS * sqrt(own + common**2)


def test_choice_is_a_tuple_of_options() -> None:
    choice: Choice | None = solved(CapProblem((menu([(1, 0, 0, 0)]),), (FeedLimit("row", 2.0, (0,)),), SIGMAS)).choice
    assert choice == (0,)
