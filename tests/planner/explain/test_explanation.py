"""The explanation of a plan, through the planner's entry."""

from typing import Any

import pytest

from fleet.solvers import Limits, Solver, SolveStatus
from planner import Plan
from planner.explain import what_if
from planner.explain.constraints import Kind
from planner.problem import MixProblem
from planner.solve.dispatch import solve_mix
from planner.solve.solution import MixSolution
from tests.planner.requests import OFFERS, from_offers, given, offer, solved

SMALL = {"name": "small", "gpu": "L4", "price_usd_per_h": 0.8, "max_rps": [[2, 1], [1, 1]]}
PARTS = ("prices", "alternatives", "runners_up", "break_evens", "conflicts", "perfect")


def line(plan: Plan, start: str) -> str:
    (found,) = (text for text in plan.explanation if text.startswith(start))
    return found


def middling() -> dict[str, object]:
    return {"name": "middle", "gpu": "A100-80GB", "price_usd_per_h": 2.9, "max_rps": [[10, 4], [6, 2]]}


class TestFeasiblePlan:
    def test_binding_stock_has_the_price_that_one_more_unit_saves(self) -> None:
        small, large = given()["workloads"][0]["options"]
        poorer, richer = (solved(given(options=[small, large | {"available": count}])) for count in (1, 2))
        (price,) = poorer.prices.binding
        assert price.kind is Kind.STOCK
        assert price.saves == pytest.approx((poorer.cost_usd_per_h or 0) - (richer.cost_usd_per_h or 0))

    def test_an_infeasible_single_type_plan_names_the_required_change(self) -> None:
        small, large = given()["workloads"][0]["options"]
        plan = solved(given(options=[small, large | {"available": 1}, middling()]))
        assert line(plan, "only L4") == "only L4: cannot serve bucket 2000x1000 of chat"
        assert line(plan, "only H100-SXM") == "only H100-SXM: impossible, it would take 2 more chat/large"

    def test_a_single_type_plan_names_every_bucket_that_the_type_cannot_serve(self) -> None:
        small, large = given()["workloads"][0]["options"]
        plan = solved(given(options=[small | {"max_rps": [[2, 0], [0, 0]]}, large]))
        assert (
            line(plan, "only L4")
            == "only L4: cannot serve buckets 500x1000 of chat, 2000x250 of chat and 2000x1000 of chat"
        )

    def test_runners_up_cost_at_least_the_plan_and_lack_a_used_type(self) -> None:
        small, large = given()["workloads"][0]["options"]
        plan = solved(given(options=[small, large, middling()]))
        used = {entry.gpu for entry in plan.allocation}
        assert plan.runners_up
        for mix in plan.runners_up:
            assert mix.cost_usd_per_h >= (plan.cost_usd_per_h or 0)
            assert used & set(mix.without)

    def test_an_unused_type_has_a_break_even_price(self) -> None:
        small, large = given()["workloads"][0]["options"]
        dear = middling() | {"price_usd_per_h": 30}
        plan = solved(given(options=[small, large, dear]))
        (entry,) = (entry for entry in plan.break_evens if entry.gpu == "A100-80GB-SXM")
        cheaper = solved(given(options=[small, large, dear | {"price_usd_per_h": 30 * entry.factor - 0.05}]))
        assert "A100-80GB-SXM" in {used.gpu for used in cheaper.allocation}

    def test_the_ideal_bound_is_at_most_the_cost_of_the_plan(self) -> None:
        plan = solved(from_offers())
        assert plan.perfect is not None
        assert plan.perfect.system is not None
        assert 0 < plan.perfect.system.cost_usd_per_h <= plan.perfect.scheduler.cost_usd_per_h
        assert plan.perfect.scheduler.cost_usd_per_h <= (plan.cost_usd_per_h or 0)
        assert plan.perfect.above_system is not None

    def test_options_with_given_rates_have_no_system_bound(self) -> None:
        plan = solved(given())
        assert plan.perfect is not None
        assert plan.perfect.system is None


