"""Every transition of docs/explanation/power/guard.md."""

from math import inf, nan

import numpy as np
import pytest

from power.controls import Clocks, Routing, Setting
from power.guard import NOT_CALM, Cause, GuardMode, GuardSettings
from power.guard.telemetry import BRAKE
from power.telemetry import Budget, Reading
from tests.power.guard.rows import LIMIT_W, SERVERS, FixedPolicy, GuardedRow

SLOW = Setting(
    clocks=Clocks(0.5, 0.9, 0.95, 1.0, 0.8),
    low_limit_w=200_000.0,
    high_limit_w=205_000.0,
    routing=Routing(parked_share=0.1),
)


class TestNormal:
    def test_the_first_step_commands_all_servers_and_the_next_none(self) -> None:
        guarded = GuardedRow(policy=FixedPolicy(SLOW))
        first = guarded.step(0.8 * LIMIT_W)
        assert (first.mode, first.setting) == (GuardMode.NORMAL, SLOW)
        assert first.command.tolist() == list(range(SERVERS))
        guarded.step(0.8 * LIMIT_W)
        assert guarded.all[-1].is_empty
        assert not guarded.all[-1].events

    def test_a_quiet_step_returns_the_same_state_object(self) -> None:
        class Same(FixedPolicy):
            def decide(self, state, observed):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG002
                return state, self.setting

        guarded = GuardedRow(policy=Same(SLOW)).steady()
        before = guarded.state
        guarded.step(0.9 * LIMIT_W)
        assert guarded.state is before

    def test_the_policy_receives_the_budget_in_force(self) -> None:
        guarded = GuardedRow().steady()
        guarded.budget = Budget(0.9 * LIMIT_W, 1e9)
        guarded.step(0.8 * LIMIT_W)
        assert guarded.state.policy[-1].budget_w == 0.9 * LIMIT_W

    def test_the_policy_receives_a_lower_limit_before_it_holds(self) -> None:
        guarded = GuardedRow().steady()
        commands = guarded.step(0.8 * LIMIT_W, coming_w=0.7 * LIMIT_W)
        assert guarded.state.policy[-1].budget_w == 0.7 * LIMIT_W
        assert commands.mode is GuardMode.NORMAL  # 80 % is above the coming limit, not above the present one

    def test_a_changed_setting_is_sent_to_the_affected_servers(self) -> None:
        guarded = GuardedRow().steady()
        guarded.guard.policy = FixedPolicy(Setting(clocks=Clocks(low_token=0.8)))
        assert guarded.step(0.8 * LIMIT_W).command.tolist() == list(range(0, SERVERS, 2))

    def test_admission_limits_change_without_commands_to_servers(self) -> None:
        guarded = GuardedRow().steady()
        guarded.guard.policy = FixedPolicy(Setting(low_limit_w=150_000.0))
        commands = guarded.step(0.8 * LIMIT_W)
        assert commands.is_empty
        assert commands.setting.low_limit_w == 150_000.0


