"""A row without telemetry: stale readings, and how long they may last."""

from math import inf, nan

import pytest

from power.controls import UNTOUCHED, Clocks, Routing, Setting
from power.guard import Cause, EventKind, GuardMode, GuardSettings, TripCurve
from power.guard.telemetry import BRAKE
from power.telemetry import Budget, Reading
from tests.power.guard.rows import LIMIT_W, SERVERS, FixedPolicy, GuardedRow, no_faster

SLOW = Setting(
    clocks=Clocks(0.5, 0.9, 0.95, 1.0, 0.8),
    low_limit_w=200_000.0,
    high_limit_w=205_000.0,
    routing=Routing(parked_share=0.1),
)


class TestStaleTelemetry:
    def test_a_reading_is_valid_for_two_periods_beyond_its_delay(self) -> None:
        guarded = GuardedRow().steady()
        assert [guarded.step(after_s=2.0).mode for _ in range(4)] == [GuardMode.NORMAL] * 3 + [GuardMode.TELEMETRY_LOST]
        (event,) = guarded.all[-1].events
        assert (event.kind, event.mode, event.cause) == (
            EventKind.MODE,
            GuardMode.TELEMETRY_LOST,
            Cause.STALE_TELEMETRY,
        )

    def test_without_telemetry_the_worst_case_fits_and_admission_is_lower(self) -> None:
        guarded = GuardedRow().steady()
        setting = guarded.step(after_s=7.0).setting
        assert guarded.guard.row.worst_w(setting.clocks) <= LIMIT_W
        assert no_faster(setting.clocks, guarded.settings.degraded_clocks)
        assert (setting.low_limit_w, setting.high_limit_w) == (0.90 * LIMIT_W, 0.95 * LIMIT_W)

    def test_without_telemetry_clocks_never_rise_above_the_policys(self) -> None:
        guarded = GuardedRow(policy=FixedPolicy(Setting(clocks=Clocks(*[0.3] * 5), low_limit_w=1.0))).steady()
        setting = guarded.step(after_s=7.0).setting
        assert setting.clocks == Clocks(*[0.3] * 5)
        assert setting.low_limit_w == 1.0

    def test_an_hour_without_telemetry_needs_no_brake_if_the_worst_case_fits(self) -> None:
        guarded = GuardedRow().steady()
        for _ in range(1800):
            guarded.step()
        assert (guarded.state.mode, guarded.state.brakes) == (GuardMode.TELEMETRY_LOST, 0)
        assert sum(commands.command.size for commands in guarded.all[4:]) == SERVERS  # one command each

    def test_telemetry_is_valid_again_after_two_readings(self) -> None:
        guarded = GuardedRow().steady()
        guarded.step(after_s=7.0)
        assert [guarded.step(0.8 * LIMIT_W).mode for _ in range(2)] == [GuardMode.TELEMETRY_LOST, GuardMode.NORMAL]
        assert guarded.all[-1].events[-1].cause is Cause.RECOVERED

    def test_a_repeated_reading_does_not_count_as_a_second_one(self) -> None:
        guarded = GuardedRow().steady()
        guarded.step(after_s=7.0)
        guarded.step(0.8 * LIMIT_W)
        assert guarded.step(after_s=1.0).mode is GuardMode.TELEMETRY_LOST

    @pytest.mark.parametrize("row_w", [nan, -inf, -5.0])
    def test_an_impossible_reading_is_not_valid(self, row_w: float) -> None:
        guarded = GuardedRow().steady()
        assert guarded.step(row_w).mode is GuardMode.TELEMETRY_LOST
        assert guarded.state.brakes == 0

    def test_a_reading_from_the_future_is_not_valid(self) -> None:
        guarded = GuardedRow().steady()
        guarded.reading = Reading(guarded.now_s + 3600, 0.8 * LIMIT_W)
        assert guarded.step().mode is GuardMode.TELEMETRY_LOST

    def test_a_reading_above_the_budget_brakes_also_from_the_future_or_if_infinite(self) -> None:
        for at_s, row_w in ((0.3, 1.07 * LIMIT_W), (0.0, inf)):
            guarded = GuardedRow().steady()
            guarded.reading = Reading(guarded.now_s + 2.0 + at_s, row_w)
            assert guarded.step().mode is GuardMode.BRAKED
            assert guarded.step().mode is GuardMode.BRAKED
            assert guarded.state.brakes == 1

    def test_a_coming_cut_lowers_a_row_without_telemetry_in_time(self) -> None:
        guarded = GuardedRow().steady()
        for _ in range(100):
            guarded.step()
        for _ in range(30):
            guarded.step(coming_w=0.88 * LIMIT_W)
        guarded.budget = Budget(0.88 * LIMIT_W, 1e9)
        assert [guarded.step().mode for _ in range(5)] == [GuardMode.TELEMETRY_LOST] * 5

    def test_a_guard_without_any_reading_waits_before_telemetry_counts_as_lost(self) -> None:
        """A new guard waits for the first reading, commands nothing, and then telemetry counts as lost."""
        guarded = GuardedRow()
        waited = [guarded.step() for _ in range(3)]
        assert all(
            commands.mode is GuardMode.NORMAL and commands.is_empty and not commands.events for commands in waited
        )
        assert waited[-1].setting.high_limit_w == guarded.settings.telemetry_lost_high_limit * LIMIT_W
        assert guarded.step().mode is GuardMode.TELEMETRY_LOST
        assert guarded.all[-1].events[-1].cause is Cause.NO_TELEMETRY
        assert guarded.all[-1].command.size == guarded.servers

    def test_the_first_reading_ends_the_wait(self) -> None:
        guarded = GuardedRow()
        guarded.held[:2] = 0.6  # the clocks of an earlier guard
        guarded.step()
        assert (guarded.held[:2] == 0.6).all()
        commands = guarded.step(0.8 * LIMIT_W)
        assert (commands.mode, commands.setting, commands.command.size) == (
            GuardMode.NORMAL,
            guarded.policy.setting,
            guarded.servers,
        )

    def test_a_guard_that_starts_with_an_old_reading_does_not_call_the_policy(self) -> None:
        guarded = GuardedRow(now_s=100.0)
        guarded.reading = Reading(10.0, 0.8 * LIMIT_W)
        guarded.held[:2] = 0.4  # at which no load can exceed the budget
        for _ in range(3):
            assert guarded.step().is_empty
        assert guarded.state.policy == ()
        assert guarded.step().mode is GuardMode.TELEMETRY_LOST

    def test_a_start_without_telemetry_brakes_if_unknown_clocks_could_trip_the_breaker(self) -> None:
        """No clocks were commanded yet, so full clocks count."""
        guarded = GuardedRow(
            settings=GuardSettings(rating_w=LIMIT_W, trip=TripCurve(time_constant_s=150.0)), read_back=False
        )
        assert [guarded.step().mode for _ in range(3)] == [GuardMode.NORMAL, GuardMode.NORMAL, GuardMode.BRAKED]
        assert guarded.state.cause is Cause.TELEMETRY_LOST_TOO_LONG


