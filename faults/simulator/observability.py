"""Faults that only one agent can observe.

A stopped or slow process is observable only by its own agent: the other nodes only observe that the rank is missing.
While this agent is lost, the rank is one of all silent ranks, and no rule can name it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from faults.simulator.fault_schedule import FaultEvent, FaultKind, takes_machine

MIN_REPORTED = 0.5  # of the time in which it can be named


def only_observer(one: FaultEvent) -> int | None:
    """Return the node whose agent alone can observe the event; None if others can."""
    if one.what in (FaultKind.HANG_CODE, FaultKind.STRAGGLER) or (
        one.what is FaultKind.CRASH and not takes_machine(one)
    ):
        return one.at
    return None


class Observability:
    """Counts for how much of its time each fault's only observer reported."""

    def __init__(self, faults: Sequence[FaultEvent], unanswered: NDArray[np.bool_], *, in_time_s: float) -> None:
        """`unanswered`: per node, whether the independent source can never report its machine as dead."""
        self._in_time_s, self._unanswered = in_time_s, unanswered
        self._heard_s = {one: 0.0 for one in faults if only_observer(one) is not None}
        self._coming = sorted(self._heard_s, key=lambda one: one.from_s, reverse=True)
        self._open: list[FaultEvent] = []

    def observe(
        self, from_s: float, to_s: float, reported: NDArray[np.bool_], *, told: NDArray[np.bool_] | None = None
    ) -> None:
        """Add the reporting agents of a window, and the nodes whose ranks' records arrive (None: the same nodes)."""
        while self._coming and self._coming[-1].from_s < to_s:
            self._open.append(self._coming.pop())
        self._open = [one for one in self._open if one.from_s + self._in_time_s > from_s]
        for one in self._open:
            of = reported if told is None or one.what is not FaultKind.STRAGGLER else told
            if of[one.at]:
                self._heard_s[one] += min(to_s, one.from_s + self._in_time_s) - max(from_s, one.from_s)

    def hidden(self, one: FaultEvent) -> bool:
        """Return whether the fault was observable for too little of its time."""
        if takes_machine(one):
            return bool(self._unanswered[one.at])
        return one in self._heard_s and self._heard_s[one] < MIN_REPORTED * self._in_time_s
