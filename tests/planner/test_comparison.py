"""The changes from one plan to another."""

from typing import Any

import pytest

from planner import Plan, PlanRequest
from planner.comparison import MAX_FIELDS, PlanComparison, compare_plans
from tests.planner.requests import from_offers, given, solved

SLO = {"ttft_ms": {"p99": 1500}, "tpot_ms": {"p99": 60}}
DIFFERENCES = ("cost_usd_per_h", "power_w", "replicas", "gpus", "nearest_limit")


def compared(before: dict[str, Any], after: dict[str, Any]) -> tuple[Plan, Plan, PlanComparison]:
    plans = solved(before), solved(after)
    requests = [PlanRequest.model_validate(each) for each in (before, after)]
    return (*plans, compare_plans(*plans, request_before=requests[0], request_after=requests[1]))


@pytest.mark.parametrize("pair", [(given(), given(rate_rps=80)), (from_offers(), from_offers(rate_rps=60))])
def test_a_comparison_read_backwards_has_the_opposite_differences(pair: tuple[dict[str, Any], ...]) -> None:
    one, other = pair
    _, _, forwards = compared(one, other)
    _, _, backwards = compared(other, one)
    for name in DIFFERENCES:
        there, back = getattr(forwards, name), getattr(backwards, name)
        assert (there.before, there.after) == (back.after, back.before)
        if there.difference is not None:
            assert there.difference == -back.difference
    assert {(each.workload, each.option, each.before, each.after) for each in forwards.mix} == {
        (each.workload, each.option, each.after, each.before) for each in backwards.mix
    }
    assert {(each.route, each.before, each.after) for each in forwards.routing} == {
        (each.route, each.after, each.before) for each in backwards.routing
    }


def test_gpus_and_costs_by_type_add_up_to_the_plans() -> None:
    before, after, found = compared(from_offers(), from_offers(rate_rps=90))
    for side, plan in (("before", before), ("after", after)):
        costs = sum(getattr(each.cost_usd_per_h, side) for each in found.gpus_by_type)
        assert costs == pytest.approx(plan.cost_usd_per_h)
        assert sum(getattr(each.gpus, side) for each in found.gpus_by_type) == getattr(found.gpus, side)
        assert sum(getattr(each, side) for each in found.mix) == sum(entry.count for entry in plan.allocation)


def test_routing_lists_only_shares_that_differ() -> None:
    before, after, found = compared(given(), given(rate_rps=90))
    assert found.routing
    for each in found.routing:
        weights = [plan.routing["chat"][each.bucket].get(each.route, 0.0) for plan in (before, after)]
        assert [each.before, each.after] == weights
        assert each.before != each.after
    assert compared(given(), given())[2].routing == ()


@pytest.mark.parametrize("request_of", [given, from_offers])
def test_the_shares_of_the_routes_of_a_workload_sum_to_one(request_of: Any) -> None:
    before, after, found = compared(request_of(), request_of(rate_rps=90))
    for side, plan in (("before", before), ("after", after)):
        shares = {each.route: getattr(each, side) for each in found.routes}
        assert sum(shares.values()) == pytest.approx(1.0)
        assert {route for route, share in shares.items() if share > 1e-9} == {
            route for weights in plan.routing["chat"].values() for route in weights
        }


def test_latencies_are_compared_with_their_limits() -> None:
    replayed = from_offers(rate_rps=20, slo=SLO) | {"replay": {"hours": 0.05}}
    plain = from_offers(rate_rps=20, slo=SLO)
    before, _, found = compared(replayed, plain)
    limits = before.proofs[0].slo_check.limits
    assert [each.measured_ms.before for each in found.latencies] == [limit.measured_ms for limit in limits]
    assert {(each.holds_before, each.holds_after) for each in found.latencies} == {(True, None)}
    assert all(each.measured_ms.difference is None for each in found.latencies)
    assert found.nearest_limit.before is not None
    assert 0 < found.nearest_limit.before <= 1
    assert found.nearest_limit.after is None


def test_an_infeasible_plan_has_no_cost_and_no_power() -> None:
    none = given(options=[given()["workloads"][0]["options"][1] | {"available": 0}])
    _, _, found = compared(given(), none)
    assert (found.status_before, found.status_after) == ("optimal", "infeasible")
    assert (found.cost_usd_per_h.after, found.cost_usd_per_h.difference) == (None, None)
    assert (found.power_w.after, found.gpus.after) == (None, 0)
    assert all(each.after == 0 for each in found.mix)


def test_fields_of_the_requests_that_differ_are_named_by_path() -> None:
    _, _, found = compared(given(), given(rate_rps=31) | {"quotas": [{"name": "q", "gpus": 9}]})
    fields = {each.path: (each.before, each.after) for each in found.request}
    assert fields.pop("workloads[0].rate_rps")[1] == "31.0"
    assert fields == {"quotas[0].name": (None, '"q"'), "quotas[0].gpus": (None, "9")}


def test_the_number_of_differing_fields_is_limited() -> None:
    quotas = [{"name": f"quota {number}", "gpus": 1000} for number in range(MAX_FIELDS)]
    _, _, found = compared(given(), given() | {"quotas": quotas})
    assert len(found.request) == MAX_FIELDS
