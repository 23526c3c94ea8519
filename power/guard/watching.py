"""What the guard can see at a step: whether the row is in sight, what it may draw, how long blindness may last."""

from math import inf
from typing import NamedTuple

from power.guard.settings import GuardSettings
from power.guard.telemetry import Telemetry
from power.readings import Budget, Reading


class Sight(NamedTuple):
    """One step's view."""

    now_s: float
    reading: Reading | None  # None as well for one that no meter can have meant
    fresh: bool  # the reading tells the present
    limit_w: float  # above it the brake engages
    policy_limit_w: float  # what the policy may use: less, where less is coming
    planned: bool  # the limit is a planner's


def look(telemetry: Telemetry, settings: GuardSettings, *, last_limit_w: float) -> Sight:
    """Believe what can be believed."""
    now_s, reading = telemetry.now_s, telemetry.reading
    if reading is not None and not (0 <= reading.row_w < inf and reading.at_s <= now_s):
        reading = None
    fresh = reading is not None and now_s - reading.at_s <= settings.stale_after_s
    budget = telemetry.budget
    if budget is not None and believed(budget, settings, now_s=now_s):
        limit_w = policy_w = budget.limit_w
        if budget.expires_at_s <= now_s + settings.lead_s:
            policy_w = min(policy_w, settings.standing_limit_w)
        return Sight(now_s, reading, fresh, limit_w, min(policy_w, telemetry.coming_w), planned=True)
    # The last budget may have been lower than the standing one for a reason that still holds.
    limit_w = min(last_limit_w, settings.standing_limit_w)
    return Sight(now_s, reading, fresh, limit_w, min(limit_w, telemetry.coming_w), planned=False)


def believed(budget: Budget, settings: GuardSettings, *, now_s: float) -> bool:
    """Not expired, and nothing that no planner may say."""
    return now_s < budget.expires_at_s and 0 < budget.limit_w <= settings.rating_w


def blind_allowance_s(worst_w: float, limit_w: float, settings: GuardSettings) -> float:
    """How long the row may go unseen before the brake must be ordered: for ever where the worst case fits.

    The breaker is taken to be as warm as the limit leaves it, and its rating to be the limit: what stands above the
    row may be as tight.  A share of what its curve leaves, less the time that the brake takes to work.
    """
    ratio = worst_w / limit_w
    if ratio <= 1:
        return inf
    return max(0.0, settings.trip_share * settings.trip.seconds_to_trip(ratio) - settings.brake_s)
