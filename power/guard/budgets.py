"""Budget requests of a planner, accepted or rejected as a whole: an invalid request leaves the previous one in force.

A request is a timetable: limits with start times, and one time at which the request expires.  A lower limit is known
before it takes effect, so that the policy lowers the row in time.  A cut without notice applies to the policy at once,
and to the brake after the time that the policy needs.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation
from power.guard.settings import GuardSettings
from power.telemetry import Budget

MAX_VALID_S = 7 * 86_400.0  # a week of hours is a plan; a longer validity would hide a dead planner
MAX_ENTRIES = 1000
MIN_W = 1.0  # no row draws less: a slip of the unit

Age = Annotated[float, Field(ge=0, le=MAX_VALID_S)]


class BudgetError(RuleError):
    """A budget that must not come into force; the old one stays."""


class Entry(Frozen):
    """A limit and its start, in seconds after the request."""

    after_s: Age = 0.0
    limit_w: float


class BudgetRequest(Frozen):
    """A planner's budget for one row.  Times are relative, so clocks need not agree."""

    domain: Annotated[str, Field(min_length=1, max_length=200)]
    limits: Annotated[tuple[Entry, ...], Field(min_length=1, max_length=MAX_ENTRIES)]
    valid_s: float
    at_once: bool = False  # a feed failed: a lower limit applies to the brake at once

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.limits[0].after_s > 0:
            raise RuleError([(("limits", 0, "after_s"), f"must be 0, got {self.limits[0].after_s:g}")])
        for at, (before, after) in enumerate(pairwise(self.limits), start=1):
            if after.after_s <= before.after_s:
                message = f"must be above the one before ({before.after_s:g}), got {after.after_s:g}"
                raise RuleError([(("limits", at, "after_s"), message)])
        return self


class Timetable(NamedTuple):
    """An accepted request.  Immutable: `accept` returns the next timetable."""

    starts_s: tuple[float, ...]
    limits_w: tuple[float, ...]
    expires_at_s: float
    grace_until_s: float = -inf  # until then the brake uses the previous limit
    grace_w: float = 0.0

    def at(self, now_s: float) -> Budget:
        limit_w = self._limit_at(now_s)
        return Budget(max(limit_w, self.grace_w) if now_s < self.grace_until_s else limit_w, self.expires_at_s)

    def coming_w(self, now_s: float, *, lead_s: float) -> float:
        """Return the lowest limit within the lead time: the target of the policy."""
        within = (limit for start, limit in self._entries() if now_s < start <= now_s + lead_s)
        return min(within, default=self._limit_at(now_s)) if now_s >= self.starts_s[0] else inf

    def _limit_at(self, now_s: float) -> float:
        held = [limit for start, limit in self._entries() if start <= now_s]
        return held[-1] if held else self.limits_w[0]

    def _entries(self) -> Iterator[tuple[float, float]]:
        return zip(self.starts_s, self.limits_w, strict=True)


def accept(
    request: BudgetRequest, *, before: Timetable | None, domain: str, settings: GuardSettings, now_s: float
) -> Timetable:
    """Return the timetable from now on; raise BudgetError with every defect."""
    violations = list(_violations(request, domain=domain, settings=settings))
    if violations:
        raise BudgetError(violations)
    fresh = Timetable(
        starts_s=tuple(now_s + entry.after_s for entry in request.limits),
        limits_w=tuple(entry.limit_w for entry in request.limits),
        expires_at_s=now_s + request.valid_s,
    )
    if before is None or before.expires_at_s <= now_s:
        return fresh
    held_w = before.at(now_s).limit_w
    if request.at_once or held_w <= fresh.limits_w[0]:
        return fresh
    # Repeating a cut, or cutting further, does not put the brake off.
    until_s = before.grace_until_s if now_s < before.grace_until_s else now_s + settings.lead_s
    return fresh._replace(grace_until_s=until_s, grace_w=held_w)


def _violations(request: BudgetRequest, *, domain: str, settings: GuardSettings) -> Iterator[Violation]:
    if request.domain != domain:
        yield ("domain",), f"unknown domain {request.domain!r}; this guard's is {domain!r}"
    for at, entry in enumerate(request.limits):
        if not 0 < entry.limit_w <= settings.rating_w:
            message = f"must be above 0 and at most the rating ({settings.rating_w:g} W), got {entry.limit_w:g}"
            yield ("limits", at, "limit_w"), message
        elif entry.limit_w < MIN_W:
            yield ("limits", at, "limit_w"), f"must be at least {MIN_W:g} W, got {entry.limit_w:g}"
        if request.valid_s > 0 and entry.after_s >= request.valid_s:
            message = f"must be below valid_s ({request.valid_s:g}): the limit would never apply; got {entry.after_s:g}"
            yield ("limits", at, "after_s"), message
    if not 0 < request.valid_s <= MAX_VALID_S:
        past = " (it would have expired already)" if request.valid_s <= 0 else ""
        yield ("valid_s",), f"must be above 0 and at most {MAX_VALID_S:g} s, got {request.valid_s:g}{past}"
