"""The controls of a policy and the phases of a server, shared by policies, guard and simulator.

A control is the clock of one priority in one phase, as a share of the full clock.  Reading a prompt is compute-bound
and draws the most.  Writing tokens is memory-bound, so a lower clock costs little speed.
"""

from enum import IntEnum
from math import inf
from typing import NamedTuple

FULL_CLOCK = 1.0


class Priority(IntEnum):
    """Priority of requests; high priority slows down last."""

    LOW = 0
    HIGH = 1


class Phase(IntEnum):
    """Phase of a server: an index into counts and power tables."""

    IDLE = 0
    TOKEN = 1  # writing tokens for one request or several
    PROMPT = 2  # reading a prompt
    TRAINING = 3
    PARKED = 4  # asleep: nothing is routed to it until it is woken


class Clocks(NamedTuple):
    low_token: float = FULL_CLOCK
    high_token: float = FULL_CLOCK
    low_prompt: float = FULL_CLOCK
    high_prompt: float = FULL_CLOCK
    training: float = FULL_CLOCK

    def of(self, priority: Priority, phase: Phase) -> float:
        """Return the clock of a server in a phase; idle and parked servers draw the same power at every clock."""
        if phase is Phase.TRAINING:
            return self.training
        if phase is Phase.TOKEN:
            return self.high_token if priority else self.low_token
        if phase is Phase.PROMPT:
            return self.high_prompt if priority else self.low_prompt
        return FULL_CLOCK

    def slower(self, other: "Clocks") -> "Clocks":
        return Clocks(*map(min, self, other))


class NodeClocks(NamedTuple):
    """The clocks of one server, as shares of the full clock."""

    token: float = FULL_CLOCK
    prompt: float = FULL_CLOCK

    def slower(self, other: "NodeClocks") -> "NodeClocks":
        return NodeClocks(min(self.token, other.token), min(self.prompt, other.prompt))


class Routing(NamedTuple):
    """Routing: how the router fills servers.  Tokens written together cost hardly more than tokens written alone."""

    low_together: int = 1  # requests that a server takes before an idle one is used; low priority
    high_together: int = 1
    parked_share: float = 0.0  # of the servers that serve, how many sleep at most


class Setting(NamedTuple):
    """The output of a policy at one moment."""

    clocks: Clocks = Clocks()
    # A prompt waits while the row, as modelled, would draw more than this with it.
    low_limit_w: float = inf
    high_limit_w: float = inf
    routing: Routing = Routing()


UNTOUCHED = Setting()
