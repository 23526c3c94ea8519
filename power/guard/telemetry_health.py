"""The health of telemetry at a step: whether readings are fresh, the limits in force, how long telemetry may be
lost."""

from math import inf
from typing import NamedTuple

from power.guard.settings import GuardSettings
from power.guard.telemetry import Telemetry
from power.telemetry import Budget, Reading


class TelemetryHealth(NamedTuple):
    """The health of telemetry at one step."""

    now_s: float
    reading: Reading | None  # None for an impossible value too
    fresh: bool  # the reading is recent
    limit_w: float  # above it the brake engages
    policy_limit_w: float  # budget for the policy: lower when a lower limit is about to start
    planned: bool  # the limit is a planner's
    above_at_s: float  # when a reading above the limit was taken; minus infinity: never


def assess(telemetry: Telemetry, settings: GuardSettings, *, last_limit_w: float) -> TelemetryHealth:
    now_s, reading, raw = telemetry.now_s, telemetry.reading, telemetry.reading
    if reading is not None and not (0 <= reading.row_w < inf and reading.at_s <= now_s):
        reading = None
    fresh = reading is not None and now_s - reading.at_s <= settings.stale_after_s
    budget = telemetry.budget
    if budget is not None and is_valid(budget, settings, now_s=now_s):
        limit_w = policy_w = budget.limit_w
        if budget.expires_at_s <= now_s + settings.lead_s:
            policy_w = min(policy_w, settings.standing_limit_w)
        above_at_s = _above_at_s(raw, limit_w, now_s=now_s)
        return TelemetryHealth(now_s, reading, fresh, limit_w, min(policy_w, telemetry.coming_w), True, above_at_s)  # noqa: FBT003
    # The last budget may have been lower than the standing one for a reason that still applies.
    limit_w = min(last_limit_w, settings.standing_limit_w)
    above_at_s = _above_at_s(raw, limit_w, now_s=now_s)
    return TelemetryHealth(now_s, reading, fresh, limit_w, min(limit_w, telemetry.coming_w), False, above_at_s)  # noqa: FBT003


def _above_at_s(reading: Reading | None, limit_w: float, *, now_s: float) -> float:
    """A reading from the future or an infinite one is not fresh, but it still counts as above the limit."""
    return min(reading.at_s, now_s) if reading is not None and reading.row_w > limit_w else -inf


def is_valid(budget: Budget, settings: GuardSettings, *, now_s: float) -> bool:
    """Return whether a budget is not expired and within the rating."""
    return now_s < budget.expires_at_s and 0 < budget.limit_w <= settings.rating_w


def allowed_outage_s(worst_w: float, limit_w: float, settings: GuardSettings) -> float:
    """Return how long telemetry may be lost before the brake must be ordered; infinite if the worst case fits.

    The model takes the breaker at equilibrium at the limit, and the limit as its rating, since feeds above the row may
    be as tight.  The result is a share of the trip time, less the time until the brake takes effect.
    """
    ratio = worst_w / limit_w
    if ratio <= 1:
        return inf
    return max(0.0, settings.trip_share * settings.trip.seconds_to_trip(ratio) - settings.brake_s)
