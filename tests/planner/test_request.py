"""A request is accepted, or refused with every defect, its path and the expected value."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given as drawn
from hypothesis import strategies as st

from fleet.documents import parse_document, read_model
from fleet.errors import DocumentError
from planner import PlanRequest
from planner.request import MAX_SHARES, bucket_names
from tests.planner.requests import OFFERS, from_offers, given, solved


def problems_of(request: Mapping[str, Any]) -> dict[str, str]:
    """Defects of a request: path -> message."""
    with pytest.raises(DocumentError) as caught:
        read_model(parse_document(yaml.safe_dump(dict(request)), name="request"), PlanRequest)
    return {problem.path: problem.message for problem in caught.value.problems}


def unplannable(request: Mapping[str, Any], **policy: Any) -> dict[str, str]:
    """Defects of a well-formed request that cannot be planned: path -> message."""
    with pytest.raises(DocumentError) as caught:
        solved(request, **policy)
    return {problem.path: problem.message for problem in caught.value.problems}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The given request with one value replaced; `path` is dotted, with numbers for positions."""
    request = deepcopy(given())
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place: Any = request
    for part in parents:
        place = place[part]
    place[last] = value
    return request


class TestForm:
    @pytest.mark.parametrize(
        ("path", "value", "message"),
        [
            ("workloads", [], "expected at least one"),
            ("workloads.0.rate_rps", -1, "greater than or equal to 0, got -1"),
            ("workloads.0.rate_rps", float("nan"), "finite number"),
            ("workloads.0.rate_rps", "30", "expected a number"),
            ("workloads.0.buckets.share", [[0.4, 0.1], [0.3, 0.3]], "sums to 1.1, expected 1"),
            ("workloads.0.buckets.share.0.0", -0.4, "greater than or equal to 0"),
            ("workloads.0.options", [], "expected at least one"),
            ("workloads.0.options.0.price_usd_per_h", -0.01, "greater than or equal to 0"),
            ("workloads.0.options.0.max_rps", [[2, 1]], "has 1 rows, expected 2: one per edge of input_tokens"),
            ("workloads.0.options.0.max_rps.1", [1], "has 1 columns, expected 2: one per edge of output_tokens"),
            ("workloads.0.options.0.max_rps.1.1", float("inf"), "finite number"),
            ("workloads.0.options.0.available", -1, "greater than or equal to 0"),
            ("workloads.0.options.0.available", 1.5, "whole number"),
            ("workloads.0.min_replicas", -1, "greater than or equal to 0"),
            ("utilisation", 0, "greater than 0"),
            ("utilisation", 1.01, "less than or equal to 1"),
            ("time_limit_s", 0, "greater than or equal to 0.01"),
            ("relative_gap", 1, "less than or equal to 0.5"),
            ("solver", "gurobi", "'highs' or 'cbc'"),
            ("markets", [], "expected at least one"),
            ("surprise", 1, "is not a known field"),
        ],
    )
    def test_an_invalid_value_is_reported_with_its_path_and_range(self, path: str, value: Any, message: str) -> None:
        problems = problems_of(changed(path, value))
        assert [message in text for place, text in problems.items() if _steps(place) == path.split(".")] == [True]

    def test_every_defect_is_reported_at_once(self) -> None:
        request = given(rate_rps=-1, min_replicas=-1)
        assert set(problems_of(request | {"utilisation": 2})) >= {
            "workloads[0].rate_rps",
            "workloads[0].min_replicas",
            "utilisation",
        }

    @pytest.mark.parametrize("extra", [{"rate_rps": None}, {"demand": {"step_s": 60, "rates_rps": [1]}}])
    def test_demand_is_either_a_rate_or_a_series(self, extra: dict[str, Any]) -> None:
        assert problems_of(given(**extra))["workloads[0]"].startswith("give ")

    def test_without_options_a_model_and_an_slo_are_required(self) -> None:
        problems = problems_of(from_offers(model=None, slo=None))
        for field in ("model", "slo"):
            assert problems[f"workloads[0].{field}"] == "is required without options"

    def test_names_are_unique(self) -> None:
        option = given()["workloads"][0]["options"][1]
        twice = {"workloads": given()["workloads"] * 2, "offers": [OFFERS[0], OFFERS[0]]}
        assert set(problems_of(twice)) == {"workloads[1].name", "offers[1].id"}
        assert "workloads[0].options[1].name" in problems_of(given(options=[option, option]))

    def test_a_bucket_that_no_given_option_serves_is_named(self) -> None:
        request = changed("workloads.0.options.1.max_rps.1.1", 0)
        problem = problems_of(request)["workloads[0].buckets.share[1][1]"]
        assert problem == "no option can serve bucket 2000x1000: max_rps is 0 there for all of them"

    def test_a_rate_below_the_smallest_meaningful_one_is_refused(self) -> None:
        problem = problems_of(changed("workloads.0.options.0.max_rps.0.0", 1e-6))
        assert problem["workloads[0].options[0].max_rps[0][0]"].endswith("expected 0 or at least 0.00012")

    def test_an_oversized_request_is_refused(self) -> None:
        side = 100
        option = {"gpu": "L4", "price_usd_per_h": 1, "max_rps": [[1] * side] * side}
        edges = list(range(1, side + 1))
        sizes = {"input_tokens": edges, "output_tokens": edges, "share": [[1 / side**2] * side] * side}
        options = [{"name": f"o{number}", **option} for number in range(MAX_SHARES // side**2 + 1)]
        assert problems_of(given(buckets=sizes, options=options)) == {
            "workloads": "options times buckets come to 110,000, expected at most 100,000"
        }


class TestMeaning:
    def test_an_unknown_gpu_is_refused_with_the_nearest_names(self) -> None:
        request = changed("workloads.0.options.1.gpu", "H1000") | {"policy": {"goal": "energy"}}
        problem = unplannable(request)["workloads[0].options[1].gpu"]
        assert problem.startswith("unknown GPU 'H1000'; nearest: H100")
        assert problem.endswith("the objective energy needs its data sheet")
        problems = unplannable(from_offers() | {"offers": [OFFERS[0], OFFERS[1] | {"gpu": "A1O0-80GB"}]})
        assert "nearest: A100-80GB" in problems["offers[1].gpu"]

    def test_an_unknown_model_is_refused_with_the_nearest_names(self) -> None:
        assert unplannable(from_offers(model="lama-3.1-8b"))["workloads[0].model"].startswith(
            "unknown model 'lama-3.1-8b'; nearest: Llama-3.1-8B"
        )

    def test_a_bucket_that_no_offer_serves_is_refused_with_the_reason_per_gpu(self) -> None:
        request = from_offers(model="Llama-3.1-70B") | {"offers": OFFERS[:2]}
        problem = unplannable(request)["workloads[0].buckets.share[0][0]"]
        assert problem.startswith("no option can serve bucket 500x500: A100-80GB-SXM: needs 141.")
        assert "L4: needs 141." in problem

    def test_an_unreachable_slo_is_refused_with_the_reachable_limits(self) -> None:
        problems = unplannable(from_offers(slo={"tpot_ms": {"mean": 0.1}}))
        assert "H100-SXM: mean TPOT is " in problems["workloads[0].buckets.share[0][0]"]
        assert "ms at best, above 0.1 ms" in problems["workloads[0].buckets.share[0][0]"]

    def test_without_offers_on_the_selected_markets_the_error_names_the_markets(self) -> None:
        problems = unplannable(from_offers(), markets=["spot"])
        assert "no offers on the selected markets" in problems["workloads[0].buckets.share[0][0]"]

    def test_min_replicas_of_a_workload_that_no_offer_runs_are_refused(self) -> None:
        idle = from_offers(model="Llama-3.1-70B", rate_rps=0, min_replicas=1) | {"offers": OFFERS[:1]}
        assert set(unplannable(idle)) == {"workloads[0].min_replicas"}

    def test_too_many_options_are_refused_before_any_is_estimated(self) -> None:
        many = [OFFERS[0] | {"id": f"here/{number}", "available": 1} for number in range(10_000)]
        sizes = {"input_tokens": list(range(1, 12)), "output_tokens": [1], "share": [[1]] + [[0]] * 10}
        assert set(unplannable(from_offers(buckets=sizes) | {"offers": many})) == {"workloads"}


def test_a_series_is_planned_at_its_peak() -> None:
    demand = {"step_s": 3600, "rates_rps": [1, 7, 3]}
    request = PlanRequest.model_validate(given(rate_rps=None, demand=demand))
    assert request.workloads[0].planned_rps == 7


def test_buckets_are_named_after_their_edges_row_by_row() -> None:
    workload = PlanRequest.model_validate(given()).workloads[0]
    assert bucket_names(workload) == ("500x250", "500x1000", "2000x250", "2000x1000")
    assert workload.bucket_rates_rps() == pytest.approx((12, 3, 9, 6))


@drawn(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["workloads", "name", "options", "buckets", "share"]), inner)
        ),
    )
)
def test_arbitrary_workloads_raise_a_document_error(nonsense: Any) -> None:
    with pytest.raises(DocumentError):
        read_model(parse_document(yaml.safe_dump({"workloads": nonsense}), name="request"), PlanRequest)


def test_requests_survive_a_round_trip() -> None:
    for written in (given(), from_offers()):
        request = PlanRequest.model_validate(written)
        assert PlanRequest.model_validate_json(request.model_dump_json()) == request


def _steps(place: str) -> list[str]:
    return place.replace("[", ".").replace("]", "").split(".")