class TestBrake:
    def test_a_reading_above_the_budget_brakes_all_at_once(self) -> None:
        guarded = GuardedRow().steady()
        commands = guarded.step(LIMIT_W + 1)
        assert commands.mode is GuardMode.BRAKED
        assert commands.brake.tolist() == list(range(SERVERS))
        assert (guarded.state.brakes, guarded.state.cause) == (1, Cause.OVER_BUDGET)

    def test_a_reading_at_the_budget_does_not_brake(self) -> None:
        assert GuardedRow().steady().step(LIMIT_W).mode is GuardMode.NORMAL

    def test_repeated_readings_above_the_budget_are_one_brake(self) -> None:
        guarded = GuardedRow().steady()
        for _ in range(5):
            guarded.step(1.1 * LIMIT_W)
        assert guarded.state.brakes == 1
        assert sum(commands.brake.size > 0 for commands in guarded.all) == 1

    def test_the_brake_holds_for_ten_seconds_and_is_released_below_93_percent(self) -> None:
        guarded = GuardedRow().steady()
        guarded.step(1.1 * LIMIT_W)
        modes = [guarded.step(0.4 * LIMIT_W, after_s=1.0).mode for _ in range(15)]
        assert modes == [GuardMode.BRAKED] * 14 + [GuardMode.RELEASING]
        assert guarded.all[-1].release.tolist() == list(range(SERVERS))

    def test_the_brake_is_not_released_at_93_percent(self) -> None:
        guarded = GuardedRow().steady()
        guarded.step(1.1 * LIMIT_W)
        for _ in range(20):
            assert guarded.step(0.93 * LIMIT_W).mode is GuardMode.BRAKED

    def test_a_reading_from_before_the_brake_does_not_release_it(self) -> None:
        guarded = GuardedRow(settings=GuardSettings(rating_w=LIMIT_W, telemetry_delay_s=30.0)).steady()
        guarded.step(1.1 * LIMIT_W)
        guarded.reading = Reading(guarded.now_s - 1.0, 0.5 * LIMIT_W)
        for _ in range(7):
            assert guarded.step().mode is GuardMode.BRAKED

    def test_a_release_keeps_worst_case_clocks_before_the_normal_state(self) -> None:
        guarded = GuardedRow().steady()
        guarded.step(1.1 * LIMIT_W)
        while guarded.state.mode is GuardMode.BRAKED:
            guarded.step(0.4 * LIMIT_W)
        assert guarded.guard.row.worst_w(guarded.all[-1].setting.clocks) <= LIMIT_W
        modes = [guarded.step(0.8 * LIMIT_W).mode for _ in range(5)]
        assert modes == [GuardMode.RELEASING] * 4 + [GuardMode.NORMAL]

    def test_a_late_reading_from_before_the_release_does_not_brake_again(self) -> None:
        guarded = GuardedRow().steady()
        guarded.step(1.1 * LIMIT_W)
        over = guarded.reading
        while guarded.state.mode is GuardMode.BRAKED:
            guarded.step(0.4 * LIMIT_W)
        guarded.reading = over
        guarded.step()
        assert guarded.state.brakes == 1

    def test_a_reading_above_the_budget_during_the_release_is_a_second_brake(self) -> None:
        guarded = GuardedRow().steady()
        guarded.step(1.1 * LIMIT_W)
        while guarded.state.mode is GuardMode.BRAKED:
            guarded.step(0.4 * LIMIT_W)
        assert guarded.step(1.01 * LIMIT_W).mode is GuardMode.BRAKED
        assert guarded.state.brakes == 2

    def test_a_late_reading_above_the_budget_brakes_though_it_is_stale(self) -> None:
        guarded = GuardedRow().steady()
        guarded.step(after_s=7.0)
        guarded.reading = Reading(guarded.now_s - 6.5, 1.05 * LIMIT_W)
        assert guarded.step(after_s=1.0).mode is GuardMode.BRAKED

    def test_without_a_release_hold_the_row_returns_directly_to_normal(self) -> None:
        guarded = GuardedRow(settings=GuardSettings(rating_w=LIMIT_W, release_hold_s=0.0)).steady()
        guarded.step(1.1 * LIMIT_W)
        while guarded.state.mode is GuardMode.BRAKED:
            guarded.step(0.4 * LIMIT_W)
        assert guarded.state.mode is GuardMode.NORMAL

    def test_the_policy_does_not_receive_readings_of_the_braked_row(self) -> None:
        guarded = GuardedRow().steady()
        guarded.step(1.1 * LIMIT_W)
        while guarded.state.mode is not GuardMode.NORMAL:
            guarded.step(0.4 * LIMIT_W)
        received = [observed.reading.row_w for observed in guarded.state.policy]
        assert received == [0.8 * LIMIT_W] * 3 + [0.4 * LIMIT_W]

    def test_servers_that_ignore_the_brake_are_commanded_again(self) -> None:
        guarded = GuardedRow().steady()
        guarded.step(1.1 * LIMIT_W)
        guarded.held[BRAKE, :3] = 0.0
        again = [guarded.step(0.99 * LIMIT_W).brake.tolist() for _ in range(6)]
        assert [0, 1, 2] in again
        assert guarded.state.brakes == 1

    def test_a_guard_that_starts_with_braked_servers_takes_over_the_brake(self) -> None:
        guarded = GuardedRow()
        guarded.held[BRAKE] = 1.0
        guarded.step(0.4 * LIMIT_W)
        assert guarded.step(0.4 * LIMIT_W).mode is GuardMode.BRAKED
        assert (guarded.state.cause, guarded.state.brakes) == (Cause.FOUND_BRAKED, 0)


