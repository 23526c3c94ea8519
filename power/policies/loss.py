"""The loss of a lower clock: time over the slack of the priority.

    loss(priority, phase, clock) = (slowdown(phase, clock) - 1) / slack(priority)       of one server in that phase

The loss of a row is the sum over its servers.  A priority that is slowed in every phase by exactly its slack loses one
per server.  The frontier of `ladder` and the cap program minimise the same sum.
"""

from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen
from power.controls import Phase, Priority
from power.server_model import ServerModel

SlackShare = Annotated[float, Field(gt=0, le=100)]


class Slack(Frozen):
    """The slack of each priority, as a share of the time of a request; POLCA's median limits."""

    low: SlackShare = 0.05
    high: SlackShare = 0.01

    def of(self, priority: Priority) -> float:
        return self.high if priority is Priority.HIGH else self.low


def slowdown(model: ServerModel, phase: Phase, clock: float) -> float:
    """Return time over time at full clock; 1 for a server that serves nothing."""
    if phase is Phase.PROMPT:
        return model.prompt_slowdown(clock)
    return model.token_slowdown(clock) if phase is Phase.TOKEN else 1.0


def clock_loss(model: ServerModel, priority: Priority, phase: Phase, clock: float, slack: Slack) -> float:
    """Return the loss of one server in a phase at a clock."""
    return (slowdown(model, phase, clock) - 1) / slack.of(priority)
