"""Tests whether the initial replicas serve the demand until hired ones are warm."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fleet.offers import Market
from fleet.solvers import Limits, Solver
from planner.horizon import HorizonProblem, Shortfall, shortfall, solve_horizon
from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply
from tests.planner.horizon.cases import two_options


def two_loads(*, initial: tuple[int, int] | None, min_replicas: int = 0, warmup_h: float = 2.0) -> HorizonProblem:
    """Two loads with an option each that holds 2 requests/s; the second's rate grows."""
    base = MixProblem(
        loads=(Load("chat", (1.0,), min_replicas=min_replicas), Load("code", (1.0,))),
        supplies=(Supply("f", 1.0),),
        options=(ReplicaOption("o", "L4", 0), ReplicaOption("o", "L4", 0)),
        routes=(Route("o", 0, (Leg(0, (2.0,)),)), Route("o", 1, (Leg(1, (2.0,)),))),
    )
    return HorizonProblem.scaled(
        base,
        [(4.0, 2.0), (4.0, 6.0), (4.0, 8.0)],
        period_h=1.0,
        markets=(Market.ON_DEMAND,),
        warmup_h=(warmup_h,) * 2,
        initial=initial,
    )


@given(
    st.lists(st.integers(0, 12), min_size=2, max_size=4),
    st.tuples(st.integers(0, 3), st.integers(0, 1)),
    st.sampled_from((0.0, 0.5, 1.0, 1.5, 9.0)),
)
def test_without_limits_a_shortfall_exists_exactly_if_the_problem_is_infeasible(
    rates: list[int], initial: tuple[int, int], warmup_h: float
) -> None:
    problem = two_options(rates_rps=tuple(map(float, rates)), stock=None, initial=initial, warmup_h=warmup_h)
    plan = solve_horizon(problem, solver=Solver.HIGHS, limits=Limits(time_limit_s=1e6), clock=lambda: 0.0)
    assert (shortfall(problem) is None) == (plan.cost is not None)


def test_the_shortfall_names_the_loads_and_the_period() -> None:
    assert shortfall(two_loads(initial=(2, 1))) == Shortfall(period=1, loads=(1,), warm_from=2)
    assert shortfall(two_loads(initial=(0, 0))) == Shortfall(period=0, loads=(0, 1), warm_from=2)


def test_replicas_below_the_minimum_are_a_shortfall_despite_enough_rate() -> None:
    assert shortfall(two_loads(initial=(2, 3), min_replicas=3)) == Shortfall(period=0, loads=(0,), warm_from=2)


def test_warm_replicas_no_warm_up_or_a_cyclic_horizon_give_no_shortfall() -> None:
    assert shortfall(two_loads(initial=(2, 3))) is None
    assert shortfall(two_loads(initial=(0, 0), warmup_h=0.0)) is None
    assert shortfall(replace(two_loads(initial=(0, 0)), initial=None)) is None
