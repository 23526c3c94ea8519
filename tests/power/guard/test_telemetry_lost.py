"""A row without telemetry: stale readings, and how long they may last."""

from math import inf, nan

import pytest

from power.controls import UNTOUCHED, Clocks, Routing, Setting
from power.guard import Cause, EventKind, GuardMode, GuardSettings, TripCurve
from power.guard.telemetry import BRAKE
from power.telemetry import Budget, Reading
from tests.power.guard.rows import LIMIT_W, SERVERS, Led, Wants, no_faster

SLOW = Setting(
    clocks=Clocks(0.5, 0.9, 0.95, 1.0, 0.8),
    low_limit_w=200_000.0,
    high_limit_w=205_000.0,
    routing=Routing(parked_share=0.1),
)


class TestStaleTelemetry:
    def test_a_reading_is_valid_for_two_periods_beyond_its_delay(self) -> None:
        led = Led().steady()
        assert [led.step(after_s=2.0).mode for _ in range(4)] == [GuardMode.NORMAL] * 3 + [GuardMode.TELEMETRY_LOST]
        (event,) = led.all[-1].events
        assert (event.kind, event.mode, event.cause) == (
            EventKind.MODE,
            GuardMode.TELEMETRY_LOST,
            Cause.STALE_TELEMETRY,
        )

    def test_without_telemetry_the_worst_case_fits_and_admission_is_lower(self) -> None:
        led = Led().steady()
        setting = led.step(after_s=7.0).setting
        assert led.guard.row.worst_w(setting.clocks) <= LIMIT_W
        assert no_faster(setting.clocks, led.settings.degraded_clocks)
        assert (setting.low_limit_w, setting.high_limit_w) == (0.90 * LIMIT_W, 0.95 * LIMIT_W)

    def test_without_telemetry_clocks_never_rise_above_the_policys(self) -> None:
        led = Led(policy=Wants(Setting(clocks=Clocks(*[0.3] * 5), low_limit_w=1.0))).steady()
        setting = led.step(after_s=7.0).setting
        assert setting.clocks == Clocks(*[0.3] * 5)
        assert setting.low_limit_w == 1.0

    def test_an_hour_without_telemetry_needs_no_brake_if_the_worst_case_fits(self) -> None:
        led = Led().steady()
        for _ in range(1800):
            led.step()
        assert (led.state.mode, led.state.brakes) == (GuardMode.TELEMETRY_LOST, 0)
        assert sum(orders.command.size for orders in led.all[4:]) == SERVERS  # one order each

    def test_telemetry_is_valid_again_after_two_readings(self) -> None:
        led = Led().steady()
        led.step(after_s=7.0)
        assert [led.step(0.8 * LIMIT_W).mode for _ in range(2)] == [GuardMode.TELEMETRY_LOST, GuardMode.NORMAL]
        assert led.all[-1].events[-1].cause is Cause.RECOVERED

    def test_the_same_reading_again_is_not_a_second_one(self) -> None:
        led = Led().steady()
        led.step(after_s=7.0)
        led.step(0.8 * LIMIT_W)
        assert led.step(after_s=1.0).mode is GuardMode.TELEMETRY_LOST

    @pytest.mark.parametrize("row_w", [nan, -inf, -5.0])
    def test_an_impossible_reading_is_not_valid(self, row_w: float) -> None:
        led = Led().steady()
        assert led.step(row_w).mode is GuardMode.TELEMETRY_LOST
        assert led.state.brakes == 0

    def test_a_reading_from_the_future_is_not_valid(self) -> None:
        led = Led().steady()
        led.reading = Reading(led.now_s + 3600, 0.8 * LIMIT_W)
        assert led.step().mode is GuardMode.TELEMETRY_LOST

    def test_too_much_brakes_also_from_a_meter_whose_clock_is_ahead_or_whose_number_ran_over(self) -> None:
        for at_s, row_w in ((0.3, 1.07 * LIMIT_W), (0.0, inf)):
            led = Led().steady()
            led.reading = Reading(led.now_s + 2.0 + at_s, row_w)
            assert led.step().mode is GuardMode.BRAKED
            assert led.step().mode is GuardMode.BRAKED
            assert led.state.brakes == 1

    def test_a_coming_cut_lowers_a_row_without_telemetry_in_time(self) -> None:
        led = Led().steady()
        for _ in range(100):
            led.step()
        for _ in range(30):
            led.step(coming_w=0.88 * LIMIT_W)
        led.budget = Budget(0.88 * LIMIT_W, 1e9)
        assert [led.step().mode for _ in range(5)] == [GuardMode.TELEMETRY_LOST] * 5

    def test_no_reading_ever(self) -> None:
        """A new guard waits for the first reading, commands nothing, and then telemetry counts as lost."""
        led = Led()
        waited = [led.step() for _ in range(3)]
        assert all(orders.mode is GuardMode.NORMAL and orders.quiet and not orders.events for orders in waited)
        assert waited[-1].setting.high_limit_w == led.settings.telemetry_lost_high_limit * LIMIT_W
        assert led.step().mode is GuardMode.TELEMETRY_LOST
        assert led.all[-1].events[-1].cause is Cause.NO_TELEMETRY
        assert led.all[-1].command.size == led.servers

    def test_the_first_reading_ends_the_waiting(self) -> None:
        led = Led()
        led.held[:2] = 0.6  # the clocks of an earlier guard
        led.step()
        assert (led.held[:2] == 0.6).all()
        orders = led.step(0.8 * LIMIT_W)
        assert (orders.mode, orders.setting, orders.command.size) == (GuardMode.NORMAL, led.policy.setting, led.servers)

    def test_one_that_starts_with_an_old_reading_asks_no_policy(self) -> None:
        led = Led(now_s=100.0)
        led.reading = Reading(10.0, 0.8 * LIMIT_W)
        led.held[:2] = 0.4  # at which no load can exceed the budget
        for _ in range(3):
            assert led.step().quiet
        assert led.state.policy == ()
        assert led.step().mode is GuardMode.TELEMETRY_LOST

    def test_a_start_without_telemetry_brakes_if_unknown_clocks_could_trip_the_breaker(self) -> None:
        """No clocks were commanded yet, so full clocks count."""
        led = Led(settings=GuardSettings(rating_w=LIMIT_W, trip=TripCurve(time_constant_s=150.0)), read_back=False)
        assert [led.step().mode for _ in range(3)] == [GuardMode.NORMAL, GuardMode.NORMAL, GuardMode.BRAKED]
        assert led.state.cause is Cause.TELEMETRY_LOST_TOO_LONG


