"""Plans over time: proven optimal, warm before they serve, with complete cost items."""

from dataclasses import replace
from itertools import count
from math import fsum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.offers import Market
from fleet.solvers import Limits, Solver, SolveStatus
from planner.horizon import HorizonPlan, HorizonProblem, solve_horizon
from planner.objectives import ENERGY
from planner.problem import Limit, LimitKind
from planner.solve.dispatch import solve_mix
from planner.solve.fixed_counts import route
from tests.planner.horizon.cases import cheapest_by_trying, horizons, two_options

LIMITS = Limits(time_limit_s=1e6)
UNHURRIED = settings(suppress_health_check=[HealthCheck.too_slow])


def solved(problem: HorizonProblem, *, solver: Solver = Solver.HIGHS) -> HorizonPlan:
    ticks = count()
    return solve_horizon(problem, solver=solver, limits=LIMITS, clock=lambda: next(ticks) * 1e-3)


def total_usd(plan: HorizonPlan) -> float:
    assert plan.cost is not None
    return plan.cost.total_usd


class TestCheapest:
    @UNHURRIED
    @given(horizons())
    def test_the_cost_matches_exhaustive_search(self, problem: HorizonProblem) -> None:
        plan, expected = solved(problem), cheapest_by_trying(problem)
        if expected is None:
            assert plan.status is SolveStatus.INFEASIBLE
            assert plan.reason
        else:
            assert plan.status is SolveStatus.OPTIMAL
            assert total_usd(plan) == pytest.approx(expected, abs=1e-6)
            assert plan.bound_usd <= expected + 1e-6

    @UNHURRIED
    @given(horizons())
    def test_both_solvers_agree(self, problem: HorizonProblem) -> None:
        highs, cbc = (solved(problem, solver=solver) for solver in Solver)
        assert highs.status is cbc.status
        if highs.cost is not None:
            assert total_usd(highs) == pytest.approx(total_usd(cbc), abs=1e-6)

    @UNHURRIED
    @given(st.lists(st.integers(0, 12), min_size=2, max_size=5))
    def test_without_switching_costs_and_warm_up_periods_are_independent(self, rates: list[int]) -> None:
        problem = two_options(rates_rps=tuple(map(float, rates)))
        alone = [
            solve_mix(problem.mix(t), solver=Solver.HIGHS, limits=LIMITS).cost_usd_per_h for t in range(len(rates))
        ]
        assert total_usd(solved(problem)) == pytest.approx(fsum(cost for cost in alone if cost is not None), abs=1e-6)

    def test_a_high_switching_cost_gives_a_constant_plan(self) -> None:
        plan = solved(two_options(rates_rps=(2.0, 9.0, 3.0, 7.0), start_usd=1000.0))
        assert len({period.held for period in plan.periods}) == 1
        assert plan.saving == pytest.approx(0.0, abs=1e-6)

    @settings(UNHURRIED, max_examples=15)
    @given(st.lists(st.integers(0, 12), min_size=2, max_size=5), st.integers(0, 20), st.integers(1, 20))
    def test_a_higher_switching_cost_never_lowers_the_total_cost(self, rates: list[int], start: int, more: int) -> None:
        costs = [
            total_usd(solved(two_options(rates_rps=tuple(map(float, rates)), start_usd=usd / 10)))
            for usd in (start, start + more)
        ]
        assert costs[0] <= costs[1] + 1e-6

    def test_the_plan_costs_at_most_the_peak_held_all_day(self) -> None:
        plan = solved(two_options(rates_rps=(1.0, 9.0, 1.0, 1.0), start_usd=0.1))
        assert plan.flat_usd == pytest.approx(16.0)
        assert plan.saving is not None
        assert plan.saving > 0.5


class TestWarmUp:
    def test_a_replica_starts_one_warm_up_before_it_serves(self) -> None:
        plan = solved(two_options(rates_rps=(2.0, 8.0), warmup_h=1.0, initial=(1, 0), prices=(1.0, 9.0)))
        assert [period.held for period in plan.periods] == [(4, 0), (4, 0)]
        assert [period.ready for period in plan.periods] == [(1, 0), (4, 0)]
        assert plan.periods[0].started == (3, 0)
        assert total_usd(plan) == pytest.approx(8.0)

    def test_demand_before_the_end_of_the_warm_up_is_infeasible(self) -> None:
        plan = solved(two_options(rates_rps=(8.0, 8.0), warmup_h=1.0, initial=(1, 0)))
        assert plan.status is SolveStatus.INFEASIBLE
        assert plan.reason

    @UNHURRIED
    @given(horizons())
    def test_a_ready_replica_was_held_for_its_whole_warm_up(self, problem: HorizonProblem) -> None:
        plan = solved(problem)
        for t, period in enumerate(plan.periods):
            for o, warmup in enumerate(problem.warmup_periods):
                for s in range(t - warmup, t + 1):
                    before = problem.initial if s < 0 and problem.initial else plan.periods[s % len(plan.periods)].held
                    assert period.ready[o] <= before[o]

    @UNHURRIED
    @given(horizons())
    def test_every_period_is_served_by_ready_replicas(self, problem: HorizonProblem) -> None:
        for t, period in enumerate(solved(problem).periods):
            route(problem.mix(t), replicas=period.ready)
            assert all(problem.base.routes[r].serves(b) for r, b in period.shares)


