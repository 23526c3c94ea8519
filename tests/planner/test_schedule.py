"""A request over time: demand per period, commitments, and the rollout from the running replicas."""

import itertools

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from fleet.demand import DemandSeries
from planner import Plan
from planner.rollout_planner import Count
from planner.schedule import highest_rates
from tests.planner.requests import given, offer, solved
from tests.planner.test_request import problems_of, unplannable

DAY = [5, 4, 3, 3, 3, 4, 8, 15, 25, 30, 32, 33, 34, 33, 32, 30, 28, 26, 24, 20, 16, 12, 9, 6]


def over_a_day(**changes: object) -> dict[str, object]:
    request = given(rate_rps=None, demand={"step_s": 3600, "rates_rps": DAY})
    return {**request, "horizon": {"periods": 24, "warm_up_min": 30}, **changes}


def counts(replicas: tuple[Count, ...]) -> dict[tuple[str, str], int]:
    return {(count.workload, count.option): count.replicas for count in replicas}


def two(*, periods: int = 4, **changes: object) -> dict[str, object]:
    """Two workloads with options of the same names: one over four hours, one over one hour, or as `changes` state."""
    first = given(rate_rps=None, demand={"step_s": 3600, "rates_rps": [10, 60, 10, 60]})["workloads"][0]
    second = {"name": "code", "rate_rps": None, "demand": {"step_s": 900, "rates_rps": [3, 4, 5, 20]}, **changes}
    return {"workloads": [first, first | second], "horizon": {"periods": periods, "warm_up_min": 30}}


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
                assert set(weights) <= {count.option for count in period.running}

    def test_the_cost_items_add_up_and_lie_between_bound_and_flat_cost(self, day: Plan) -> None:
        table = day.timetable
        assert table is not None
        assert table.total_usd is not None
        parts = table.reserved_usd + table.on_demand_usd + table.spot_usd + table.owned_usd + table.switching_usd
        assert table.total_usd == pytest.approx(parts)
        assert table.flat_usd is not None
        assert table.bound_usd - 1e-6 <= table.total_usd <= table.flat_usd + 1e-6
        assert table.flat_usd == pytest.approx(24 * (day.cost_usd_per_h or 0))

    def test_a_replica_runs_for_a_period_before_it_serves(self, day: Plan) -> None:
        assert day.timetable is not None
        periods = day.timetable.periods
        for before, now in itertools.pairwise(periods):
            for option, count in counts(now.running).items():
                grown = count - counts(before.running).get(option, 0)
                assert grown <= counts(before.started).get(option, 0)

    def test_a_high_start_cost_prevents_all_starts_and_stops(self) -> None:
        plan = solved(over_a_day(policy={"change": {"start_usd": 1000}}))
        assert plan.timetable is not None
        assert not any(period.started or period.stopped for period in plan.timetable.periods)

    def test_a_horizon_requires_a_demand_series(self) -> None:
        assert "needs a workload with demand" in problems_of({**given(), "horizon": {}})["horizon"]

    def test_a_horizon_refuses_unsupported_policies(self) -> None:
        assert "survive" in problems_of(over_a_day(policy={"survive": ["node"]}))["horizon"]

    def test_a_plan_without_limitations_has_no_note(self, day: Plan) -> None:
        assert day.timetable is not None
        assert day.timetable.notes == ()

    def test_a_note_reports_that_another_goal_is_ignored(self) -> None:
        table = solved(over_a_day(policy={"goal": "energy"})).timetable
        assert table is not None
        assert [note for note in table.notes if "goal energy" in note]

    def test_a_note_reports_that_periods_are_not_replayed(self) -> None:
        hour = {
            "name": "chat",
            "model": "Llama-3.1-8B",
            "demand": {"step_s": 300, "rates_rps": [2, 4]},
            "slo": {"tpot_ms": {"mean": 100}, "ttft_ms": {"mean": 2000}},
            "buckets": {"input_tokens": [500], "output_tokens": [100], "share": [[1]]},
        }
        request = {"workloads": [hour], "offers": [offer("here/l4", "L4", 0.8)], "horizon": {"periods": 2}}
        table = solved(request, replay={"hours": 0.01}).timetable
        assert table is not None
        assert [note for note in table.notes if "were not replayed" in note]


