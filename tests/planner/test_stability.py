"""Re-planning: stable under noise, fast to scale up, slow to scale down, and always with a reason."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.solvers import Limits, Solver
from planner.horizon.feasibility import Serving
from planner.problem import Change, Load, MixProblem, Supply
from planner.solve.dispatch import solve_mix
from planner.stability import Counts, Decision, Rates, StabilityPolicy, StabilityState, decide
from tests.planner.mixes import RoutedOption, mix_of, mix_problems

LIMITS = Limits(time_limit_s=20)


def fleet(*, available: int | None = None, change: Change | None = None) -> MixProblem:
    """A small GPU that holds 2 requests/s and a large one that holds 10, cheaper per request."""
    return mix_of(
        loads=(Load("chat", (1.0,), utilisation=0.9),),
        supplies=(Supply("small", 1.0, available=available), Supply("large", 4.0, available=available)),
        ways=(RoutedOption("small", "L4", 0, 0, (2.0,)), RoutedOption("large", "H100", 0, 1, (10.0,))),
        change=change or Change(),
    )


def window(problem: MixProblem, state: StabilityState, rate_rps: float, **policy: float) -> Decision:
    return windows(problem, state, ((rate_rps,),), **policy)


def windows(problem: MixProblem, state: StabilityState, rates: Rates, **policy: float) -> Decision:
    return decide(
        problem,
        state=state,
        observed_rps=rates,
        policy=StabilityPolicy(**policy),  # type: ignore[arg-type]
        solver=Solver.HIGHS,
        limits=LIMITS,
    )


def after(problem: MixProblem, rates_rps: list[float], *, running: Counts = (0, 0), **policy: float) -> list[Decision]:
    state, decisions = StabilityState(running), []
    for rate_rps in rates_rps:
        decisions.append(window(problem, state, rate_rps, **policy))
        state = decisions[-1].state
    return decisions


class TestNoise:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("base_rps", [3.0, 40.0])
    def test_five_percent_of_noise_changes_at_most_five_of_a_hundred_windows(self, seed: int, base_rps: float) -> None:
        noise = np.random.default_rng(seed).normal(1, 0.05, 100)
        decisions = after(fleet(), [base_rps * float(factor) for factor in noise])
        assert sum(decision.moved for decision in decisions[1:]) <= 5

    def test_a_steady_load_is_planned_once(self) -> None:
        decisions = after(fleet(), [25.0] * 30)
        assert [decision.moved for decision in decisions] == [True] + [False] * 29


class TestScaleUp:
    def test_too_few_replicas_are_scaled_up_at_once(self) -> None:
        decision = after(fleet(), [5.0, 50.0])[-1]
        assert decision.moved
        assert decision.reason == "the running replicas do not hold the load"
        assert Serving(fleet())(decision.running, rates_rps=((50.0,),))

    def test_without_room_for_the_margin_the_load_itself_is_planned(self) -> None:
        decision = window(fleet(available=2), StabilityState((0, 0)), 21.0)
        assert decision.running == (2, 2)
        assert "no room for a margin" in decision.reason

    def test_a_load_that_no_mix_serves_is_reported_and_no_replica_stops(self) -> None:
        decision = window(fleet(available=1), StabilityState((1, 1)), 100.0)
        assert (decision.running, decision.moved) == ((1, 1), False)
        assert "no mix within the limits does" in decision.reason

    @given(mix_problems(max_units=None), st.data())
    def test_after_each_window_its_load_is_served_wherever_possible(
        self, problem: MixProblem, data: st.DataObject
    ) -> None:
        factor = st.integers(0, 30).map(lambda tenths: tenths / 10)
        state, serving = StabilityState((0,) * len(problem.options)), Serving(problem)
        for _ in range(3):
            rates = tuple(tuple(data.draw(factor) * rate for rate in load.rate_rps) for load in problem.loads)
            decision = windows(problem, state, rates)
            state = decision.state
            loads = tuple(replace(load, rate_rps=row) for load, row in zip(problem.loads, rates, strict=True))
            possible = solve_mix(replace(problem, loads=loads), solver=Solver.HIGHS, limits=LIMITS).status.has_mix
            assert serving(decision.running, rates_rps=rates) == possible
            assert decision.reason


class TestScaleDown:
    def test_a_saving_must_last_for_several_windows(self) -> None:
        decisions = after(fleet(), [50.0] + [5.0] * 12, memory=4, patience=3)
        moved = [t for t, decision in enumerate(decisions) if decision.moved]
        assert moved[0] == 0
        assert moved[1] >= 1 + 3
        assert "windows in a row" in decisions[moved[1]].reason
        assert all("of 3 windows" in decisions[t].reason for t in range(moved[1] - 2, moved[1]))

    def test_a_short_dip_changes_nothing(self) -> None:
        decisions = after(fleet(), [50.0] + [5.0] * 4 + [50.0] * 4, memory=2, patience=6)
        assert sum(decision.moved for decision in decisions) == 1

    def test_within_the_band_nothing_changes(self) -> None:
        decisions = after(fleet(), [50.0] + [44.0] * 30, memory=2, patience=1, band=0.5)
        assert sum(decision.moved for decision in decisions) == 1

    def test_limits_on_change_bound_each_move(self) -> None:
        problem = fleet(change=Change(max_stopped=1))
        decisions = after(problem, [5.0] * 20, running=(0, 6), memory=1, patience=2)
        for before, now in zip([(0, 6), *(decision.running for decision in decisions)], decisions, strict=False):
            assert sum(max(0, then - n) for then, n in zip(before, now.running, strict=True)) <= 1
        assert decisions[-1].running != (0, 6)


class TestForecast:
    def decided(self, running: Counts, *, observed: float, forecast: float, **policy: float) -> Decision:
        return decide(
            fleet(),
            state=StabilityState(running),
            observed_rps=((observed,),),
            forecast_rps=((forecast,),),
            policy=StabilityPolicy(**policy),  # type: ignore[arg-type]
            solver=Solver.HIGHS,
            limits=LIMITS,
        )

    def test_a_forecast_above_the_running_replicas_is_planned_with_the_margin(self) -> None:
        decision = self.decided((0, 1), observed=5, forecast=20, margin=0.1)
        assert decision.moved
        assert decision.planned_rps[0][0] == pytest.approx(22)
        assert Serving(fleet())(decision.running, rates_rps=decision.planned_rps)

    def test_replicas_that_serve_the_forecast_stay_until_a_saving_has_lasted(self) -> None:
        decision = self.decided((0, 3), observed=5, forecast=8)
        assert (decision.running, decision.moved) == ((0, 3), False)
        assert decision.state.saving_windows == 1


class TestPlannedRate:
    def test_the_planned_rate_is_a_high_quantile_with_a_margin(self) -> None:
        state = StabilityState((0, 9), windows=tuple(((float(rate),),) for rate in range(1, 10)))
        decision = window(fleet(), state, 1.0, quantile=0.8, margin=0.25)
        assert decision.planned_rps[0][0] == pytest.approx(7.0 * 1.25)  # the eighth of 1, 1, 2, ... 9

    def test_the_planned_rate_is_at_least_the_newest_window(self) -> None:
        assert window(fleet(), StabilityState((0, 9), windows=(((1.0,),),) * 9), 40.0, quantile=0.5).planned_rps == (
            (40.0,),
        )

    @pytest.mark.parametrize("field", ["band", "quantile", "margin", "patience", "memory"])
    def test_settings_out_of_range_are_refused_by_name(self, field: str) -> None:
        with pytest.raises(ValueError, match=field):
            StabilityPolicy(**{field: -1})
