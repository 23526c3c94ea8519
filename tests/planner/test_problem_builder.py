"""The rules of a request as numbers: limits, failures, change, uptime, carbon; and plans within them."""

from typing import Any

import pytest

from fleet.errors import DocumentError
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.solvers import SolveStatus
from planner.options.builder import candidates
from planner.problem import LimitKind, MixProblem
from planner.problem_builder import build_problem
from planner.request import PlanRequest
from planner.result import Plan
from tests.planner.estimators import simple
from tests.planner.requests import from_offers, given, offer, solved

H100X8 = offer("here/h100x8", "H100-SXM", 32, gpus_per_instance=8)
EAST = offer("east/h100", "H100-SXM", 4) | {"region": "east", "zone": "a"}
WEST = offer("west/h100", "H100-SXM", 5) | {"region": "west", "zone": "b"}
SPOT = offer("here/spot", "H100-SXM", 1, market="spot")


def request_of(*offers: dict[str, Any], workload: dict[str, Any] | None = None, **rules: Any) -> PlanRequest:
    return PlanRequest.model_validate(from_offers(**(workload or {})) | {"offers": list(offers)} | rules)


def problem_of(*offers: dict[str, Any], **rules: Any) -> MixProblem:
    request = request_of(*offers, **rules)
    found = candidates(
        request, gpus=builtin_gpus(), models=builtin_models(), offers=request.offers or (), estimator=simple
    )
    return build_problem(request, found)


