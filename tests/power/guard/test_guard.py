"""Every transition of docs/explanation/power/guard.md."""

from math import inf, nan

import numpy as np
import pytest

from power.controls import Clocks, Routing, Setting
from power.guard import NOT_CALM, Cause, GuardMode, GuardSettings
from power.guard.telemetry import BRAKE
from power.telemetry import Budget, Reading
from tests.power.guard.rows import LIMIT_W, SERVERS, Led, Wants

SLOW = Setting(
    clocks=Clocks(0.5, 0.9, 0.95, 1.0, 0.8),
    low_limit_w=200_000.0,
    high_limit_w=205_000.0,
    routing=Routing(parked_share=0.1),
)


class TestNormal:
    def test_the_first_step_commands_all_servers_and_the_next_none(self) -> None:
        led = Led(policy=Wants(SLOW))
        first = led.step(0.8 * LIMIT_W)
        assert (first.mode, first.setting) == (GuardMode.NORMAL, SLOW)
        assert first.command.tolist() == list(range(SERVERS))
        led.step(0.8 * LIMIT_W)
        assert led.all[-1].quiet
        assert not led.all[-1].events

    def test_the_quiet_state_is_the_same_object(self) -> None:
        class Same(Wants):
            def decide(self, state, observed):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG002
                return state, self.setting

        led = Led(policy=Same(SLOW)).steady()
        before = led.state
        led.step(0.9 * LIMIT_W)
        assert led.state is before

    def test_the_policy_sees_the_budget_in_force(self) -> None:
        led = Led().steady()
        led.budget = Budget(0.9 * LIMIT_W, 1e9)
        led.step(0.8 * LIMIT_W)
        assert led.state.policy[-1].budget_w == 0.9 * LIMIT_W

    def test_the_policy_is_given_a_lower_limit_before_it_holds(self) -> None:
        led = Led().steady()
        orders = led.step(0.8 * LIMIT_W, coming_w=0.7 * LIMIT_W)
        assert led.state.policy[-1].budget_w == 0.7 * LIMIT_W
        assert orders.mode is GuardMode.NORMAL  # 80 % is above the coming limit, not above the present one

    def test_a_changed_setting_is_sent_to_the_affected_servers(self) -> None:
        led = Led().steady()
        led.guard.policy = Wants(Setting(clocks=Clocks(low_token=0.8)))
        assert led.step(0.8 * LIMIT_W).command.tolist() == list(range(0, SERVERS, 2))

    def test_holds_change_without_an_order_to_servers(self) -> None:
        led = Led().steady()
        led.guard.policy = Wants(Setting(low_limit_w=150_000.0))
        orders = led.step(0.8 * LIMIT_W)
        assert orders.quiet
        assert orders.setting.low_limit_w == 150_000.0