class TestTelemetryLostTooLong:
    def test_the_row_brakes_before_its_worst_case_could_trip_the_breaker(self) -> None:
        settings = GuardSettings(rating_w=LIMIT_W, lowest_clock=0.9)
        guarded = GuardedRow(settings=settings).steady()
        last_s = guarded.now_s
        while guarded.state.mode is not GuardMode.BRAKED:
            guarded.step(after_s=1.0)
        worst_w = guarded.guard.row.worst_w(guarded.all[-2].setting.clocks)
        assert worst_w > LIMIT_W
        working_s = guarded.now_s + settings.brake_s - last_s
        assert working_s <= settings.trip.seconds_to_trip(worst_w / LIMIT_W)
        assert guarded.state.cause is Cause.TELEMETRY_LOST_TOO_LONG
        assert guarded.state.brakes == 1

    def test_unresponsive_servers_count_at_their_actual_clocks(self) -> None:
        guarded = GuardedRow().steady()
        guarded.unresponsive[:] = True
        for _ in range(6):
            guarded.step()
        assert (guarded.state.mode, guarded.state.cause) == (GuardMode.BRAKED, Cause.TELEMETRY_LOST_TOO_LONG)

    def test_in_band_clocks_are_tried_first_if_a_later_brake_is_in_time(self) -> None:
        """64 servers behind the budget of 40: 0.75 of the curve's time is over at the first step without telemetry."""
        tried, unresponsive = (GuardedRow(servers=64).steady() for _ in range(2))
        unresponsive.unresponsive[:] = True
        assert [guarded.step(after_s=7.5).mode for guarded in (tried, unresponsive)] == [GuardMode.TELEMETRY_LOST] * 2
        assert [guarded.step(after_s=2.0).mode for guarded in (tried, unresponsive)] == [
            GuardMode.TELEMETRY_LOST,
            GuardMode.BRAKED,
        ]
        full_w = unresponsive.guard.row.worst_w(UNTOUCHED.clocks)
        assert 7.5 + 2.0 + unresponsive.settings.brake_s <= unresponsive.settings.trip.seconds_to_trip(full_w / LIMIT_W)

    def test_read_back_clocks_that_fit_any_load_release_the_brake(self) -> None:
        guarded = GuardedRow().steady()
        guarded.unresponsive[:] = True
        while guarded.state.mode is not GuardMode.BRAKED:
            guarded.step()
        for _ in range(20):
            assert guarded.step().mode is GuardMode.BRAKED
        guarded.unresponsive[:] = False
        for _ in range(40):
            guarded.step()
        assert (guarded.state.mode, guarded.state.brakes) == (GuardMode.TELEMETRY_LOST, 1)
        assert not guarded.held[BRAKE].any()

    @pytest.mark.parametrize(("old_s", "row_w"), [(10.0, 1.05 * LIMIT_W), (-0.3, 1.05 * LIMIT_W), (0.0, inf)])
    def test_clocks_alone_do_not_release_once_a_reading_was_above_the_budget(self, old_s: float, row_w: float) -> None:
        """Late, from the future or infinite: lost telemetry is no longer the only cause of the brake."""
        guarded = self._braked_with_clocks_that_fit()
        guarded.reading = Reading(guarded.now_s + 2.0 - old_s, row_w)
        assert guarded.step().mode is GuardMode.BRAKED
        assert (guarded.state.cause, guarded.state.brakes) == (Cause.OVER_BUDGET, 1)
        for _ in range(20):
            guarded.reading = Reading(guarded.now_s - 5.0, 0.4 * LIMIT_W)
            assert guarded.step().mode is GuardMode.BRAKED  # 7 s old: not fresh
        assert guarded.step(0.4 * LIMIT_W).mode is GuardMode.RELEASING
        assert guarded.state.brakes == 1

    def test_a_late_reading_below_the_budget_does_not_keep_the_brake(self) -> None:
        guarded = self._braked_with_clocks_that_fit()
        guarded.reading = Reading(guarded.now_s - 8.0, 0.95 * LIMIT_W)
        assert guarded.step().mode is GuardMode.TELEMETRY_LOST

    @staticmethod
    def _braked_with_clocks_that_fit() -> GuardedRow:
        """Braked for lost telemetry; the next step would release."""
        guarded = GuardedRow().steady()
        guarded.unresponsive[:] = True
        while guarded.state.mode is not GuardMode.BRAKED:
            guarded.step()
        for _ in range(20):
            guarded.step()
        guarded.unresponsive[:] = False
        while not guarded.step().command.size:
            pass
        assert (guarded.state.mode, guarded.state.cause) == (GuardMode.BRAKED, Cause.TELEMETRY_LOST_TOO_LONG)
        return guarded

    def test_the_row_stays_braked_until_telemetry_recovers(self) -> None:
        guarded = GuardedRow(settings=GuardSettings(rating_w=LIMIT_W, lowest_clock=0.9)).steady()
        for _ in range(100):
            guarded.step()
        assert guarded.state.mode is GuardMode.BRAKED
        assert guarded.step(0.4 * LIMIT_W).mode is GuardMode.RELEASING
        assert guarded.state.brakes == 1