class TestSeveralWorkloads:
    def test_options_of_the_same_name_are_distinguished(self) -> None:
        request = two(rate_rps=7, demand=None)
        table = solved(request).timetable
        assert table is not None
        for period in table.periods:
            running = counts(period.running)
            assert {workload for workload, _ in running} == {"chat", "code"}
            assert len(running) == len(period.running)
            for workload, buckets in period.routing.items():
                for weights in buckets.values():
                    assert all(running[workload, option] > 0 for option in weights)

    def test_a_shorter_series_is_repeated(self) -> None:
        table = solved(two(periods=16)).timetable
        assert table is not None
        assert [period.rate_rps["code"] for period in table.periods] == pytest.approx([3, 4, 5, 20] * 4)
        assert [period.rate_rps["chat"] for period in table.periods][::4] == pytest.approx([10, 60, 10, 60])

    def test_a_series_that_does_not_divide_the_longest_is_refused_with_both_lengths(self) -> None:
        odd = {"step_s": 3600, "rates_rps": [3, 4, 5]}
        assert "10800 s beside 14400 s" in unplannable(two(demand=odd))["workloads[1].demand"]


class TestInitialState:
    def test_insufficient_running_replicas_are_noted_and_the_horizon_is_cyclic(self) -> None:
        request = two()
        enough = {"workload": "chat", "option": "large", "replicas": 4}
        plan = solved({**request, "current": [enough]})
        table, repeated = plan.timetable, solved(request).timetable
        assert table is not None
        assert repeated is not None
        (note,) = table.notes
        assert "do not serve code in period 1 of 4" in note
        assert table.total_usd == pytest.approx(repeated.total_usd)

    def test_sufficient_running_replicas_are_the_initial_state(self) -> None:
        first = solved(two())
        current = [
            {"workload": entry.workload, "option": entry.option, "replicas": entry.count} for entry in first.allocation
        ]
        table = solved({**two(), "current": current}).timetable
        assert table is not None
        assert table.notes == ()
        assert table.status == "optimal"
        begin = {(entry.workload, entry.option): entry.count for entry in first.allocation}
        running = counts(table.periods[0].running)
        assert all(count <= begin.get(option, 0) for option, count in running.items())


class TestMoves:
    def test_options_of_the_same_name_are_distinguished(self) -> None:
        plan = solved({**two(), "current": []})
        assert plan.moves is not None
        started: dict[tuple[str, str], int] = {}
        for step in plan.moves.steps:
            for key, count in counts(step.replicas).items():
                started[key] = started.get(key, 0) + count
        assert started == {(entry.workload, entry.option): entry.count for entry in plan.allocation if entry.count}
        assert {workload for workload, _ in started} == {"chat", "code"}

    def test_all_starts_precede_all_stops(self) -> None:
        current = [{"workload": "chat", "option": "small", "replicas": 2}]
        plan = solved({**given(), "current": current})
        assert plan.moves is not None
        assert plan.moves.possible
        actions = [str(step.action) for step in plan.moves.steps]
        assert "start" in actions
        if "stop" in actions:
            assert max(i for i, a in enumerate(actions) if a == "start") < actions.index("stop")

    def test_planning_again_from_the_own_result_changes_nothing(self) -> None:
        first = solved(given())
        current = [{"workload": "chat", "option": a.option, "replicas": a.count} for a in first.allocation]
        again = solved({**given(), "current": current})
        assert again.moves is not None
        assert again.moves.steps == ()
        assert again.allocation == first.allocation

    def test_a_more_expensive_allocation_stays_within_the_band(self) -> None:
        first = solved(given())
        current = [{"workload": "chat", "option": a.option, "replicas": a.count + 1} for a in first.allocation]
        request = {**given(), "current": current, "policy": {"change": {"keep_within": 1.0}}}
        assert {a.option: a.count for a in solved(request).allocation} == {
            a.option: a.count + 1 for a in first.allocation
        }


@drawn(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.integers(1, 40))
def test_each_period_has_at_least_the_rate_of_its_steps(rates: list[float], periods: int) -> None:
    series = DemandSeries(step_s=60, rates_rps=tuple(rates))
    highest = highest_rates(series, periods)
    assert len(highest) == periods
    assert max(highest) == max(rates)
    length_s = series.duration_s / periods
    for step, rate in enumerate(rates):
        middle_s = (step + 0.5) * 60
        assert highest[min(periods - 1, int(middle_s // length_s))] >= rate


@drawn(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 40))
def test_a_repeated_series_matches_the_written_out_one(rates: list[float], times: int, periods: int) -> None:
    series = DemandSeries(step_s=60, rates_rps=tuple(rates))
    written = DemandSeries(step_s=60, rates_rps=tuple(rates) * times)
    assert highest_rates(series, periods, over_s=written.duration_s) == highest_rates(written, periods)