class TestInfeasiblePlan:
    def test_an_infeasible_plan_reports_a_minimal_conflict_and_its_relaxations(self) -> None:
        small, large = given()["workloads"][0]["options"]
        plan = solved(given(options=[small, large | {"available": 0}]))
        assert plan.status is SolveStatus.INFEASIBLE
        cannot_hold = "the demand of chat (30 rps) and the stock of chat/large (0) cannot both hold"
        assert plan.explanation == (
            "no mix meets all requirements (proven)",
            f"{cannot_hold}; any one of these changes would do: nothing of chat or 1 more chat/large",
            "chat, bucket 2000x1000: 6 of 6 rps stay unserved when as much as possible is served",
        )

    def test_min_replicas_beyond_the_stock_are_a_conflict(self) -> None:
        options = [{**option, "available": 1} for option in given()["workloads"][0]["options"]]
        plan = solved(given(options=options, rate_rps=1, min_replicas=5))
        (conflict,) = plan.conflicts
        assert set(conflict.kinds) == {Kind.STOCK, Kind.MIN_REPLICAS}
        assert [way.easing for way in conflict.ways_out] == [
            "3 more chat/small",
            "3 more chat/large",
            "3 replicas fewer required of chat",
        ]

    def test_spot_only_offers_with_a_limited_share_are_a_conflict(self) -> None:
        spot = [offer("here/spot", "H100-SXM", 1, market="spot")]
        request = from_offers() | {"offers": spot}
        plan = solved(request, markets=["spot"], policy={"spot": {"max_share": 0.5}})
        assert plan.conflicts[0].kinds == (Kind.DEMAND, Kind.SPOT)


class TestTimeLimit:
    def test_parts_missing_after_the_time_limit_are_named(self) -> None:
        options = given()["workloads"][0]["options"]
        options[1]["available"] = 0
        nothing, something = (
            solved(request, policy={"explain_time_limit_s": 0}) for request in (given(options=options), given())
        )
        assert "which requirements conflict is not known: the time limit expired" in nothing.explanation
        assert "which limits bind is not known: the time limit expired" in something.explanation
        assert something.runners_up == ()

    def test_no_what_if_solve_starts_after_the_time_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each solve takes ten seconds of the fake clock, whatever its limit."""
        now = [0.0]
        calls = []

        def slow(problem: MixProblem, *, solver: Solver, limits: Limits) -> MixSolution:
            calls.append(now[0])
            now[0] += 10.0
            return solve_mix(problem, solver=solver, limits=limits)

        monkeypatch.setattr(what_if, "solve_mix", slow)
        plan = solved(given(), clock_s=lambda: now[0], time_limit_s=100, policy={"explain_time_limit_s": 35})
        assert len(calls) > 2  # the plan and some what-if solves
        assert plan.explain_s <= 35
        assert plan.solve_s == 10


class TestExplanationLevels:
    def solves(self, monkeypatch: pytest.MonkeyPatch, request: dict[str, Any], level: str) -> tuple[Plan, int]:
        calls = []

        def counted(problem: MixProblem, *, solver: Solver, limits: Limits) -> MixSolution:
            calls.append(problem)
            return solve_mix(problem, solver=solver, limits=limits)

        monkeypatch.setattr(what_if, "solve_mix", counted)
        return solved(request, policy={"explain": level}), len(calls)

    def test_level_none_solves_once_and_explains_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plan, solves = self.solves(monkeypatch, given(), "none")
        assert solves == 1
        assert plan.explanation == ()
        assert {part: getattr(plan, part) for part in PARTS} == {
            part: Plan.model_fields[part].default for part in PARTS
        }

    def test_level_short_solves_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plan, solves = self.solves(monkeypatch, given(), "short")
        full = solved(given())
        assert solves == 1
        assert plan.explanation[0] == full.explanation[0]
        assert (plan.perfect, plan.alternatives, plan.runners_up) == (full.perfect, (), ())

    def test_level_short_names_the_conflict_without_relaxations(self) -> None:
        request = given(min_replicas=5, rate_rps=1, options=[{**SMALL, "available": 1}])
        short, full = (solved(request, policy={"explain": level}) for level in ("short", "full"))
        assert [conflict.requirements for conflict in short.conflicts] == [
            conflict.requirements for conflict in full.conflicts
        ]
        assert all(not conflict.ways_out for conflict in short.conflicts)
        assert any(conflict.ways_out for conflict in full.conflicts)

    def test_the_plan_is_the_same_at_every_level(self) -> None:
        plans = [solved(given(), policy={"explain": level}) for level in ("none", "short", "full")]
        assert (
            len({plan.model_dump_json(include={"status", "allocation", "routing", "goal_bound"}) for plan in plans})
            == 1
        )


def test_sold_out_offers_of_the_same_type_do_not_bind() -> None:
    """Sold-out offers beside an available one do not bind, and one solve proves it."""
    sold_out = [offer(f"here/none{i}", "H100-SXM", 50, available=0) for i in range(30)]
    plan = solved(from_offers() | {"offers": [*OFFERS, *sold_out]})
    assert plan.prices.complete
    assert all("none" not in price.name for price in plan.prices.binding)
