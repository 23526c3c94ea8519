"""Whether a change did harm.  Pure.

    worse      a value is beyond its limit, and by more than `TOLERANCE` worse than before the change
    good       every value is known and within its limit
    unclear    all else: a value is missing, or it was as bad before

Only `worse` undoes a change and only `good` verifies one.  A limit that was passed before the change began is not the
change's doing: more replicas are often the cure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from api.schemas.probes import HealthProbe
from api.schemas.target_state import Readings

TOLERANCE = 0.1


class Verdict(StrEnum):
    """What health says of a change."""

    GOOD = "good"
    WORSE = "worse"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was read; `missing` says why, for each value that was not."""

    readings: Readings
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and what it rests on."""

    verdict: Verdict
    reason: str


def judged_at(write_at: datetime, probe: HealthProbe) -> datetime:
    """From when on the values can show what a write did."""
    return write_at + timedelta(seconds=probe.judge_after_s)


def judge(probe: HealthProbe, *, health: Health, before: Readings | None) -> Judgement:
    """Hold what was read against the limits; without `before` nothing can be worse than it was."""
    worse, unclear = [], [f"{name} is not known: {why}" for name, why in sorted(health.missing.items())]
    for name, limit, now, then in _values(probe, health.readings, before):
        if now is None or now <= limit:
            continue
        said = f"{name} is {now:.4g}, beyond {limit:g}"
        if before is None or (then is not None and now <= then * (1.0 + TOLERANCE)):
            unclear.append(f"{said}, and was so before" if then is not None else said)
        else:
            worse.append(f"{said}; before the change it was {'not known' if then is None else format(then, '.4g')}")
    if worse:
        return Judgement(Verdict.WORSE, "; ".join(worse))
    if unclear:
        return Judgement(Verdict.UNCLEAR, "; ".join(unclear))
    return Judgement(Verdict.GOOD, "within its limits")


def _values(
    probe: HealthProbe, now: Readings, before: Readings | None
) -> list[tuple[str, float, float | None, float | None]]:
    """(name, limit, now, before) of every value that is asked for."""
    then = before or Readings()
    asked = (
        ("error rate", probe.max_error_rate, now.error_rate, then.error_rate),
        ("latency", probe.max_latency_s, now.latency_s, then.latency_s),
    )
    return [(name, limit, here, there) for name, limit, here, there in asked if limit is not None]