class TestBrake:
    def test_a_reading_above_the_budget_brakes_all_at_once(self) -> None:
        led = Led().steady()
        orders = led.step(LIMIT_W + 1)
        assert orders.mode is GuardMode.BRAKED
        assert orders.brake.tolist() == list(range(SERVERS))
        assert (led.state.brakes, led.state.cause) == (1, Cause.OVER_BUDGET)

    def test_at_the_budget_is_not_above_it(self) -> None:
        assert Led().steady().step(LIMIT_W).mode is GuardMode.NORMAL

    def test_one_brake_is_one_however_many_readings_are_above(self) -> None:
        led = Led().steady()
        for _ in range(5):
            led.step(1.1 * LIMIT_W)
        assert led.state.brakes == 1
        assert sum(orders.brake.size > 0 for orders in led.all) == 1

    def test_it_is_held_for_ten_seconds_once_it_bites_and_released_below_93_percent(self) -> None:
        led = Led().steady()
        led.step(1.1 * LIMIT_W)
        modes = [led.step(0.4 * LIMIT_W, after_s=1.0).mode for _ in range(15)]
        assert modes == [GuardMode.BRAKED] * 14 + [GuardMode.RELEASING]
        assert led.all[-1].release.tolist() == list(range(SERVERS))

    def test_it_is_not_released_at_93_percent(self) -> None:
        led = Led().steady()
        led.step(1.1 * LIMIT_W)
        for _ in range(20):
            assert led.step(0.93 * LIMIT_W).mode is GuardMode.BRAKED

    def test_a_reading_from_before_the_brake_does_not_release_it(self) -> None:
        led = Led(settings=GuardSettings(rating_w=LIMIT_W, telemetry_delay_s=30.0)).steady()
        led.step(1.1 * LIMIT_W)
        led.reading = Reading(led.now_s - 1.0, 0.5 * LIMIT_W)
        for _ in range(7):
            assert led.step().mode is GuardMode.BRAKED

    def test_releasing_keeps_the_worst_case_clocks_and_then_restores(self) -> None:
        led = Led().steady()
        led.step(1.1 * LIMIT_W)
        while led.state.mode is GuardMode.BRAKED:
            led.step(0.4 * LIMIT_W)
        assert led.guard.row.worst_w(led.all[-1].setting.clocks) <= LIMIT_W
        modes = [led.step(0.8 * LIMIT_W).mode for _ in range(5)]
        assert modes == [GuardMode.RELEASING] * 4 + [GuardMode.NORMAL]

    def test_a_late_reading_from_before_the_release_does_not_brake_again(self) -> None:
        led = Led().steady()
        led.step(1.1 * LIMIT_W)
        over = led.reading
        while led.state.mode is GuardMode.BRAKED:
            led.step(0.4 * LIMIT_W)
        led.reading = over
        led.step()
        assert led.state.brakes == 1

    def test_above_the_budget_again_while_releasing_is_a_second_brake(self) -> None:
        led = Led().steady()
        led.step(1.1 * LIMIT_W)
        while led.state.mode is GuardMode.BRAKED:
            led.step(0.4 * LIMIT_W)
        assert led.step(1.01 * LIMIT_W).mode is GuardMode.BRAKED
        assert led.state.brakes == 2

    def test_a_late_reading_above_the_budget_brakes_though_it_is_stale(self) -> None:
        led = Led().steady()
        led.step(after_s=7.0)
        led.reading = Reading(led.now_s - 6.5, 1.05 * LIMIT_W)
        assert led.step(after_s=1.0).mode is GuardMode.BRAKED

    def test_a_plain_policy_may_be_released_as_polca_is(self) -> None:
        led = Led(settings=GuardSettings(rating_w=LIMIT_W, release_hold_s=0.0)).steady()
        led.step(1.1 * LIMIT_W)
        while led.state.mode is GuardMode.BRAKED:
            led.step(0.4 * LIMIT_W)
        assert led.state.mode is GuardMode.NORMAL

    def test_the_policy_is_not_shown_what_the_brake_makes_of_the_row(self) -> None:
        led = Led().steady()
        led.step(1.1 * LIMIT_W)
        while led.state.mode is not GuardMode.NORMAL:
            led.step(0.4 * LIMIT_W)
        shown = [observed.reading.row_w for observed in led.state.policy]
        assert shown == [0.8 * LIMIT_W] * 3 + [0.4 * LIMIT_W]

    def test_servers_that_ignore_the_brake_are_commanded_again(self) -> None:
        led = Led().steady()
        led.step(1.1 * LIMIT_W)
        led.held[BRAKE, :3] = 0.0
        again = [led.step(0.99 * LIMIT_W).brake.tolist() for _ in range(6)]
        assert [0, 1, 2] in again
        assert led.state.brakes == 1

    def test_a_guard_that_finds_its_servers_braked_takes_the_brake_over(self) -> None:
        led = Led()
        led.held[BRAKE] = 1.0
        led.step(0.4 * LIMIT_W)
        assert led.step(0.4 * LIMIT_W).mode is GuardMode.BRAKED
        assert (led.state.cause, led.state.brakes) == (Cause.FOUND_BRAKED, 0)


