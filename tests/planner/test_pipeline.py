"""From a request to a plan: allocation, routing, cost and explanation."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from fleet.documents import parse_document, read_model
from fleet.offers import PriceSheet
from fleet.solvers import Solver, SolveStatus
from planner import Plan, PlanRequest
from planner.explain.alternatives import Alternative
from planner.request import bucket_names
from planner.throughput import ThroughputSource
from tests.planner.requests import NOW, OFFERS, from_offers, given, offer, solved

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED_EXAMPLE = ROOT.parent / "shared" / "data" / "planner" / "melange" / "example.json"


class TestGivenOptions:
    def test_given_tables_are_used_unchanged(self) -> None:
        plan = solved(given())
        assert plan.status is SolveStatus.OPTIMAL
        large = next(entry for entry in plan.allocation if entry.option == "large")
        assert list(map(list, plan.throughput["chat"]["large"].max_rps)) == [[30, 10], [15, 6]]
        assert plan.throughput["chat"]["large"].provenance is ThroughputSource.GIVEN
        assert (large.gpu, large.gpus_per_replica, large.offer) == ("H100-SXM", 1, None)

    def test_cost_power_and_hires_add_up(self) -> None:
        plan = solved(given())
        assert plan.cost_usd_per_h == pytest.approx(sum(hire.cost_usd_per_h for hire in plan.hires))
        assert plan.power_w == sum(entry.power_w or 0.0 for entry in plan.allocation)
        assert {hire.name: hire.units for hire in plan.hires} == {
            f"chat/{entry.option}": entry.count for entry in plan.allocation
        }

    def test_a_replica_of_several_gpus_draws_the_power_of_all(self) -> None:
        options = [{"name": "pair", "gpu": "H100", "gpus": 2, "price_usd_per_h": 8, "max_rps": [[30, 30], [30, 30]]}]
        (entry,) = solved(given(options=options)).allocation
        boards_w = 2 * 700 * entry.count
        assert entry.gpus_per_replica == 2
        assert entry.power_w is not None
        assert boards_w < entry.power_w < 2 * boards_w  # includes their share of the server

    def test_lower_utilisation_takes_more_replicas(self) -> None:
        tight, roomy = (solved(given(), utilisation=share) for share in (1.0, 0.5))
        assert (roomy.cost_usd_per_h or 0) > (tight.cost_usd_per_h or 0)
        assert all(entry.busy <= 0.5 + 1e-6 for entry in roomy.allocation)

    def test_both_solvers_find_the_same_cost(self) -> None:
        highs, cbc = (solved(given(), solver=solver) for solver in Solver)
        assert highs.cost_usd_per_h == cbc.cost_usd_per_h
        assert (highs.solver, cbc.solver) == (Solver.HIGHS, Solver.CBC)

    @drawn(
        st.lists(st.integers(0, 20), min_size=4, max_size=4).filter(any),
        st.floats(0, 200),
        st.sampled_from((1.0, 0.7)),
    )
    def test_every_bucket_with_demand_is_routed_completely_and_within_capacity(
        self, weights: list[int], rate_rps: float, utilisation: float
    ) -> None:
        shares = [weight / sum(weights) for weight in weights]
        sizes = {"input_tokens": [500, 2000], "output_tokens": [250, 1000], "share": [shares[:2], shares[2:]]}
        request = given(rate_rps=rate_rps, buckets=sizes)
        request["workloads"][0]["options"][1]["available"] = None
        plan = solved(request, utilisation=utilisation)
        assert plan.status is SolveStatus.OPTIMAL
        assert_routed_within_capacity(PlanRequest.model_validate(request), plan)


class TestOffers:
    def test_options_combine_offers_and_parallelism(self) -> None:
        plan = solved(from_offers())
        assert plan.status is SolveStatus.OPTIMAL
        assert {entry.offer for entry in plan.allocation} <= {known["id"] for known in OFFERS}
        assert all(entry.option == f"{entry.offer}/tp{entry.gpus_per_replica}" for entry in plan.allocation)

    def test_only_whole_instances_are_hired(self) -> None:
        plan = solved(from_offers() | {"offers": [OFFERS[2]]})
        (hire,) = plan.hires
        gpus = sum(entry.count * entry.gpus_per_replica for entry in plan.allocation)
        assert (hire.units, hire.gpus_per_unit, hire.cost_usd_per_h) == (1, 8, 32)
        assert plan.cost_usd_per_h == 32
        assert gpus <= 8

    def test_stock_and_quota_are_not_exceeded(self) -> None:
        offers = [offer("here/some", "H100-SXM", 1, available=5, quota=2), offer("here/more", "H100-SXM", 9)]
        plan = solved(from_offers(rate_rps=100) | {"offers": offers})
        units = {hire.name: hire.units for hire in plan.hires}
        assert units["here/some"] == 2
        assert units["here/more"] > 0

    def test_spot_is_used_only_if_its_market_is_listed(self) -> None:
        offers = [*OFFERS, offer("here/spot", "H100-SXM", 0.1, market="spot")]
        careful = solved(from_offers() | {"offers": offers})
        bold = solved(from_offers() | {"offers": offers}, markets=["spot"])
        assert "here/spot" not in {hire.name for hire in careful.hires}
        assert any("offers not used because of their market: 1;" in line for line in careful.explanation)
        assert {hire.name for hire in bold.hires} == {"here/spot"}

    def test_the_price_sheet_is_used_without_offers_in_the_request(self) -> None:
        request = {"workloads": from_offers()["workloads"]}
        plan = solved(request, prices=PriceSheet.model_validate({"offers": [OFFERS[2]]}))
        assert {hire.name for hire in plan.hires} == {"here/h100x8"}

    def test_the_builtin_price_sheet_gives_an_optimal_plan(self) -> None:
        assert solved({"workloads": from_offers()["workloads"]}).status is SolveStatus.OPTIMAL

    def test_the_interval_is_wider_for_unmeasured_gpus(self) -> None:
        measured, unmeasured = (
            next(iter(solved(from_offers() | {"offers": [chosen]}).throughput["chat"].values())).interval_90
            for chosen in (OFFERS[2], offer("here/mi300x", "MI300X", 3))
        )
        assert measured is not None
        assert unmeasured is not None
        assert measured[0] < 1 < measured[1]
        assert unmeasured[1] / unmeasured[0] > measured[1] / measured[0]

    def test_inputs_report_their_age(self) -> None:
        ages = {entry.name: entry.age_days for entry in solved(from_offers()).inputs if entry.kind == "price"}
        assert ages == {"here/l4": 20, "here/a100": 20, "here/h100x8": 20}
        kinds = {entry.kind for entry in solved(from_offers()).inputs}
        assert kinds == {"sizes", "price", "gpu", "model", "performance"}

    def test_a_given_price_has_no_age(self) -> None:
        prices = [entry for entry in solved(given()).inputs if entry.kind == "price"]
        assert {(entry.as_of, entry.age_days, entry.source) for entry in prices} == {(None, None, "the request")}


class TestRoutingWithoutDemand:
    def test_an_idle_bucket_is_routed_by_replica_capacity(self) -> None:
        sizes = given()["workloads"][0]["buckets"] | {"share": [[1, 0], [0, 0]]}
        options = given()["workloads"][0]["options"]
        options[1]["available"] = 1
        plan = solved(given(buckets=sizes, options=options, rate_rps=33))
        counts = {entry.option: entry.count for entry in plan.allocation}
        carried = {"small": counts["small"] * 1, "large": counts["large"] * 15}
        weights = plan.routing["chat"]["2000x250"]
        assert weights == pytest.approx({name: rate / sum(carried.values()) for name, rate in carried.items()})
        assert plan.routing["chat"]["2000x1000"] == {"large": 1.0}

    def test_a_workload_without_demand_runs_its_minimum(self) -> None:
        plan = solved(given(rate_rps=0, min_replicas=2))
        assert [(entry.option, entry.count) for entry in plan.allocation] == [("small", 2)]
        assert plan.routing["chat"]["2000x1000"] == {}
        assert "chat has no demand and gets only the replicas it requires (2)" in plan.explanation

    def test_a_request_without_demand_gives_an_empty_optimal_plan(self) -> None:
        plan = solved(given(rate_rps=0))
        assert (plan.status, plan.cost_usd_per_h, plan.gap, plan.allocation) == (SolveStatus.OPTIMAL, 0.0, 0.0, ())


class TestExplanation:
    def test_single_gpu_alternatives_are_sorted_by_cost(self) -> None:
        request = given()
        request["workloads"][0]["options"].append(
            {"name": "middle", "gpu": "A100-80GB", "price_usd_per_h": 2.9, "max_rps": [[10, 4], [6, 2]]}
        )
        plan = solved(request)
        only = {alternative.gpu: alternative for alternative in plan.alternatives}
        middle = [{**option, "available": None} for option in request["workloads"][0]["options"][2:]]
        assert only["A100-80GB-SXM"].cost_usd_per_h == solved(given(options=middle)).cost_usd_per_h
        assert only["L4"] == Alternative(
            gpu="L4", status=SolveStatus.INFEASIBLE, reason="cannot serve bucket 2000x1000 of chat"
        )
        costs = [alternative.cost_usd_per_h for alternative in plan.alternatives]
        assert costs == [*sorted(cost for cost in costs if cost is not None), None]
        assert "only L4: cannot serve bucket 2000x1000 of chat" in plan.explanation

    def test_a_binding_stock_is_named_with_the_saving_of_one_more_unit(self) -> None:
        small, large = given()["workloads"][0]["options"]
        poorer, richer = (solved(given(options=[small, large | {"available": count}])) for count in (1, 2))
        saved = (poorer.cost_usd_per_h or 0) - (richer.cost_usd_per_h or 0)
        assert saved > 0
        assert f"the stock of chat/large (1) binds: 1 more chat/large would save {saved:.2f} $/h" in poorer.explanation

    def test_demand_beyond_the_stock_is_named(self) -> None:
        options = given()["workloads"][0]["options"]
        options[1]["available"] = 0
        plan = solved(given(options=options))
        assert (plan.status, plan.cost_usd_per_h, plan.bound_usd_per_h, plan.gap) == ("infeasible", None, None, None)
        assert plan.explanation[0] == "no mix meets all requirements (proven)"
        unserved = "6 of 6 rps stay unserved when as much as possible is served"
        assert f"chat, bucket 2000x1000: {unserved}" in plan.explanation

    def test_min_replicas_beyond_the_stock_are_named(self) -> None:
        options = [{**option, "available": 1} for option in given()["workloads"][0]["options"]]
        plan = solved(given(options=options, rate_rps=1, min_replicas=5))
        assert plan.status is SolveStatus.INFEASIBLE
        assert "at least 5 replicas of chat" in plan.explanation[1]
        assert "3 replicas fewer required of chat" in plan.explanation[1]

    def test_after_the_time_limit_alternatives_are_not_compared(self) -> None:
        plan = solved(given(), policy={"explain_time_limit_s": 0})
        assert plan.status is SolveStatus.OPTIMAL
        assert {alternative.status for alternative in plan.alternatives} == {
            SolveStatus.TIME_LIMIT,
            SolveStatus.INFEASIBLE,
        }
        assert "only H100-SXM: not compared, the time limit expired" in plan.explanation

    def test_the_peak_rate_and_the_predicted_rates_are_reported(self) -> None:
        demand = {"step_s": 3600, "rates_rps": [1, 7, 3]}
        lines = solved(from_offers(rate_rps=None, demand=demand)).explanation
        assert "chat is planned at its peak of 7 rps" in lines
        assert any("predicted by the calibrated model" in line for line in lines)


class TestSeveralWorkloads:
    def test_workloads_compete_for_one_stock(self) -> None:
        first = from_offers()["workloads"][0]
        request = {"workloads": [first, first | {"name": "search"}], "offers": [OFFERS[1], OFFERS[2]]}
        plan = solved(request)
        a100 = sum(entry.count for entry in plan.allocation if entry.offer == "here/a100")
        assert {entry.workload for entry in plan.allocation} == {"chat", "search"}
        assert a100 <= 3
        assert_routed_within_capacity(PlanRequest.model_validate(request), plan)

    def test_an_option_and_an_offer_may_have_the_same_name(self) -> None:
        options = [{"name": "l4", "gpu": "L4", "price_usd_per_h": 3, "max_rps": [[9]]}]
        sizes = {"input_tokens": [500], "output_tokens": [500], "share": [[1]]}
        mine = {"name": "here", "rate_rps": 9, "buckets": sizes, "options": options}
        request = {"workloads": [mine, from_offers(rate_rps=0.1)["workloads"][0]], "offers": [OFFERS[0]]}
        plan = solved(request)
        assert sorted((hire.name, hire.offer, hire.cost_usd_per_h) for hire in plan.hires if hire.offer is None) == [
            ("here/l4", None, 3)
        ]
        assert ("here/l4", "here/l4") in {(hire.name, hire.offer) for hire in plan.hires}


def test_a_plan_survives_json() -> None:
    for request in (given(), from_offers(), given(rate_rps=0)):
        plan = solved(request)
        assert Plan.model_validate(json.loads(plan.model_dump_json())) == plan


def test_the_clock_and_the_date_are_injected() -> None:
    clock = itertools.count(step=2.5)
    plan = solved(given(), clock_s=lambda: next(clock))
    assert (plan.solve_s, plan.planned_at) == (2.5, NOW)


def test_solve_time_and_explanation_time_are_separate() -> None:
    clock = itertools.count(step=0.001)
    full = solved(given(), clock_s=lambda: next(clock))
    bare = solved(given(), clock_s=lambda: next(clock), policy={"explain": "none"})
    assert full.solve_s == pytest.approx(bare.solve_s)
    assert full.explain_s > 10 * bare.explain_s > 0


def test_planning_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for solver in Solver:
        solved(given(), solver=solver)
    assert capfd.readouterr() == ("", "")


def test_the_readme_example_gives_the_documented_plan() -> None:
    path = ROOT / "examples" / "chat.yaml"
    request = read_model(parse_document(path.read_text(encoding="utf-8"), name=path.name), PlanRequest)
    plan = solved(request.model_dump())
    assert (plan.status, plan.cost_usd_per_h) == (SolveStatus.OPTIMAL, 12.12)
    assert_routed_within_capacity(request, plan)


@pytest.mark.skipif(
    not PUBLISHED_EXAMPLE.exists(), reason="the published 2x2 example is only present beside the checkout"
)
def test_the_published_example_costs_less_than_its_published_solution() -> None:
    """The example of arXiv 2404.14527's authors: 6.70 $/h with whole slices, 4.68 $/h when a bucket may be split."""
    published = json.loads(PUBLISHED_EXAMPLE.read_text(encoding="utf-8"))
    options = [
        {"name": name, "gpu": name, "price_usd_per_h": gpu["cost"], "max_rps": gpu["tputs"]}
        for name, gpu in published["gpu_info"].items()
    ]
    sizes = {"input_tokens": [1, 2], "output_tokens": [1, 2], "share": published["workload_distribution"]}
    plan = solved(given(rate_rps=published["total_request_rate"], buckets=sizes, options=options))
    assert (plan.status, plan.cost_usd_per_h, plan.bound_usd_per_h) == (SolveStatus.OPTIMAL, 4.68, 4.68)


def assert_routed_within_capacity(request: PlanRequest, plan: Plan) -> None:
    """Check from the plan alone: weights sum to one, only capable options are used, and no replica is overloaded."""
    for workload in request.workloads:
        tables = plan.throughput[workload.name]
        busy = dict.fromkeys(tables, 0.0)
        cells = [(bucket.row, bucket.column) for bucket in workload.buckets.buckets()]
        for name, (row, column), rate_rps in zip(
            bucket_names(workload), cells, workload.bucket_rates_rps(), strict=True
        ):
            weights: Mapping[str, float] = plan.routing[workload.name][name]
            if rate_rps > 0:
                assert sum(weights.values()) == pytest.approx(1)
            for option, weight in weights.items():
                assert weight > 0
                assert tables[option].max_rps[row][column] > 0
                busy[option] += weight * rate_rps / tables[option].max_rps[row][column]
        counts: dict[str, Any] = {
            entry.option: entry.count for entry in plan.allocation if entry.workload == workload.name
        }
        for option, load in busy.items():
            assert load <= (request.utilisation or 1.0) * counts[option] * (1 + 1e-6)