class TestCostItems:
    @UNHURRIED
    @given(horizons())
    def test_the_cost_items_add_up_to_the_total(self, problem: HorizonProblem) -> None:
        plan = solved(problem)
        if plan.cost is None:
            return
        prices, hired = [supply.price_usd_per_h for supply in problem.base.supplies], 0.0
        for f, price in enumerate(prices):
            used = [period.units[f] for period in plan.periods]
            if problem.reserved(f):
                assert max(used) <= plan.committed[f]
            hired += price * problem.period_h * (plan.committed[f] * len(used) if problem.reserved(f) else sum(used))
        moves_usd = sum(
            problem.start_usd * sum(period.started) + problem.stop_usd * sum(period.stopped) for period in plan.periods
        )
        assert plan.cost.switching_usd == pytest.approx(moves_usd)
        assert plan.cost.total_usd == pytest.approx(hired + moves_usd)

    def test_an_idle_reserved_unit_is_paid(self) -> None:
        markets = (Market.RESERVED, Market.ON_DEMAND)
        plan = solved(two_options(rates_rps=(2.0, 0.0, 0.0), markets=markets, prices=(1.0, 2.0)))
        assert plan.committed == {0: 0}
        assert total_usd(plan) == pytest.approx(2.0)  # one hour of the large GPU is cheaper than three of the small one

    def test_the_base_load_is_reserved_and_the_peak_is_not(self) -> None:
        problem = two_options(rates_rps=(2.0, 4.0, 2.0, 2.0), markets=(Market.RESERVED, Market.SPOT), prices=(1.0, 1.5))
        plan = solved(problem)
        assert plan.committed == {0: 1}
        assert plan.cost is not None
        assert (plan.cost.reserved_usd, plan.cost.spot_usd) == pytest.approx((4.0, 1.5))

    def test_the_capacity_of_spot_replicas_is_scaled_by_uptime(self) -> None:
        plan = solved(two_options(rates_rps=(8.0, 8.0), uptime=0.75, prices=(1.0, 9.0)))
        assert [period.held for period in plan.periods] == [(6, 0), (6, 0)]


class TestLimits:
    def test_stock_may_vary_between_periods(self) -> None:
        problem = two_options(rates_rps=(6.0, 6.0))
        scarce = replace(problem, stock=((6, 6), (1, 6)))
        assert solved(problem).periods[1].units == (3, 0)
        assert solved(scarce).periods[1].units[0] <= 1

    def test_a_budget_holds_in_every_period(self) -> None:
        problem = two_options(rates_rps=(8.0, 8.0))
        budget = Limit("budget", LimitKind.BUDGET, 3.0, units={0: 1.0, 1: 4.0})
        assert solved(replace(problem, limits=((), (budget,)))).status is SolveStatus.INFEASIBLE

    def test_power_includes_replicas_that_warm_up(self) -> None:
        problem = two_options(rates_rps=(2.0, 8.0), warmup_h=1.0, initial=(1, 0))
        power = Limit("rack", LimitKind.POWER, 2.0, replicas={0: 1.0, 1: 1.0})
        plan = solved(replace(problem, limits=((power,), (power,))))
        assert all(sum(period.held) <= 2 for period in plan.periods)
        assert plan.periods[1].ready[1] == 1

    def test_a_spot_share_limit_holds_in_every_period(self) -> None:
        problem = two_options(rates_rps=(8.0, 8.0), markets=(Market.SPOT, Market.ON_DEMAND), prices=(1.0, 30.0))
        half = Limit("spot", LimitKind.SPOT, 0.0, units={0: 0.5, 1: -0.5})
        plan = solved(replace(problem, limits=((half,), (half,))))
        assert all(period.units[0] <= period.units[1] for period in plan.periods)
        assert [period.held[1] for period in plan.periods] == [1, 1]

    def test_demand_that_no_route_serves_is_named(self) -> None:
        problem = two_options(rates_rps=(1.0,))
        routes = tuple(replace(way, legs=(replace(way.legs[0], max_rps=(0.0,)),)) for way in problem.base.routes)
        plan = solved(replace(problem, base=replace(problem.base, routes=routes)))
        assert plan.status is SolveStatus.INFEASIBLE
        assert plan.reason == "no route serves bucket 0 of chat, which has demand in period 0"


class TestProblem:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("period_h", 0.0),
            ("period_h", float("nan")),
            ("markets", ()),
            ("warmup_h", (1.0,)),
            ("warmup_h", (-1.0, 0.0)),
            ("initial", (1,)),
            ("rates_rps", ()),
            ("rates_rps", (((1.0, 2.0),),)),
            ("rates_rps", (((float("inf"),),),)),
            ("stock", ()),
            ("start_usd", -1.0),
        ],
    )
    def test_an_invalid_field_is_refused_by_its_name(self, field: str, value: object) -> None:
        with pytest.raises(ValueError, match=field):
            replace(two_options(rates_rps=(1.0,)), **{field: value})  # type: ignore[arg-type]

    def test_a_goal_other_than_cost_is_refused(self) -> None:
        problem = two_options(rates_rps=(1.0,))
        with pytest.raises(ValueError, match="base"):
            replace(problem, base=replace(problem.base, objective=ENERGY))

    def test_a_warm_up_is_rounded_up_to_whole_periods(self) -> None:
        problem = two_options(rates_rps=(1.0,), warmup_h=1.0)
        assert replace(problem, period_h=0.25).warmup_periods == (4, 4)
        assert replace(problem, warmup_h=(0.1, 1.1)).warmup_periods == (1, 2)
