"""The state machine of one cap of one GPU (power limit or locked clock), from request to read-back.  Pure.

    free       nothing is requested, and the original value is in force
    requested  the driver accepted the value; it has until `due_s` to show
    held       read back
    ignored    not read back in time: written again, with backoff
    refused    the driver returned an error: written again once a minute
    abandoned  ignored too often in a row: written again once a minute

A reloaded driver lost the value: the cap starts again at once.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import NamedTuple

MAX_TRIES = 8
RETRY_S = 60.0


class CapStatus(StrEnum):
    FREE = "free"
    REQUESTED = "requested"
    HELD = "held"
    IGNORED = "ignored"
    REFUSED = "refused"
    ABANDONED = "abandoned"


class Event(StrEnum):
    WRITTEN = "written"
    REFUSED = "refused"
    IGNORED = "ignored"  # the driver took it and did not do it
    CHANGED = "changed"  # it held, and another process set another value
    CLEARED = "forgotten"  # by a reloaded driver


@dataclass(frozen=True, slots=True, kw_only=True)
class CapState:
    tolerance: float  # drivers round
    settle_s: float  # from a write to its effect, at the most
    state: CapStatus = CapStatus.FREE
    touched: bool = False  # by us, since it was found
    written: bool = False  # `commanded` was written since the driver was loaded
    commanded: float | None = None
    before: float | None = None  # commanded before that, or present after a killed agent
    tries: int = 0  # in a row that did not show
    due_s: float = -inf

    def cleared(self) -> "CapState":
        return replace(self, written=False, commanded=None, before=None, tries=0, due_s=-inf)

    def wrote(self, value: float | None, *, now_s: float) -> "CapState":
        again = self.written and self.commanded == value
        return replace(
            self,
            state=CapStatus.ABANDONED
            if self.tries >= MAX_TRIES
            else CapStatus.IGNORED
            if self.tries
            else CapStatus.REQUESTED,
            touched=True,
            written=True,
            commanded=value,
            before=self.commanded if self.written and not again else self.before,
            due_s=now_s + min(RETRY_S, self.settle_s * 2.0**self.tries),
        )

    def refused(self, *, now_s: float) -> "CapState":
        return replace(self, state=CapStatus.REFUSED, due_s=now_s + RETRY_S)

    def due_now(self) -> "CapState":
        """Return the state that retries at once, instead of a minute after a refusal."""
        return replace(self, due_s=-inf) if self.state is CapStatus.REFUSED else self

    def shows(self, enforced: float | None) -> bool:
        """Return whether the enforced value is the commanded one, or lower for another reason."""
        if self.commanded is None or enforced is None:
            return self.commanded is None and enforced is None
        if enforced > self.commanded + self.tolerance:
            return False
        # A limit that should rise and still has our previous value was not raised.
        unmoved = self.before is not None and abs(enforced - self.before) <= self.tolerance
        return not (unmoved and enforced < self.commanded - self.tolerance)


class Transition(NamedTuple):
    cap_state: CapState
    write: bool = False
    event: Event | None = None


def step(
    cap_state: CapState, *, wanted: float | None, rest: float | None, enforced: float | None, now_s: float
) -> Transition:
    """Return the state after a poll, and whether to write `target`."""
    if wanted is None and not cap_state.touched:
        return Transition(cap_state)
    if not cap_state.written or cap_state.commanded != target(wanted=wanted, rest=rest):
        waits = cap_state.state is CapStatus.REFUSED and now_s < cap_state.due_s
        return Transition(cap_state) if waits else Transition(replace(cap_state, tries=0), write=True)
    if cap_state.shows(enforced):
        settled = CapStatus.FREE if wanted is None else CapStatus.HELD
        return Transition(replace(cap_state, state=settled, touched=wanted is not None, tries=0))
    if cap_state.state is CapStatus.HELD:
        return Transition(replace(cap_state, tries=0), write=True, event=Event.CHANGED)
    if now_s < cap_state.due_s:
        return Transition(cap_state)
    return Transition(replace(cap_state, tries=cap_state.tries + 1), write=True, event=Event.IGNORED)


def target(*, wanted: float | None, rest: float | None) -> float | None:
    """Return the value to write: the requested one, else the original."""
    return rest if wanted is None else wanted
