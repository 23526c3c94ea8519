"""Rollouts: replacements run before a replica stops, and the demand is served after every step."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.solvers import SolverError
from planner.horizon.feasibility import Serving
from planner.problem import Limit, LimitKind, Load, MixProblem, Supply
from planner.rollout_planner import Action, Pace, Rollout, plan_rollout
from planner.solve.fixed_counts import route
from tests.planner.mixes import RoutedOption, mix_of, mix_problems

ROUTING_H, DRAIN_H = 0.02, 0.1


def pace(problem: MixProblem, *, warmup_h: float = 0.5) -> Pace:
    return Pace((warmup_h,) * len(problem.options), routing_h=ROUTING_H, drain_h=DRAIN_H)


def moved(problem: MixProblem, current: tuple[int, ...], target: tuple[int, ...]) -> Rollout:
    return plan_rollout(problem, current=current, target=target, pace=pace(problem))


def replacement(*, stock: int | None, rate_rps: float = 4.0) -> MixProblem:
    """Two options for the same machines at the same price: the new one has twice the rate."""
    return mix_of(
        loads=(Load("chat", (rate_rps,)),),
        supplies=(Supply("rack", 2.0, available=stock),),
        ways=(RoutedOption("old", "L4", 0, 0, (1.0,)), RoutedOption("new", "L4", 0, 0, (2.0,))),
    )


def actions(plan: Rollout) -> list[tuple[Action, dict[int, int]]]:
    return [(step.action, dict(step.replicas)) for step in plan.steps]


def counts(width: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(0, 4), min_size=width, max_size=width).map(tuple)


class TestMakeBeforeBreak:
    @given(st.data())
    def test_the_running_replicas_serve_after_every_step(self, data: st.DataObject) -> None:
        problem = data.draw(mix_problems(max_units=None) | mix_problems(max_units=6))
        current, target = data.draw(counts(len(problem.options))), data.draw(counts(len(problem.options)))
        serves = Serving(problem)
        assume(serves(current) and serves(target))
        plan = moved(problem, current, target)
        for step in plan.steps:
            route(problem, replicas=step.running)
        if all(supply.available is None for supply in problem.supplies):
            assert plan.possible
        if plan.possible:
            assert (plan.steps[-1].running if plan.steps else current) == target

    @given(st.data())
    def test_a_replica_stops_only_after_its_requests_are_routed_elsewhere(self, data: st.DataObject) -> None:
        problem = data.draw(mix_problems(max_units=None))
        current, target = data.draw(counts(len(problem.options))), data.draw(counts(len(problem.options)))
        assume(Serving(problem)(current) and Serving(problem)(target))
        for before, step in pairwise(moved(problem, current, target).steps):
            if step.action is Action.STOP:
                assert before.action is Action.ROUTE

    @given(st.data())
    def test_without_limits_every_start_precedes_every_stop(self, data: st.DataObject) -> None:
        problem = data.draw(mix_problems(max_units=None))
        current, target = data.draw(counts(len(problem.options))), data.draw(counts(len(problem.options)))
        assume(Serving(problem)(target))
        kinds = [step.action for step in moved(problem, current, target).steps]
        assert kinds == sorted(kinds, key=[Action.START, Action.ROUTE, Action.STOP].index)

    @given(st.data())
    def test_the_stock_is_never_exceeded(self, data: st.DataObject) -> None:
        problem = data.draw(mix_problems(max_units=4))
        current, target = data.draw(counts(len(problem.options))), data.draw(counts(len(problem.options)))
        for step in moved(problem, current, target).steps:
            for f, supply in enumerate(problem.supplies):
                used, held = (
                    sum(option.slots * n for option, n in zip(problem.options, row, strict=True) if option.supply == f)
                    for row in (step.running, current)
                )
                held_units = -(-held // supply.slots)  # a running unit has room for more replicas
                assert used <= supply.slots * max(supply.available or 0, held_units)


class TestWaves:
    def test_with_room_for_old_and_new_there_is_one_wave(self) -> None:
        plan = moved(replacement(stock=6), (4, 0), (0, 2))
        assert actions(plan) == [(Action.START, {1: 2}), (Action.ROUTE, {}), (Action.STOP, {0: 4})]
        assert plan.reason == "all replicas start before any stops"

    def test_without_room_for_both_there_are_several_waves(self) -> None:
        plan = moved(replacement(stock=5), (4, 0), (0, 2))
        assert plan.possible
        assert plan.steps[-1].wave == 2
        assert plan.missing_units == {0: 1}
        assert plan.reason == "2 waves, as old and new do not fit at once: 1 more of rack would allow one wave"
        assert [step.running for step in plan.steps if step.action is Action.STOP] == [(2, 1), (0, 2)]

    def test_without_free_capacity_the_missing_units_are_named(self) -> None:
        plan = moved(replacement(stock=4), (4, 0), (0, 2))
        assert not plan.possible
        assert plan.steps == ()
        assert plan.missing_units == {0: 2}
        assert "2 more of rack" in plan.reason

    def test_a_power_limit_counts_old_and_new_replicas(self) -> None:
        power = Limit("rack power", LimitKind.POWER, 5.0, replicas={0: 1.0, 1: 1.0})
        plan = moved(replace(replacement(stock=None), limits=(power,)), (4, 0), (0, 2))
        assert plan.steps[-1].wave == 2
        assert "power" in plan.reason

    def test_an_order_that_frees_capacity_is_found(self) -> None:
        """Starting the replica that no workload needs first would block the rack forever."""
        problem = mix_of(
            loads=(Load("a", (4.0,)), Load("b", (1.0,))),
            supplies=(Supply("rack", 1.0, available=6),),
            ways=(
                RoutedOption("spare", "L4", 1, 0, (1.0,)),
                RoutedOption("old", "L4", 0, 0, (1.0,)),
                RoutedOption("new", "L4", 0, 0, (4.0,)),
            ),
        )
        plan = moved(problem, (1, 4, 0), (2, 0, 1))
        assert plan.possible
        assert plan.steps[0].replicas == {2: 1}


class TestTimeAndCost:
    def test_the_duration_is_the_slowest_start_plus_routing_plus_draining(self) -> None:
        plan = moved(replacement(stock=6), (4, 0), (0, 2))
        assert plan.duration_h == pytest.approx(0.5 + ROUTING_H + DRAIN_H)

    def test_the_temporary_cost_is_the_excess_over_the_target(self) -> None:
        plan = moved(replacement(stock=6), (4, 0), (0, 2))
        assert plan.temporary_usd == pytest.approx((6 - 2) * 2.0 * plan.duration_h)

    def test_a_target_that_does_not_serve_the_demand_is_refused(self) -> None:
        plan = moved(replacement(stock=6), (4, 0), (1, 1))
        assert (plan.possible, plan.reason) == (False, "the target does not serve the demand")

    def test_equal_counts_give_no_steps(self) -> None:
        assert moved(replacement(stock=6), (4, 0), (4, 0)).steps == ()


class TestServing:
    @given(st.data())
    def test_serving_agrees_with_routing(self, data: st.DataObject) -> None:
        problem = data.draw(mix_problems(max_units=None))
        problem = replace(problem, loads=tuple(replace(load, min_replicas=0) for load in problem.loads))
        serves = Serving(problem)
        for replicas in data.draw(st.lists(counts(len(problem.options)), min_size=1, max_size=4)):
            try:
                route(problem, replicas=replicas)
                routed = True
            except SolverError:
                routed = False
            assert serves(replicas) == routed
