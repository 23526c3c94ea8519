"""Who tells of a job: each node's recorder, its prober where that is another process, and ranks past their recorder.

Each has a session and a skew of its own, for they are processes that begin and end apart: none makes another send
whole batches anew, or stands for it.  All of a node read one clock, so one that is new begins with what is known of it.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from deploy.fault_monitor.clock_skew import ClockSkew
from deploy.telemetry.batch_codec import Batch, Held

LOST_AFTER_S: Final = 10.0  # without a batch; a quiet agent sends every 2 s
LATEST_AGE_S: Final = 120.0  # older than this is a backlog or a broken clock


@dataclass(slots=True)
class Agent:
    """One node's recorder or prober, or a rank, as it is known here."""

    session: str
    held: Held | None = None
    skew: ClockSkew = field(default_factory=ClockSkew)
    heard_s: float = 0.0  # by our steady clock

    def is_silent(self, steady_s: float, *, for_s: float = LOST_AFTER_S) -> bool:
        """Whether it was not heard for so long."""
        return steady_s - self.heard_s > for_s


class Agents:
    """Of one job."""

    def __init__(self) -> None:
        self._recorders: dict[int, Agent] = {}  # by node
        self._probers: dict[int, Agent] = {}  # by node
        self._ranks: dict[int, Agent] = {}  # by rank

    @property
    def recorders(self) -> Mapping[int, Agent]:
        """That were ever heard, by node."""
        return self._recorders

    @property
    def probers(self) -> Mapping[int, Agent]:
        """As `recorders`: none of a recorder that probes itself."""
        return self._probers

    def heard(self, batch: Batch, held: Held, *, received_s: float, steady_s: float) -> Agent:
        """Who has sent it.  One that was started again has a new session, and its clock is learnt anew."""
        of, key = self._place(batch)
        agent = of.get(key)
        if agent is None:
            agent = of[key] = Agent(batch.session, skew=self._skew_of(batch.node, steady_s=steady_s))
        elif agent.session != batch.session:
            agent = of[key] = Agent(batch.session)
        agent.held, agent.heard_s = held, steady_s
        agent.skew.heard(sent_s=batch.sent_s, received_s=received_s)
        return agent

    def lost(self, *, steady_s: float) -> list[int]:
        """Nodes whose recorders were heard, and are not any more."""
        return _silent(self._recorders, steady_s)

    def lost_probers(self, *, steady_s: float) -> list[int]:
        """As `lost`, of probers."""
        return _silent(self._probers, steady_s)

    def held_of(self, node: int, session: str) -> Held | None:
        """What the next batch may build on: recorders' alone, for only they send looks."""
        agent = self._recorders.get(node)
        return agent.held if agent is not None and agent.session == session else None

    def of_node(self, node: int, *, steady_s: float) -> Agent | None:
        """By whom the node's clock is known: its recorder, its prober where that is silent; of two silent the later."""
        known = [agent for agent in (self._recorders.get(node), self._probers.get(node)) if agent is not None]
        heard = (agent for agent in known if not agent.is_silent(steady_s))
        return next(heard, None) or max(known, key=lambda agent: agent.heard_s, default=None)

    def _place(self, batch: Batch) -> tuple[dict[int, Agent], int]:
        if batch.rank is not None:
            return self._ranks, batch.rank
        return (self._probers if batch.prober else self._recorders), batch.node

    def _skew_of(self, node: int, *, steady_s: float) -> ClockSkew:
        """As it was shown till now: a first batch comes late, for its sender has to find its way first."""
        other = self.of_node(node, steady_s=steady_s)
        if other is None or other.is_silent(steady_s, for_s=LATEST_AGE_S):
            return ClockSkew()
        return copy.deepcopy(other.skew)


def _silent(agents: Mapping[int, Agent], steady_s: float) -> list[int]:
    return [node for node, agent in agents.items() if agent.is_silent(steady_s)]