class TestBudget:
    def test_an_expired_budget_degrades_and_keeps_telemetry(self) -> None:
        guarded = GuardedRow().steady()
        guarded.budget = Budget(LIMIT_W, guarded.now_s + 1)
        commands = guarded.step(0.8 * LIMIT_W)
        assert (commands.mode, commands.events[-1].cause) == (GuardMode.DEGRADED, Cause.BUDGET_EXPIRED)
        assert commands.setting.clocks == guarded.settings.degraded_clocks

    def test_a_row_that_never_had_a_budget_is_degraded(self) -> None:
        guarded = GuardedRow()
        guarded.budget = None
        assert guarded.step(0.8 * LIMIT_W).mode is GuardMode.DEGRADED
        assert guarded.state.cause is Cause.NO_BUDGET

    def test_a_new_budget_ends_the_degraded_state(self) -> None:
        guarded = GuardedRow().steady()
        guarded.budget = Budget(LIMIT_W, guarded.now_s + 1)
        guarded.step(0.8 * LIMIT_W)
        guarded.budget = Budget(LIMIT_W, 1e9)
        assert guarded.step(0.8 * LIMIT_W).mode is GuardMode.NORMAL

    def test_after_expiry_the_lower_of_the_last_and_the_standing_limit_holds(self) -> None:
        settings = GuardSettings(rating_w=LIMIT_W, standing_w=0.9 * LIMIT_W)
        for last_w, holds_w in [(LIMIT_W, 0.9 * LIMIT_W), (0.8 * LIMIT_W, 0.8 * LIMIT_W)]:
            guarded = GuardedRow(settings=settings)
            guarded.budget = Budget(last_w, 1e9)
            guarded.steady(0.7 * LIMIT_W)
            guarded.budget = Budget(last_w, guarded.now_s)
            guarded.step(0.7 * LIMIT_W)
            assert guarded.state.limit_w == holds_w
            assert guarded.step(holds_w + 1).mode is GuardMode.BRAKED

    def test_before_expiry_the_policy_receives_the_limit_that_follows(self) -> None:
        guarded = GuardedRow(settings=GuardSettings(rating_w=LIMIT_W, standing_w=0.9 * LIMIT_W)).steady()
        guarded.budget = Budget(LIMIT_W, guarded.now_s + 30)
        guarded.step(0.95 * LIMIT_W)
        assert guarded.state.policy[-1].budget_w == 0.9 * LIMIT_W
        assert guarded.state.mode is GuardMode.NORMAL

    @pytest.mark.parametrize("limit_w", [-1.0, 0.0, LIMIT_W * 1.01, nan])
    def test_an_impossible_budget_is_not_valid(self, limit_w: float) -> None:
        guarded = GuardedRow().steady()
        guarded.budget = Budget(limit_w, 1e9)
        assert guarded.step(0.8 * LIMIT_W).mode is GuardMode.DEGRADED
        assert guarded.state.limit_w == LIMIT_W


class TestCalm:
    def test_nothing_changes_while_the_guard_is_calm(self) -> None:
        guarded = GuardedRow(policy=FixedPolicy(SLOW, calm_w=0.9 * LIMIT_W)).steady()
        guarded.budget = Budget(LIMIT_W, 10_000.0)
        calm = guarded.guard.calm(guarded.state, guarded.telemetry())
        assert calm == (0.9 * LIMIT_W, 10_000.0 - 60.0)
        while guarded.now_s + 2 < calm.until_s:
            assert guarded.step(0.899 * LIMIT_W).is_empty

    def test_the_calm_level_is_never_above_the_budget(self) -> None:
        guarded = GuardedRow(policy=FixedPolicy(calm_w=inf)).steady()
        assert guarded.guard.calm(guarded.state, guarded.telemetry()).below_w == LIMIT_W

    def test_the_guard_is_not_calm_while_an_order_is_open(self) -> None:
        guarded = GuardedRow(policy=FixedPolicy(SLOW))
        guarded.step(0.8 * LIMIT_W)
        assert guarded.guard.calm(guarded.state, guarded.telemetry()) == NOT_CALM

    @pytest.mark.parametrize("mode", [GuardMode.TELEMETRY_LOST, GuardMode.BRAKED, GuardMode.DEGRADED])
    def test_the_guard_is_calm_only_in_the_normal_state(self, mode: GuardMode) -> None:
        guarded = GuardedRow().steady()
        guarded.state = guarded.state._replace(mode=mode)
        assert guarded.guard.calm(guarded.state, guarded.telemetry()) == NOT_CALM


def test_a_row_without_read_backs_is_not_verified_and_still_brakes() -> None:
    guarded = GuardedRow(read_back=False).steady()
    guarded.held[:2] = 1.0
    assert guarded.step(0.8 * LIMIT_W).is_empty
    assert guarded.step(1.1 * LIMIT_W).brake.size == SERVERS


def test_arrays_of_the_state_are_never_written_to() -> None:
    guarded = GuardedRow(policy=FixedPolicy(SLOW)).steady()
    kept = guarded.state
    before = kept.commands.expected.copy()
    guarded.step(1.1 * LIMIT_W)
    for _ in range(20):
        guarded.step(0.5 * LIMIT_W)
    np.testing.assert_array_equal(kept.commands.expected, before)
