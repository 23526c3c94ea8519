"""One request over a grid: every factor reaches what it names, and the front holds nothing that is beaten."""

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.offers import PriceSheet, builtin_prices
from planner import PlanRequest
from planner.solvers import SolveStatus
from planner.sweep import Axis, Knob, SweepPoint, gathered, point, questions
from tests.planner.requests import given, solved

NO_PRICES = PriceSheet()


def request(**changes: object) -> PlanRequest:
    return PlanRequest.model_validate(given(**changes))


def at(cost: float | None, **factors: float) -> SweepPoint:
    status = SolveStatus.INFEASIBLE if cost is None else SolveStatus.OPTIMAL
    return SweepPoint(factors=factors, status=status, cost_usd_per_h=cost, gap=None, power_w=0, gpus=0, mix="-")


class TestAxis:
    def test_a_list_of_factors(self) -> None:
        assert Axis.parsed("rate=0.5,1,2") == Axis(knob=Knob.RATE, factors=(0.5, 1, 2))

    def test_a_range_has_steps_of_equal_ratio(self) -> None:
        axis = Axis.parsed("price:H100=0.5:2:3")
        assert (axis.name, axis.factors) == ("price:H100", (0.5, 1.0, 2.0))

    @pytest.mark.parametrize("text", ["speed=1", "rate", "rate=", "rate=x", "rate=2:1:3", "rate=1:2:1", "rate=1:2"])
    def test_anything_else_is_refused_in_words(self, text: str) -> None:
        with pytest.raises(RuleError, match="expected"):
            Axis.parsed(text)


class TestQuestions:
    def test_rates_objectives_prices_and_power_turn_what_they_name(self) -> None:
        asked = request().model_copy(
            update={
                "power_domains": PlanRequest.model_validate(
                    {**given(), "power_domains": [{"name": "row", "limit_w": 9000}]}
                ).power_domains
            }
        )
        axes = [Axis.parsed("rate=2"), Axis.parsed("price:L4=3"), Axis.parsed("power:row=0.5")]
        ((factors, turned, prices),) = questions(asked, builtin_prices(), axes)
        assert factors == {"rate": 2, "price:L4": 3, "power:row": 0.5}
        assert turned.workloads[0].rate_rps == 60
        small, large = turned.workloads[0].options or ()
        assert small.price_usd_per_h == pytest.approx(2.4)
        assert large.price_usd_per_h == 4
        assert turned.power_domains[0].limit_w == 4500
        before, after = builtin_prices().for_gpu("L4"), prices.for_gpu("L4")
        assert [offer.price_usd_per_h for offer in after] == pytest.approx([3 * o.price_usd_per_h for o in before])

    def test_every_limit_of_an_objective_is_scaled(self) -> None:
        workload = {
            "name": "chat",
            "model": "Llama-3.1-8B",
            "rate_rps": 5,
            "buckets": {"input_tokens": [500], "output_tokens": [250], "share": [[1.0]]},
            "slo": {"ttft_ms": {"p99": 2000}, "tpot_ms": {"mean": 40}},
        }
        asked = PlanRequest.model_validate({"workloads": [workload]})
        ((_, turned, _),) = questions(asked, builtin_prices(), [Axis.parsed("slo=0.5")])
        assert turned.workloads[0].slo is not None
        assert [limit for _, _, limit in turned.workloads[0].slo.limits()] == [1000, 20]

    def test_axes_multiply_to_a_grid(self) -> None:
        axes = [Axis.parsed("rate=1,2,3"), Axis.parsed("price=1,2")]
        assert len(questions(request(), NO_PRICES, axes)) == 6

    @pytest.mark.parametrize(
        ("axes", "complaint"),
        [
            (["power=1"], "no power domain"),
            (["slo=1"], "rates given outright"),
            (["rate:nobody=1"], "expected one of chat"),
            (["rate=0,1"], "more than 0"),
            (["rate=1", "rate=2"], "given twice"),
            (["rate=1:2:200", "price=1:2:200"], "at most 10,000"),
        ],
    )
    def test_what_cannot_be_turned_is_named(self, axes: list[str], complaint: str) -> None:
        with pytest.raises(RuleError, match=complaint):
            questions(request(), NO_PRICES, [Axis.parsed(text) for text in axes])


class TestFront:
    def test_a_point_that_another_serves_more_for_less_is_off_the_front(self) -> None:
        axes = [Axis(knob=Knob.RATE, factors=(1, 2, 3))]
        found = gathered(axes, [at(10, rate=1), at(9, rate=2), at(None, rate=3)])
        assert [one.pareto for one in found.points] == [False, True, False]

    def test_prices_are_not_a_choice(self) -> None:
        axes = [Axis(knob=Knob.RATE, factors=(1,)), Axis(knob=Knob.PRICE, factors=(1, 2))]
        found = gathered(axes, [at(10, rate=1, price=1), at(20, rate=1, price=2)])
        assert [one.pareto for one in found.points] == [True, True]

    @drawn(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=12))
    def test_the_front_beats_all_others_and_none_of_itself(self, drawn_points: list[tuple[int, int, int]]) -> None:
        axes = [Axis(knob=Knob.RATE, factors=(1,)), Axis(knob=Knob.SLO, factors=(1,))]
        found = gathered(axes, [at(cost, rate=rate, slo=slo) for rate, slo, cost in drawn_points])

        def key(one: SweepPoint) -> tuple[float, float, float]:
            return -one.factors["rate"], one.factors["slo"], one.cost_usd_per_h or 0.0

        for one in found.points:
            beaten = any(
                all(a <= b for a, b in zip(key(other), key(one), strict=True)) and key(other) != key(one)
                for other in found.points
            )
            assert one.pareto is not beaten


def test_a_point_keeps_what_a_plan_says() -> None:
    plan = solved(given())
    kept = point({"rate": 1.0}, plan)
    assert kept.cost_usd_per_h == plan.cost_usd_per_h
    assert kept.gpus == sum(entry.count * entry.gpus_per_replica for entry in plan.allocation)
    assert all(f"{entry.count} x {entry.option}" in kept.mix for entry in plan.allocation)
