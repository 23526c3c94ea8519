"""Whether a change did harm.  Pure.

    worse      a value is beyond its limit, and by more than `TOLERANCE` worse than before the change
    good       every value is known and within its limit
    unclear    all else: a value is missing, or it was as bad before

Only `worse` undoes a change and only `good` verifies one.  A value that was beyond its limit before the change has
another cause: more replicas are often the cure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from api.schemas.probes import HealthProbe
from api.schemas.target_state import Readings

TOLERANCE = 0.1


class HealthOutcome(StrEnum):
    GOOD = "good"
    WORSE = "worse"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The values that were read; `missing` has the reason for each value that was not."""

    readings: Readings
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HealthCheck:
    outcome: HealthOutcome
    reason: str


def check_due_at(write_at: datetime, probe: HealthProbe) -> datetime:
    """Return the earliest time at which values show the effect of a write."""
    return write_at + timedelta(seconds=probe.judge_after_s)


def check_health(probe: HealthProbe, *, health: Health, before: Readings | None) -> HealthCheck:
    """Compare the values with their limits; without `before` nothing counts as worse."""
    worse, unclear = [], [f"{name} is not known: {why}" for name, why in sorted(health.missing.items())]
    for name, limit, now, then in _values(probe, health.readings, before):
        if now is None or now <= limit:
            continue
        problem = f"{name} is {now:.4g}, beyond {limit:g}"
        if before is None or (then is not None and now <= then * (1.0 + TOLERANCE)):
            unclear.append(f"{problem}, and was so before" if then is not None else problem)
        else:
            worse.append(f"{problem}; before the change it was {'not known' if then is None else format(then, '.4g')}")
    if worse:
        return HealthCheck(HealthOutcome.WORSE, "; ".join(worse))
    if unclear:
        return HealthCheck(HealthOutcome.UNCLEAR, "; ".join(unclear))
    return HealthCheck(HealthOutcome.GOOD, "within its limits")


def _values(
    probe: HealthProbe, now: Readings, before: Readings | None
) -> list[tuple[str, float, float | None, float | None]]:
    """Return (name, limit, now, before) of every value that has a limit."""
    then = before or Readings()
    values = (
        ("error rate", probe.max_error_rate, now.error_rate, then.error_rate),
        ("latency", probe.max_latency_s, now.latency_s, then.latency_s),
    )
    return [(name, limit, here, there) for name, limit, here, there in values if limit is not None]
