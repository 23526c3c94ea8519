"""The plan explained as a user reads it: through the planner's one entry."""

import itertools

import pytest

from fleet.solvers import SolveStatus
from planner import Plan
from planner.explain.constraints import Kind
from tests.planner.requests import OFFERS, from_offers, given, offer, solved

PARTS = ("prices", "alternatives", "runners_up", "break_evens", "conflicts", "perfect")


def line(plan: Plan, start: str) -> str:
    (found,) = (words for words in plan.explanation if words.startswith(start))
    return found


def middling() -> dict[str, object]:
    return {"name": "middle", "gpu": "A100-80GB", "price_usd_per_h": 2.9, "max_rps": [[10, 4], [6, 2]]}


class TestOfAPlan:
    def test_stock_that_binds_has_its_price(self) -> None:
        small, large = given()["workloads"][0]["options"]
        poorer, richer = (solved(given(options=[small, large | {"available": count}])) for count in (1, 2))
        (price,) = poorer.prices.binding
        assert price.kind is Kind.STOCK
        assert price.saves == pytest.approx((poorer.cost_usd_per_h or 0) - (richer.cost_usd_per_h or 0))

    def test_why_not_only_one_type_says_what_would_be_needed(self) -> None:
        small, large = given()["workloads"][0]["options"]
        plan = solved(given(options=[small, large | {"available": 1}, middling()]))
        assert line(plan, "only L4") == "only L4: cannot serve bucket 2000x1000 of chat"
        assert line(plan, "only H100-SXM") == "only H100-SXM: impossible, it would take 2 more chat/large"

    def test_why_not_only_one_type_names_every_bucket(self) -> None:
        small, large = given()["workloads"][0]["options"]
        plan = solved(given(options=[small | {"max_rps": [[2, 0], [0, 0]]}, large]))
        assert (
            line(plan, "only L4")
            == "only L4: cannot serve buckets 500x1000 of chat, 2000x250 of chat and 2000x1000 of chat"
        )

    def test_runners_up_cost_more_and_lack_a_type(self) -> None:
        small, large = given()["workloads"][0]["options"]
        plan = solved(given(options=[small, large, middling()]))
        used = {entry.gpu for entry in plan.allocation}
        assert plan.runners_up
        for mix in plan.runners_up:
            assert mix.cost_usd_per_h >= (plan.cost_usd_per_h or 0)
            assert used & set(mix.without)

    def test_a_type_left_out_has_its_break_even(self) -> None:
        small, large = given()["workloads"][0]["options"]
        dear = middling() | {"price_usd_per_h": 30}
        plan = solved(given(options=[small, large, dear]))
        (entry,) = (entry for entry in plan.break_evens if entry.gpu == "A100-80GB-SXM")
        cheaper = solved(given(options=[small, large, dear | {"price_usd_per_h": 30 * entry.factor - 0.05}]))
        assert "A100-80GB-SXM" in {used.gpu for used in cheaper.allocation}

    def test_the_bound_of_a_perfect_system_is_below_the_plan(self) -> None:
        plan = solved(from_offers())
        assert plan.perfect is not None
        assert plan.perfect.system is not None
        assert 0 < plan.perfect.system.cost_usd_per_h <= plan.perfect.scheduler.cost_usd_per_h
        assert plan.perfect.scheduler.cost_usd_per_h <= (plan.cost_usd_per_h or 0)
        assert plan.perfect.above_system is not None

    def test_rates_given_outright_say_nothing_of_the_data_sheets(self) -> None:
        plan = solved(given())
        assert plan.perfect is not None
        assert plan.perfect.system is None


class TestOfNone:
    def test_a_smallest_conflict_and_its_ways_out(self) -> None:
        small, large = given()["workloads"][0]["options"]
        plan = solved(given(options=[small, large | {"available": 0}]))
        assert plan.status is SolveStatus.INFEASIBLE
        cannot_hold = "the demand of chat (30 rps) and the stock of chat/large (0) cannot both hold"
        assert plan.explanation == (
            "no mix holds all that is asked for (proven)",
            f"{cannot_hold}; any one of these would do: nothing of chat or 1 more chat/large",
            "chat, bucket 2000x1000: 6 of 6 rps stay unserved when as much as possible is served",
        )

    def test_fewest_replicas_beyond_the_stock(self) -> None:
        options = [{**option, "available": 1} for option in given()["workloads"][0]["options"]]
        plan = solved(given(options=options, rate_rps=1, min_replicas=5))
        (conflict,) = plan.conflicts
        assert set(conflict.kinds) == {Kind.STOCK, Kind.MIN_REPLICAS}
        assert [way.easing for way in conflict.ways_out] == [
            "3 more chat/small",
            "3 more chat/large",
            "3 replicas fewer required of chat",
        ]

    def test_offers_of_the_spot_market_only(self) -> None:
        spot = [offer("here/spot", "H100-SXM", 1, market="spot")]
        request = from_offers() | {"offers": spot}
        plan = solved(request, markets=["spot"], policy={"spot": {"max_share": 0.5}})
        assert plan.conflicts[0].kinds == (Kind.DEMAND, Kind.SPOT)


class TestWithoutTime:
    def test_what_was_not_worked_out_is_said(self) -> None:
        clock = itertools.count(step=100.0)
        options = given()["workloads"][0]["options"]
        options[1]["available"] = 0
        nothing, something = (
            solved(request, clock_s=lambda: next(clock)) for request in (given(options=options), given())
        )
        assert "which requirements conflict was not worked out: the time limit struck" in nothing.explanation
        assert "which limits bind was not worked out: the time limit struck" in something.explanation
        assert something.runners_up == ()

    def test_nothing_is_asked_unless_wanted(self) -> None:
        plan = solved(given())
        assert all(part in Plan.model_fields for part in PARTS)
        assert plan.explanation


def test_many_offers_of_one_type() -> None:
    """Sold-out offers beside one that is not bind nothing, and are found not to in one question."""
    sold_out = [offer(f"here/none{i}", "H100-SXM", 50, available=0) for i in range(30)]
    plan = solved(from_offers() | {"offers": [*OFFERS, *sold_out]})
    assert plan.prices.complete
    assert all("none" not in price.name for price in plan.prices.binding)