class TestBudget:
    def test_an_expired_budget_degrades_and_keeps_telemetry(self) -> None:
        led = Led().steady()
        led.budget = Budget(LIMIT_W, led.now_s + 1)
        orders = led.step(0.8 * LIMIT_W)
        assert (orders.mode, orders.events[-1].cause) == (GuardMode.DEGRADED, Cause.BUDGET_EXPIRED)
        assert orders.setting.clocks == led.settings.degraded_clocks

    def test_no_budget_ever(self) -> None:
        led = Led()
        led.budget = None
        assert led.step(0.8 * LIMIT_W).mode is GuardMode.DEGRADED
        assert led.state.cause is Cause.NO_BUDGET

    def test_a_new_budget_ends_it(self) -> None:
        led = Led().steady()
        led.budget = Budget(LIMIT_W, led.now_s + 1)
        led.step(0.8 * LIMIT_W)
        led.budget = Budget(LIMIT_W, 1e9)
        assert led.step(0.8 * LIMIT_W).mode is GuardMode.NORMAL

    def test_after_expiry_the_lower_of_the_last_and_the_standing_limit_holds(self) -> None:
        settings = GuardSettings(rating_w=LIMIT_W, standing_w=0.9 * LIMIT_W)
        for last_w, holds_w in [(LIMIT_W, 0.9 * LIMIT_W), (0.8 * LIMIT_W, 0.8 * LIMIT_W)]:
            led = Led(settings=settings)
            led.budget = Budget(last_w, 1e9)
            led.steady(0.7 * LIMIT_W)
            led.budget = Budget(last_w, led.now_s)
            led.step(0.7 * LIMIT_W)
            assert led.state.limit_w == holds_w
            assert led.step(holds_w + 1).mode is GuardMode.BRAKED

    def test_before_it_expires_the_policy_is_given_what_holds_afterwards(self) -> None:
        led = Led(settings=GuardSettings(rating_w=LIMIT_W, standing_w=0.9 * LIMIT_W)).steady()
        led.budget = Budget(LIMIT_W, led.now_s + 30)
        led.step(0.95 * LIMIT_W)
        assert led.state.policy[-1].budget_w == 0.9 * LIMIT_W
        assert led.state.mode is GuardMode.NORMAL

    @pytest.mark.parametrize("limit_w", [-1.0, 0.0, LIMIT_W * 1.01, nan])
    def test_an_impossible_budget_is_not_valid(self, limit_w: float) -> None:
        led = Led().steady()
        led.budget = Budget(limit_w, 1e9)
        assert led.step(0.8 * LIMIT_W).mode is GuardMode.DEGRADED
        assert led.state.limit_w == LIMIT_W


class TestCalm:
    def test_nothing_changes_while_it_is_calm(self) -> None:
        led = Led(policy=Wants(SLOW, calm_w=0.9 * LIMIT_W)).steady()
        led.budget = Budget(LIMIT_W, 10_000.0)
        calm = led.guard.calm(led.state, led.telemetry())
        assert calm == (0.9 * LIMIT_W, 10_000.0 - 60.0)
        while led.now_s + 2 < calm.until_s:
            assert led.step(0.899 * LIMIT_W).quiet

    def test_never_above_the_budget(self) -> None:
        led = Led(policy=Wants(calm_w=inf)).steady()
        assert led.guard.calm(led.state, led.telemetry()).below_w == LIMIT_W

    def test_not_while_an_order_is_open(self) -> None:
        led = Led(policy=Wants(SLOW))
        led.step(0.8 * LIMIT_W)
        assert led.guard.calm(led.state, led.telemetry()) == NOT_CALM

    @pytest.mark.parametrize("mode", [GuardMode.TELEMETRY_LOST, GuardMode.BRAKED, GuardMode.DEGRADED])
    def test_only_in_the_normal_state(self, mode: GuardMode) -> None:
        led = Led().steady()
        led.state = led.state._replace(mode=mode)
        assert led.guard.calm(led.state, led.telemetry()) == NOT_CALM


def test_without_read_backs_nothing_is_verified_and_everything_else_holds() -> None:
    led = Led(read_back=False).steady()
    led.held[:2] = 1.0
    assert led.step(0.8 * LIMIT_W).quiet
    assert led.step(1.1 * LIMIT_W).brake.size == SERVERS


def test_arrays_of_the_state_are_never_written_to() -> None:
    led = Led(policy=Wants(SLOW)).steady()
    kept = led.state
    before = kept.commands.expected.copy()
    led.step(1.1 * LIMIT_W)
    for _ in range(20):
        led.step(0.5 * LIMIT_W)
    np.testing.assert_array_equal(kept.commands.expected, before)