class TestBlindTooLong:
    def test_the_brake_comes_before_the_breakers_curve_where_the_worst_case_does_not_fit(self) -> None:
        settings = GuardSettings(rating_w=LIMIT_W, lowest_clock=0.9)
        led = Led(settings=settings).steady()
        last_s = led.now_s
        while led.state.mode is not GuardMode.BRAKED:
            led.step(after_s=1.0)
        worst_w = led.guard.row.worst_w(led.all[-2].setting.clocks)
        assert worst_w > LIMIT_W
        working_s = led.now_s + settings.brake_s - last_s
        assert working_s <= settings.trip.seconds_to_trip(worst_w / LIMIT_W)
        assert led.state.cause is Cause.TELEMETRY_LOST_TOO_LONG
        assert led.state.brakes == 1

    def test_servers_that_do_not_follow_count_as_they_are(self) -> None:
        led = Led().steady()
        led.unresponsive[:] = True
        for _ in range(6):
            led.step()
        assert (led.state.mode, led.state.cause) == (GuardMode.BRAKED, Cause.TELEMETRY_LOST_TOO_LONG)

    def test_in_band_clocks_are_tried_before_the_brake_where_it_would_still_be_in_time(self) -> None:
        """64 servers behind the budget of 40: 0.75 of the curve's time is over at the first step without telemetry."""
        tried, unresponsive = (Led(servers=64).steady() for _ in range(2))
        unresponsive.unresponsive[:] = True
        assert [led.step(after_s=7.5).mode for led in (tried, unresponsive)] == [GuardMode.TELEMETRY_LOST] * 2
        assert [led.step(after_s=2.0).mode for led in (tried, unresponsive)] == [
            GuardMode.TELEMETRY_LOST,
            GuardMode.BRAKED,
        ]
        full_w = unresponsive.guard.row.worst_w(UNTOUCHED.clocks)
        assert 7.5 + 2.0 + unresponsive.settings.brake_s <= unresponsive.settings.trip.seconds_to_trip(full_w / LIMIT_W)

    def test_braked_without_telemetry_it_releases_when_read_back_clocks_fit_any_load(self) -> None:
        led = Led().steady()
        led.unresponsive[:] = True
        while led.state.mode is not GuardMode.BRAKED:
            led.step()
        for _ in range(20):
            assert led.step().mode is GuardMode.BRAKED
        led.unresponsive[:] = False
        for _ in range(40):
            led.step()
        assert (led.state.mode, led.state.brakes) == (GuardMode.TELEMETRY_LOST, 1)
        assert not led.held[BRAKE].any()

    @pytest.mark.parametrize(("old_s", "row_w"), [(10.0, 1.05 * LIMIT_W), (-0.3, 1.05 * LIMIT_W), (0.0, inf)])
    def test_clocks_alone_do_not_release_once_a_reading_was_above_the_budget(self, old_s: float, row_w: float) -> None:
        """Late, from the future or infinite: lost telemetry is no longer the only cause of the brake."""
        led = self._braked_with_clocks_that_fit()
        led.reading = Reading(led.now_s + 2.0 - old_s, row_w)
        assert led.step().mode is GuardMode.BRAKED
        assert (led.state.cause, led.state.brakes) == (Cause.OVER_BUDGET, 1)
        for _ in range(20):
            led.reading = Reading(led.now_s - 5.0, 0.4 * LIMIT_W)
            assert led.step().mode is GuardMode.BRAKED  # 7 s old: not fresh
        assert led.step(0.4 * LIMIT_W).mode is GuardMode.RELEASING
        assert led.state.brakes == 1

    def test_a_late_reading_below_the_budget_does_not_keep_the_brake(self) -> None:
        led = self._braked_with_clocks_that_fit()
        led.reading = Reading(led.now_s - 8.0, 0.95 * LIMIT_W)
        assert led.step().mode is GuardMode.TELEMETRY_LOST

    @staticmethod
    def _braked_with_clocks_that_fit() -> Led:
        """Braked for lost telemetry; the next step would release."""
        led = Led().steady()
        led.unresponsive[:] = True
        while led.state.mode is not GuardMode.BRAKED:
            led.step()
        for _ in range(20):
            led.step()
        led.unresponsive[:] = False
        while not led.step().command.size:
            pass
        assert (led.state.mode, led.state.cause) == (GuardMode.BRAKED, Cause.TELEMETRY_LOST_TOO_LONG)
        return led

    def test_it_stays_braked_until_telemetry_is_back(self) -> None:
        led = Led(settings=GuardSettings(rating_w=LIMIT_W, lowest_clock=0.9)).steady()
        for _ in range(100):
            led.step()
        assert led.state.mode is GuardMode.BRAKED
        assert led.step(0.4 * LIMIT_W).mode is GuardMode.RELEASING
        assert led.state.brakes == 1