def violations_of(request: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(DocumentError) as caught:
        solved(request)
    return {problem.path: problem.message for problem in caught.value.problems}


def hired(plan: Plan) -> dict[str, int]:
    return {hire.name: hire.units for hire in plan.hires}


class TestQuotas:
    def test_a_quota_counts_the_gpus_of_the_offers_that_it_covers(self) -> None:
        quota = {"name": "east only", "gpus": 16, "region": "east", "gpu": "H100"}
        problem = problem_of(H100X8, EAST, quotas=[quota, {"name": "all", "gpus": 24}])
        east, every = problem.limits
        names = [supply.name for supply in problem.supplies]
        assert (east.kind, east.at_most, east.units) == (LimitKind.QUOTA, 16, {names.index("east/h100"): 1})
        assert every.units == {names.index("east/h100"): 1, names.index("here/h100x8"): 8}

    def test_a_plan_respects_a_quota(self) -> None:
        free = solved(request_of(EAST, WEST, workload={"rate_rps": 200}).model_dump())
        quota = [{"name": "q", "gpus": 2, "members": ["east/h100"]}]
        held = solved(request_of(EAST, WEST, workload={"rate_rps": 200}, quotas=quota).model_dump())
        assert hired(free).keys() == {"east/h100"}
        assert hired(free)["east/h100"] > 2
        assert hired(held)["east/h100"] == 2
        assert hired(held)["west/h100"] > 0

    def test_a_given_option_counts_its_gpus_against_a_quota(self) -> None:
        options = [{"name": "pair", "gpu": "H100", "gpus": 2, "price_usd_per_h": 8, "max_rps": [[9, 9], [9, 9]]}]
        plan = solved(given(options=options), quotas=[{"name": "q", "gpus": 7, "members": ["chat/pair"]}])
        assert plan.status is SolveStatus.INFEASIBLE  # 30 rps need four pairs
        plan = solved(given(options=options), quotas=[{"name": "q", "gpus": 8, "gpu": "H100"}])
        assert plan.status is SolveStatus.OPTIMAL


class TestPower:
    def test_a_power_domain_counts_the_peak_draw_of_its_replicas(self) -> None:
        problem = problem_of(EAST, WEST, power_domains=[{"name": "feed", "limit_w": 5000, "members": ["east/h100"]}])
        (limit,) = problem.limits
        covered = {problem.options[o].name: watts for o, watts in limit.replicas.items()}
        assert {name.split("/tp")[0] for name in covered} == {"east/h100"}
        assert all(watts > problem.options[o].busy_w for o, watts in limit.replicas.items())

    def test_a_power_limit_adds_options_at_lower_clocks(self) -> None:
        limited = problem_of(EAST, power_domains=[{"name": "feed", "limit_w": 5000}])
        watts = {limited.options[o].name: draw for o, draw in limited.limits[0].replicas.items()}
        assert list(watts) == ["east/h100/tp1", "east/h100/tp1@0.7", "east/h100/tp1@0.35"]
        assert list(watts.values()) == sorted(watts.values(), reverse=True)
        assert [option.name for option in problem_of(EAST).options] == ["east/h100/tp1"]
        full_clock = problem_of(EAST, power_domains=[{"name": "feed", "limit_w": 5000}], power_levels=[1.0])
        assert [option.name for option in full_clock.options] == ["east/h100/tp1"]

    def test_a_plan_respects_a_power_domain(self) -> None:
        table = {"name": "hot", "gpu": "H100", "price_usd_per_h": 1, "max_rps": [[9, 9], [9, 9]]}
        cool = {"name": "cool", "gpu": "L4", "price_usd_per_h": 9, "max_rps": [[9, 9], [9, 9]]}
        domain = {"name": "feed", "limit_w": 2500}
        plan = solved(given(options=[table, cool]), power_domains=[domain])
        assert {entry.option for entry in plan.allocation} == {"hot", "cool"}
        assert {entry.option for entry in solved(given(options=[table, cool])).allocation} == {"hot"}


class TestSpot:
    def test_interruptions_reduce_the_uptime_of_spot_options(self) -> None:
        spot = {"max_share": 1.0, "recovery_min": 30, "interruption_rate_per_h": 0.5}
        stated = SPOT | {"id": "here/stated", "interruption_rate_per_h": 0.1}
        problem = problem_of(SPOT, stated, EAST, markets=["spot", "on-demand"], policy={"spot": spot})
        uptimes = {option.name: option.uptime for option in problem.options}
        assert uptimes["here/spot/tp1"] == pytest.approx(1 / (1 + 0.5 * 0.5))
        assert uptimes["here/stated/tp1"] == pytest.approx(1 / (1 + 0.1 * 0.5))
        assert uptimes["east/h100/tp1"] == 1.0

    @pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
    def test_the_spot_share_counts_gpus(self, share: float) -> None:
        request = request_of(
            SPOT, EAST, workload={"rate_rps": 400}, markets=["spot", "on-demand"], policy={"spot": {"max_share": share}}
        )
        plan = solved(request.model_dump())
        units = hired(plan)
        assert units.get("here/spot", 0) <= share * sum(units.values()) + 1e-9
        assert (units.get("here/spot", 0) > 0) == (share > 0)


class TestBudgetAndGoals:
    def test_the_budget_is_in_dollars_per_hour(self) -> None:
        assert solved(given(), policy={"budget_usd_per_h": 1.0}).status is SolveStatus.INFEASIBLE
        plan = solved(given(), policy={"budget_usd_per_h": 8.0, "goal": "served"})
        assert plan.cost_usd_per_h is not None
        assert 0 < plan.cost_usd_per_h <= 8.0

    def test_carbon_is_that_of_the_region(self) -> None:
        carbon = {"default_g_per_kwh": 400, "regions_g_per_kwh": {"west": [20, 40]}}
        problem = problem_of(EAST, WEST, carbon=carbon, policy={"goal": "carbon"})
        assert {s.name: s.footprint.carbon_g_per_kwh for s in problem.supplies} == {"east/h100": 400, "west/h100": 30}
        plan = solved(request_of(EAST, WEST, carbon=carbon, policy={"goal": "carbon"}).model_dump())
        assert hired(plan).keys() == {"west/h100"}

    def test_the_power_of_a_replica_has_an_idle_and_a_busy_value(self) -> None:
        (option,) = problem_of(EAST).options
        assert 0 < option.idle_w < option.busy_w


class TestFailures:
    def test_a_node_loss_takes_the_replicas_on_the_node(self) -> None:
        problem = problem_of(H100X8, EAST, workload={"model": "Llama-3.1-70B"}, policy={"survive": ["node"]})
        lost = {problem.options[o].name: count for loss in problem.losses for o, count in loss.lost.items()}
        assert lost == {"here/h100x8/tp2": 4, "here/h100x8/tp4": 2, "here/h100x8/tp8": 1}
        assert problem.own_nodes

    def test_a_zone_loss_takes_every_option_in_the_zone(self) -> None:
        problem = problem_of(EAST, WEST, policy={"survive": ["zone"]})
        assert {loss.name: set(loss.lost.values()) for loss in problem.losses} == {
            "zone here/east/a": {None},
            "zone here/west/b": {None},
        }
        plan = solved(request_of(EAST, WEST, policy={"survive": ["zone"]}).model_dump())
        assert hired(plan).keys() == {"east/h100", "west/h100"}

    def test_given_options_have_no_zone(self) -> None:
        assert set(violations_of(given() | {"policy": {"survive": ["zone"]}})) == {"workloads[0].options"}


class TestChange:
    def test_running_replicas_are_held_by_option_name(self) -> None:
        running = [{"workload": "chat", "option": "east/h100/tp1", "replicas": 2}] * 2
        change = {"max_started": 1, "lasting_h": 2, "start_usd": 3}
        problem = problem_of(EAST, WEST | {"price_usd_per_h": 3}, current=running, policy={"change": change})
        assert {option.name: option.held for option in problem.options} == {"east/h100/tp1": 4, "west/h100/tp1": 0}
        assert (problem.change.max_started, problem.change.start_usd_per_h) == (1, 1.5)

    def test_an_unknown_running_option_is_refused_with_the_nearest_name(self) -> None:
        running = [{"workload": "chat", "option": "east/h100/tp11", "replicas": 2}]
        violations = violations_of(request_of(EAST, current=running).model_dump())
        assert violations["current[0].option"].endswith("nearest: east/h100/tp1")

    def test_limits_on_change_require_the_running_replicas(self) -> None:
        assert "current" in violations_of(request_of(EAST, policy={"change": {"max_stopped": 1}}).model_dump())

    def test_an_unknown_member_is_refused_with_the_nearest_name(self) -> None:
        quotas = [{"name": "q", "gpus": 1, "members": ["east/h10"]}]
        violations = violations_of(request_of(EAST, quotas=quotas).model_dump())
        assert violations["quotas[0].members[0]"] == "unknown name 'east/h10'; nearest: east/h100"


def test_the_worst_rate_is_the_low_end_of_the_interval() -> None:
    (route,) = problem_of(EAST, policy={"erring_buckets": 1}).routes
    (leg,) = route.legs
    assert leg.worst_rps is not None
    assert all(0 < worst < rate for worst, rate in zip(leg.worst_rps, leg.max_rps, strict=True))
