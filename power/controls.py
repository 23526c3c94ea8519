"""What a policy can turn, and what a server can be doing: the words that policies, guard and simulator share.

A lever is a clock, as a share of the full one, for the servers of one priority while they are in one phase.  Reading a
prompt is bound by arithmetic and draws the most; writing tokens is bound by memory, so its clock costs little speed.
"""

from enum import IntEnum
from math import inf
from typing import NamedTuple

FULL_CLOCK = 1.0


class Priority(IntEnum):
    """Who waits first.  Higher is kept whole longer."""

    LOW = 0
    HIGH = 1


class Phase(IntEnum):
    """What a server is doing; the columns of counts and of tables of watts."""

    IDLE = 0
    TOKEN = 1  # writing tokens for one request or several
    PROMPT = 2  # reading a prompt
    TRAINING = 3
    PARKED = 4  # asleep: nothing is routed to it until it is woken


class Clocks(NamedTuple):
    """One clock for each lever."""

    low_token: float = FULL_CLOCK
    high_token: float = FULL_CLOCK
    low_prompt: float = FULL_CLOCK
    high_prompt: float = FULL_CLOCK
    training: float = FULL_CLOCK

    def of(self, priority: Priority, phase: Phase) -> float:
        """The clock of a server in a phase; idle and parked ones draw the same at any."""
        if phase is Phase.TRAINING:
            return self.training
        if phase is Phase.TOKEN:
            return self.high_token if priority else self.low_token
        if phase is Phase.PROMPT:
            return self.high_prompt if priority else self.low_prompt
        return FULL_CLOCK

    def slower(self, other: "Clocks") -> "Clocks":
        """The lower of two, lever by lever."""
        return Clocks(*map(min, self, other))


class NodeClocks(NamedTuple):
    """The clocks of one server, as shares of the full clock."""

    token: float = FULL_CLOCK
    prompt: float = FULL_CLOCK

    def slower(self, other: "NodeClocks") -> "NodeClocks":
        """Return the lower clock of each phase."""
        return NodeClocks(min(self.token, other.token), min(self.prompt, other.prompt))


class Routing(NamedTuple):
    """How the router fills servers.  Tokens written together cost hardly more than tokens written alone."""

    low_together: int = 1  # requests that a server takes before an idle one is used; low priority
    high_together: int = 1
    parked_share: float = 0.0  # of the servers that serve, how many sleep at most


class Setting(NamedTuple):
    """All that a policy asks for at one moment."""

    clocks: Clocks = Clocks()
    # A prompt waits while the row, as modelled, would draw more than this with it.
    low_limit_w: float = inf
    high_limit_w: float = inf
    routing: Routing = Routing()


UNTOUCHED = Setting()
