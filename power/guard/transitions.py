"""The health of telemetry at a step, and the next state: the table of docs/explanation/power/guard.md, row by row."""

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from power.guard.settings import GuardSettings
from power.guard.states import Cause, GuardMode, GuardState
from power.guard.telemetry import Telemetry
from power.telemetry import Budget, Reading

Change = tuple[GuardMode, Cause]


class TelemetryHealth(NamedTuple):
    now_s: float
    reading: Reading | None  # None for an impossible value too
    fresh: bool  # the reading is recent
    limit_w: float  # above it the brake engages
    policy_limit_w: float  # budget for the policy: lower when a lower limit is about to start
    planned: bool  # the limit is a planner's
    above_at_s: float  # when a reading above the limit was taken; minus infinity: never


def assess(telemetry: Telemetry, settings: GuardSettings, *, last_limit_w: float) -> TelemetryHealth:
    now_s, reading, budget, above_at_s = telemetry.now_s, telemetry.reading, telemetry.budget, -inf
    planned = budget is not None and is_valid(budget, settings, now_s=now_s)
    if budget is not None and planned:
        limit_w = policy_w = budget.limit_w
        if budget.expires_at_s <= now_s + settings.lead_s:
            policy_w = min(policy_w, settings.standing_limit_w)
    else:
        # The last budget may have been lower than the standing one for a reason that still applies.
        limit_w = policy_w = min(last_limit_w, settings.standing_limit_w)
    if reading is not None and reading.row_w > limit_w:
        above_at_s = min(reading.at_s, now_s)  # a reading from the future or an infinite one counts too
    if reading is not None and not (0 <= reading.row_w < inf and reading.at_s <= now_s):
        reading = None
    fresh = reading is not None and now_s - reading.at_s <= settings.stale_after_s
    return TelemetryHealth(now_s, reading, fresh, limit_w, min(policy_w, telemetry.coming_w), planned, above_at_s)


def is_valid(budget: Budget, settings: GuardSettings, *, now_s: float) -> bool:
    """Return whether a budget is not expired and within the rating."""
    return now_s < budget.expires_at_s and 0 < budget.limit_w <= settings.rating_w


def allowed_outage_s(worst_w: float, limit_w: float, settings: GuardSettings) -> float:
    """Return how long telemetry may be lost before the brake must be commanded; infinite if the worst case fits.

    The model takes the breaker at equilibrium at the limit, and the limit as its rating, since feeds above the row may
    be as tight.  The result is a share of the trip time, less the time until the brake takes effect.
    """
    ratio = worst_w / limit_w
    if ratio <= 1:
        return inf
    return max(0.0, settings.trip_share * settings.trip.seconds_to_trip(ratio) - settings.brake_s)


def next_mode(
    state: GuardState[Any], health: TelemetryHealth, settings: GuardSettings, *, max_outage_s: Callable[[], float]
) -> Change | None:
    """Return the transition, if any.  `max_outage_s`: how long telemetry may be lost at the present clocks."""
    if state.mode is GuardMode.BRAKED:
        return _from_braked(state, health, settings, max_outage_s)
    if is_over(state, health):
        return GuardMode.BRAKED, Cause.OVER_BUDGET
    if not health.fresh:
        return _without_telemetry(state, health, settings, max_outage_s)
    if state.mode is GuardMode.RELEASING and not _has_held(state, health, settings):
        return None
    if state.mode is GuardMode.TELEMETRY_LOST and state.good_readings < settings.return_readings:
        return None
    mode, cause = _with_telemetry(state, health, settings)
    return None if mode is state.mode else (mode, cause)


def is_over(state: GuardState[Any], health: TelemetryHealth) -> bool:
    """Return whether a reading is above the budget, whatever its age, unless it was taken before the last release."""
    return health.above_at_s > state.released_s


def _from_braked(
    state: GuardState[Any], health: TelemetryHealth, settings: GuardSettings, max_outage_s: Callable[[], float]
) -> Change | None:
    """A fresh reading from under the brake, well below the budget, releases it.  If lost telemetry alone was the cause,
    read-back clocks at which no load can exceed the budget release it too.
    """
    reading = health.reading
    bites_s = state.engaged_s + settings.brake_s
    if health.now_s < bites_s + settings.brake_hold_s:
        return None
    if not health.fresh or reading is None:
        shown = state.cause is Cause.TELEMETRY_LOST_TOO_LONG and max_outage_s() == inf
        return (GuardMode.TELEMETRY_LOST, Cause.BRAKE_RELEASED) if shown else None
    if reading.at_s <= bites_s or reading.row_w >= settings.release_share * health.limit_w:
        return None
    if settings.release_hold_s > 0:
        return GuardMode.RELEASING, Cause.BRAKE_RELEASED
    return _with_telemetry(state, health, settings)


def last_reading_s(state: GuardState[Any], health: TelemetryHealth, settings: GuardSettings) -> float:
    """Return the time of the last reading; without any, the earliest moment at which telemetry can have been lost."""
    if health.reading is not None:
        return max(health.reading.at_s, state.released_s)
    return max(state.started_s, health.now_s - settings.stale_after_s)


def _without_telemetry(
    state: GuardState[Any], health: TelemetryHealth, settings: GuardSettings, max_outage_s: Callable[[], float]
) -> Change | None:
    last_s = state.read_s if state.mode is GuardMode.TELEMETRY_LOST else last_reading_s(state, health, settings)
    if health.now_s - last_s >= max_outage_s():
        return GuardMode.BRAKED, Cause.TELEMETRY_LOST_TOO_LONG
    if state.mode is GuardMode.TELEMETRY_LOST or (
        not state.has_commanded and health.now_s - state.started_s < settings.stale_after_s
    ):
        return None  # a guard that has just started waits for the first reading
    return GuardMode.TELEMETRY_LOST, Cause.NO_TELEMETRY if health.reading is None else Cause.STALE_TELEMETRY


def _has_held(state: GuardState[Any], health: TelemetryHealth, settings: GuardSettings) -> bool:
    """Return whether the row ran long enough without the brake, with a reading since the release."""
    reading = health.reading
    return (
        health.now_s >= state.released_s + settings.release_hold_s
        and reading is not None
        and reading.at_s > state.released_s
    )


def _with_telemetry(state: GuardState[Any], health: TelemetryHealth, settings: GuardSettings) -> Change:
    if not health.planned:
        return GuardMode.DEGRADED, Cause.BUDGET_EXPIRED if state.had_budget else Cause.NO_BUDGET
    if state.commands.reserve_w > settings.max_reserved * health.limit_w:
        return GuardMode.DEGRADED, Cause.ACTUATION_IGNORED
    return GuardMode.NORMAL, Cause.RECOVERED
