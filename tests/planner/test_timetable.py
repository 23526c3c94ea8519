"""A request over time: demand in periods, what to commit to, and the way from what runs now."""

import itertools

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from fleet.demand import DemandSeries
from planner import Plan
from planner.timetable import highest_rates
from tests.planner.requests import given, solved
from tests.planner.test_request import problems_of

DAY = [5, 4, 3, 3, 3, 4, 8, 15, 25, 30, 32, 33, 34, 33, 32, 30, 28, 26, 24, 20, 16, 12, 9, 6]


def over_a_day(**changes: object) -> dict[str, object]:
    request = given(rate_rps=None, demand={"step_s": 3600, "rates_rps": DAY})
    return {**request, "horizon": {"periods": 24, "warm_up_min": 30}, **changes}


@pytest.fixture(scope="module")
def day() -> Plan:
    return solved(over_a_day())


class TestTimetable:
    def test_every_period_serves_its_demand(self, day: Plan) -> None:
        assert day.timetable is not None
        assert [period.rate_rps["chat"] for period in day.timetable.periods] == pytest.approx(DAY)
        for period in day.timetable.periods:
            for weights in period.routing["chat"].values():
                assert sum(weights.values()) == pytest.approx(1)
                assert set(weights) <= set(period.running)

    def test_the_parts_of_the_cost_add_up_and_lie_between_bound_and_flat(self, day: Plan) -> None:
        table = day.timetable
        assert table is not None
        assert table.total_usd is not None
        parts = table.reserved_usd + table.on_demand_usd + table.spot_usd + table.owned_usd + table.switching_usd
        assert table.total_usd == pytest.approx(parts)
        assert table.flat_usd is not None
        assert table.bound_usd - 1e-6 <= table.total_usd <= table.flat_usd + 1e-6
        assert table.flat_usd == pytest.approx(24 * (day.cost_usd_per_h or 0))

    def test_capacity_stands_a_period_before_it_serves(self, day: Plan) -> None:
        assert day.timetable is not None
        periods = day.timetable.periods
        for before, now in itertools.pairwise(periods):
            for option, count in now.running.items():
                grown = count - before.running.get(option, 0)
                assert grown <= before.started.get(option, 0)

    def test_starting_can_cost_so_much_that_nothing_is_ever_stopped(self) -> None:
        plan = solved(over_a_day(policy={"change": {"start_usd": 1000}}))
        assert plan.timetable is not None
        assert not any(period.started or period.stopped for period in plan.timetable.periods)

    def test_a_horizon_needs_demand_over_time(self) -> None:
        assert "needs a workload with demand" in problems_of({**given(), "horizon": {}})["horizon"]

    def test_what_a_horizon_does_not_hold_to_is_refused(self) -> None:
        assert "survive" in problems_of(over_a_day(policy={"survive": ["node"]}))["horizon"]


class TestMoves:
    def test_what_starts_starts_before_anything_stops(self) -> None:
        current = [{"workload": "chat", "option": "small", "replicas": 2}]
        plan = solved({**given(), "current": current})
        assert plan.moves is not None
        assert plan.moves.possible
        actions = [str(step.action) for step in plan.moves.steps]
        assert "start" in actions
        if "stop" in actions:
            assert max(i for i, a in enumerate(actions) if a == "start") < actions.index("stop")

    def test_asked_again_with_its_own_answer_nothing_moves(self) -> None:
        first = solved(given())
        current = [{"workload": "chat", "option": a.option, "replicas": a.count} for a in first.allocation]
        again = solved({**given(), "current": current})
        assert again.moves is not None
        assert again.moves.steps == ()
        assert again.allocation == first.allocation

    def test_a_dearer_allocation_stays_within_the_band(self) -> None:
        first = solved(given())
        current = [{"workload": "chat", "option": a.option, "replicas": a.count + 1} for a in first.allocation]
        request = {**given(), "current": current, "policy": {"change": {"keep_within": 1.0}}}
        assert {a.option: a.count for a in solved(request).allocation} == {
            a.option: a.count + 1 for a in first.allocation
        }


@drawn(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.integers(1, 40))
def test_no_step_of_a_series_is_above_the_period_that_it_falls_into(rates: list[float], periods: int) -> None:
    series = DemandSeries(step_s=60, rates_rps=tuple(rates))
    highest = highest_rates(series, periods)
    assert len(highest) == periods
    assert max(highest) == max(rates)
    length_s = series.duration_s / periods
    for step, rate in enumerate(rates):
        middle_s = (step + 0.5) * 60
        assert highest[min(periods - 1, int(middle_s // length_s))] >= rate
