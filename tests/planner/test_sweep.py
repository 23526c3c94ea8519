"""Sweeps: every factor scales its values, and the front holds no dominated point."""

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.gpus import builtin_gpus
from fleet.offers import PriceSheet, builtin_prices
from fleet.solvers import SolveStatus
from planner import PlanRequest
from planner.objectives import ENERGY, SERVED
from planner.policy import ExplainLevel
from planner.sweep import (
    Axis,
    Knob,
    SweepPoint,
    count_points,
    grid_factors,
    grid_request,
    grid_requests,
    mark_front,
    point,
)
from tests.planner.requests import from_offers, given, solved

NO_PRICES = PriceSheet()
ONE_SIZE = [{"name": "large", "gpu": "H100", "price_usd_per_h": 4, "max_rps": [[30]]}]


def request(**changes: object) -> PlanRequest:
    return PlanRequest.model_validate(given(**changes))


def at(cost: float | None, **factors: float) -> SweepPoint:
    status = SolveStatus.INFEASIBLE if cost is None else SolveStatus.OPTIMAL
    return SweepPoint(factors=factors, status=status, cost_usd_per_h=cost, gap=None, power_w=0, gpus=0, mix="-")


class TestAxis:
    def test_a_list_of_factors_is_parsed(self) -> None:
        assert Axis.parse("rate=0.5,1,2") == Axis(knob=Knob.RATE, factors=(0.5, 1, 2))

    def test_a_range_has_steps_of_equal_ratio(self) -> None:
        axis = Axis.parse("price:H100=0.5:2:3")
        assert (axis.name, axis.factors) == ("price:H100", (0.5, 1.0, 2.0))

    @pytest.mark.parametrize(
        "text",
        [
            "speed=1",
            "rate",
            "rate=",
            "rate=x",
            "rate=2:1:3",
            "rate=1:2:1",
            "rate=1:2",
            "rate=nan",
            "rate=1,inf",
            "rate=1:1:3",
        ],
    )
    def test_an_invalid_axis_is_refused(self, text: str) -> None:
        with pytest.raises(RuleError, match="expected"):
            Axis.parse(text)


class TestGridRequests:
    def test_each_axis_scales_only_its_own_field(self) -> None:
        base = request().model_copy(
            update={
                "power_domains": PlanRequest.model_validate(
                    {**given(), "power_domains": [{"name": "row", "limit_w": 9000}]}
                ).power_domains
            }
        )
        axes = [Axis.parse("rate=2"), Axis.parse("price:L4=3"), Axis.parse("power:row=0.5")]
        ((factors, turned, prices),) = grid_requests(base, builtin_prices(), axes)
        assert factors == {"rate": 2, "price:L4": 3, "power:row": 0.5}
        assert turned.workloads[0].rate_rps == 60
        small, large = turned.workloads[0].options or ()
        assert small.price_usd_per_h == pytest.approx(2.4)
        assert large.price_usd_per_h == 4
        assert turned.power_domains[0].limit_w == 4500
        before, after = ([offer for offer in sheet.offers if offer.gpu == "L4"] for sheet in (builtin_prices(), prices))
        assert [offer.price_usd_per_h for offer in after] == pytest.approx([3 * o.price_usd_per_h for o in before])

    def test_every_limit_of_an_objective_is_scaled(self) -> None:
        workload = {
            "name": "chat",
            "model": "Llama-3.1-8B",
            "rate_rps": 5,
            "buckets": {"input_tokens": [500], "output_tokens": [250], "share": [[1.0]]},
            "slo": {"ttft_ms": {"p99": 2000}, "tpot_ms": {"mean": 40}},
        }
        base = PlanRequest.model_validate({"workloads": [workload]})
        ((_, turned, _),) = grid_requests(base, builtin_prices(), [Axis.parse("slo=0.5")])
        assert turned.workloads[0].slo is not None
        assert [limit for _, _, limit in turned.workloads[0].slo.limits()] == [1000, 20]

    def test_axes_multiply_to_a_grid(self) -> None:
        axes = [Axis.parse("rate=1,2,3"), Axis.parse("price=1,2")]
        assert len(grid_requests(request(), NO_PRICES, axes)) == 6

    @pytest.mark.parametrize(
        ("axes", "complaint"),
        [
            (["power=1"], "no power domain"),
            (["slo=1"], "given rates do not depend"),
            (["rate:nobody=1"], "expected one of chat"),
            (["rate=0,1"], "more than 0"),
            (["rate=1", "rate=2"], "given twice"),
            (["rate=1:2:200", "price=1:2:200"], "at most 10,000"),
            (["rate=1,2,1"], "1 is given twice"),
            (["price:H100=1", "price:H100-SXM=2"], "given twice"),
            (["rate=1,1e9"], r"axes\[0\]: rate=1e\+09 leads out of .*rate_rps: .*less than or equal to"),
            (["price=1,1e9"], r"axes\[0\]: price=1e\+09 leads out of .*price_usd_per_h: .*less than or equal to"),
        ],
    )
    def test_an_axis_that_cannot_be_applied_is_refused(self, axes: list[str], complaint: str) -> None:
        with pytest.raises(RuleError, match=complaint):
            grid_requests(request(), NO_PRICES, [Axis.parse(text) for text in axes])

    def test_a_factor_that_leaves_the_range_of_an_slo_is_refused(self) -> None:
        base = PlanRequest.model_validate(from_offers())
        with pytest.raises(RuleError, match=r"axes\[0\]: slo=1e\+09 leads out of .*less than or equal to"):
            grid_requests(base, NO_PRICES, [Axis.parse("slo=1,1e9")])

    def test_a_rate_too_high_for_the_given_options_is_refused(self) -> None:
        """The request's own rules hold at every point, not only the ranges of its fields."""
        with pytest.raises(RuleError, match=r"rate=20000 leads out of .*is too small for"):
            grid_requests(request(), NO_PRICES, [Axis.parse("rate=20000")])

    def test_a_trace_without_a_rate_scales_as_a_series(self) -> None:
        rows = "".join(f"{second},300,100\n" for second in range(600))
        changes = {"buckets": {"trace_csv": f"time,input_tokens,output_tokens\n{rows}"}, "rate_rps": None}
        one = PlanRequest.model_validate(given(**changes, options=ONE_SIZE))
        once, twice = (turned for _, turned, _ in grid_requests(one, NO_PRICES, [Axis.parse("rate=1,2")]))
        assert once == one.explained(ExplainLevel.NONE)  # the trace as it was recorded
        assert one.workloads[0].planned_rps == pytest.approx(1.0, rel=0.01)
        assert twice.workloads[0].planned_rps == pytest.approx(2 * one.workloads[0].planned_rps)

    @pytest.mark.parametrize("name", ["H100", "H100-SXM", "h100 sxm"])
    def test_a_gpu_may_be_given_by_any_catalogue_name(self, name: str) -> None:
        ((_, turned, prices),) = grid_requests(request(), builtin_prices(), [Axis.parse(f"price:{name}=2")])
        small, large = turned.workloads[0].options or ()
        assert (small.price_usd_per_h, large.price_usd_per_h) == (0.8, 8)
        gpus = builtin_gpus()
        for before, after in zip(builtin_prices().offers, prices.offers, strict=True):
            times = 2 if gpus.get(before.gpu) is gpus.get("H100") else 1
            assert after.price_usd_per_h == times * before.price_usd_per_h


