"""Divides the time limit of a request among the phases of its plan.

Each phase may take an even part of the time that is left, so that one that ends early leaves its time to the next.  The
explanation has its own limit reserved.  A phase that its part of the time cuts short is named in the plan.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from planner.policy import ExplainLevel
from planner.request import PlanRequest

EXPLAIN_SHARE = 0.2  # of the request's time limit, by default
MAX_EXPLAIN_SHARE = 0.5  # also where the request gives a limit: the mix comes first
SHORT_S = 0.5  # a short explanation solves linear programs only


class Phase(StrEnum):
    """A part of planning that may be cut short."""

    MIX = "mix"
    REPLAY = "replay"
    SCHEDULE = "schedule"
    EXPLANATION = "explanation"


@dataclass(slots=True)
class TimeLimit:
    """The end of the whole answer, and the phases that were cut."""

    ends_s: float
    reserved_s: float  # for the explanation
    phases: int  # before the explanation, which have not begun
    clock_s: Callable[[], float]
    cut: list[Phase] = field(default_factory=list)

    @classmethod
    def of(cls, request: PlanRequest, *, clock_s: Callable[[], float]) -> "TimeLimit":
        limit_s = request.time_limit_s
        phases = 1 + (request.proof is not None) + (request.horizon is not None)
        return cls(clock_s() + limit_s, explain_limit_s(request), phases, clock_s)

    def next_phase_ends_s(self) -> float:
        """Begin the next phase, and return when it must end."""
        now_s = self.clock_s()
        left_s = max(0.0, self.ends_s - self.reserved_s - now_s)
        part_s = left_s / max(1, self.phases)
        self.phases -= 1
        return now_s + part_s

    def ended(self, phase: Phase, *, is_cut: bool) -> None:
        if is_cut:
            self.cut.append(phase)


def explain_limit_s(request: PlanRequest) -> float:
    """The time that is reserved for the explanation of a mix."""
    level, given_s, limit_s = request.policy.explain, request.policy.explain_time_limit_s, request.time_limit_s
    if level is ExplainLevel.NONE:
        return 0.0
    if given_s is not None:
        return min(given_s, MAX_EXPLAIN_SHARE * limit_s)
    return min(EXPLAIN_SHARE * limit_s, SHORT_S) if level is ExplainLevel.SHORT else EXPLAIN_SHARE * limit_s
