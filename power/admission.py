"""Admission by watts: a prompt starts only if the row, with it, stays under what its priority is held to.

    start  <=>  correction * modelled_w + step_w <= hold_w(priority, waited)

`modelled_w` is the power that the believed curves give for what every server is doing; `correction` is what the meter
says over what they said; `step_w` is what this prompt adds to its server.  Low priority is held lower.  A low prompt
that has waited out its slack is held as high ones are: it waits no longer than they would, and the limit still holds.

`may_start` and `held_to` are compiled into the simulator; `Gate` is the queue that a router keeps.  Time is passed in.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from power.controls import Priority

LOW_HOLD_SHARE = 0.98  # of the budget
HIGH_HOLD_SHARE = 0.99
LOW_PATIENCE_S = 10.0  # a fifth of the time of a median low request: inside its slack of half at the 99th percentile

RequestT = TypeVar("RequestT")


def may_start(row_w: float, step_w: float, hold_w: float) -> bool:
    """Whether a prompt that adds `step_w` may start now."""
    return row_w + step_w <= hold_w


def held_to(priority: int, waited_s: float, patience_s: float, low_hold_w: float, high_hold_w: float) -> float:
    """The watts that a prompt is held to."""
    if priority or waited_s >= patience_s:
        return high_hold_w
    return low_hold_w


class Waiting(NamedTuple, Generic[RequestT]):
    """A prompt at the gate."""

    request: RequestT
    since_s: float
    step_w: float


class Started(NamedTuple, Generic[RequestT]):
    """A prompt let through, and how long it waited: an observation of power_admission_wait_seconds{priority}."""

    request: RequestT
    priority: Priority
    waited_s: float


@dataclass(slots=True, kw_only=True)
class Gate(Generic[RequestT]):
    """Prompts that wait for watts, first come, first served within a priority."""

    patience_s: float = LOW_PATIENCE_S
    low_hold_w: float
    high_hold_w: float
    queues: dict[Priority, deque[Waiting[RequestT]]] = field(
        default_factory=lambda: {priority: deque() for priority in Priority}
    )

    def offer(self, request: RequestT, *, priority: Priority, step_w: float, now_s: float) -> None:
        """Put a prompt at the end of its queue."""
        self.queues[priority].append(Waiting(request, now_s, step_w))

    def release(self, *, row_w: float, now_s: float) -> list[Started[RequestT]]:
        """Let through what fits under a row that draws `row_w`, as modelled and corrected.  Nothing overtakes a prompt
        whose turn it is: small prompts would else starve a large one."""
        started: list[Started[RequestT]] = []
        while (priority := self._turn(now_s)) is not None:
            request, since_s, step_w = self.queues[priority][0]
            hold_w = held_to(priority, now_s - since_s, self.patience_s, self.low_hold_w, self.high_hold_w)
            if not may_start(row_w, step_w, hold_w):
                break
            self.queues[priority].popleft()
            started.append(Started(request, priority, now_s - since_s))
            row_w += step_w
        return started

    def waits_s(self, *, now_s: float) -> dict[Priority, float]:
        """Of the oldest prompt of each priority; nothing waits: zero."""
        return {priority: now_s - queue[0].since_s if queue else 0.0 for priority, queue in self.queues.items()}

    def _turn(self, now_s: float) -> Priority | None:
        """Whose oldest prompt is next.  A low one out of patience stands among the high ones, as if it came then."""
        low, high = self.queues[Priority.LOW], self.queues[Priority.HIGH]
        if not low or not high:
            return Priority.LOW if low else Priority.HIGH if high else None
        due_s = low[0].since_s + self.patience_s
        return Priority.LOW if due_s <= now_s and due_s < high[0].since_s else Priority.HIGH