class TestParetoFront:
    def test_a_point_dominated_by_another_is_off_the_front(self) -> None:
        axes = [Axis(knob=Knob.RATE, factors=(1, 2, 3))]
        found = mark_front(axes, [at(10, rate=1), at(9, rate=2), at(None, rate=3)])
        assert [one.pareto for one in found.points] == [False, True, False]

    def test_points_of_different_prices_are_not_compared(self) -> None:
        axes = [Axis(knob=Knob.RATE, factors=(1,)), Axis(knob=Knob.PRICE, factors=(1, 2))]
        found = mark_front(axes, [at(10, rate=1, price=1), at(20, rate=1, price=2)])
        assert [one.pareto for one in found.points] == [True, True]

    def test_a_plan_that_failed_its_replay_is_off_the_front_and_dominates_nothing(self) -> None:
        axes = [Axis(knob=Knob.RATE, factors=(1, 2))]
        failed = at(9, rate=2).model_copy(update={"verified": False})
        held = at(10, rate=1).model_copy(update={"verified": True})
        assert [one.pareto for one in mark_front(axes, [held, failed]).points] == [True, False]

    def test_the_served_rate_counts_where_demand_may_go_unserved(self) -> None:
        axes = [Axis(knob=Knob.RATE, factors=(1, 2, 3))]
        points = [
            at(cost, rate=rate).model_copy(update={"goal_value": served})
            for rate, cost, served in ((1, 8, 20.0), (2, 8, 15.0), (3, 8, 15.0))
        ]
        assert [one.pareto for one in mark_front(axes, points, goal=SERVED).points] == [True, False, True]
        assert [one.pareto for one in mark_front(axes, points).points] == [False, False, True]

    def test_less_energy_counts_under_the_energy_goal(self) -> None:
        axes = [Axis(knob=Knob.RATE, factors=(1, 2))]
        points = [at(8, rate=rate).model_copy(update={"goal_value": watts}) for rate, watts in ((1, 500.0), (2, 700.0))]
        assert [one.pareto for one in mark_front(axes, points, goal=ENERGY).points] == [True, True]

    @drawn(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=12))
    def test_the_front_is_exactly_the_set_of_undominated_points(self, drawn_points: list[tuple[int, int, int]]) -> None:
        axes = [Axis(knob=Knob.RATE, factors=(1,)), Axis(knob=Knob.SLO, factors=(1,))]
        found = mark_front(axes, [at(cost, rate=rate, slo=slo) for rate, slo, cost in drawn_points])

        def key(one: SweepPoint) -> tuple[float, float, float]:
            return -one.factors["rate"], one.factors["slo"], one.cost_usd_per_h or 0.0

        for one in found.points:
            beaten = any(
                all(a <= b for a, b in zip(key(other), key(one), strict=True)) and key(other) != key(one)
                for other in found.points
            )
            assert one.pareto is not beaten


def test_a_point_keeps_the_figures_of_a_plan() -> None:
    plan = solved(given())
    kept = point({"rate": 1.0}, plan)
    assert kept.cost_usd_per_h == plan.cost_usd_per_h
    assert (kept.goal_value, kept.verified) == (plan.goal_value, plan.verified)
    assert kept.gpus == sum(entry.count * entry.gpus_per_replica for entry in plan.allocation)
    assert all(f"{entry.count} x {entry.option}" in kept.mix for entry in plan.allocation)


@drawn(factors=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True), min_size=1, max_size=2))
def test_each_request_of_a_grid_is_made_alone_by_its_position(factors: list[list[int]]) -> None:
    axes = [Axis(knob=knob, factors=tuple(map(float, each))) for knob, each in zip(Knob, factors, strict=False)]
    one, gpus = PlanRequest.model_validate(from_offers()), builtin_gpus()
    whole = grid_requests(one, builtin_prices(), axes, gpus=gpus)
    alone = [grid_request(one, builtin_prices(), axes, at, gpus=gpus) for at in range(count_points(axes))]
    assert alone == list(whole)
    assert [found for found, _request, _prices in whole] == list(grid_factors(axes))
