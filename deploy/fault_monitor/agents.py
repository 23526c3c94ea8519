"""The senders of a job: each node's recorder, its prober if that is a separate process, and ranks without a recorder.

Each sender has its own session and clock skew, because the processes start and end separately.  All senders of a node
read one clock, so a new sender starts with the node's known skew.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from deploy.fault_monitor.clock_skew import ClockSkew
from deploy.telemetry.batch_codec import Base, Batch

LOST_AFTER_S: Final = 10.0  # without a batch; an idle agent sends every 2 s
LATEST_AGE_S: Final = 120.0  # an older batch comes from a backlog or a broken clock


@dataclass(slots=True)
class Agent:
    """A recorder, a prober, or a rank."""

    session: str
    held: Base | None = None
    skew: ClockSkew = field(default_factory=ClockSkew)
    last_s: float = 0.0  # last batch, by our monotonic clock

    def is_silent(self, steady_s: float, *, for_s: float = LOST_AFTER_S) -> bool:
        """Return whether its last batch is older than this."""
        return steady_s - self.last_s > for_s


class Agents:
    """All senders of one job."""

    def __init__(self) -> None:
        self._recorders: dict[int, Agent] = {}  # by node
        self._probers: dict[int, Agent] = {}  # by node
        self._ranks: dict[int, Agent] = {}  # by rank

    @property
    def recorders(self) -> Mapping[int, Agent]:
        """Return all recorders that ever sent a batch, by node."""
        return self._recorders

    @property
    def probers(self) -> Mapping[int, Agent]:
        """Return all separate prober processes that ever sent a batch, by node."""
        return self._probers

    def record(self, batch: Batch, held: Base, *, received_s: float, steady_s: float) -> Agent:
        """Record a batch of its sender.  A restarted sender has a new session and a new skew."""
        of, key = self._place(batch)
        agent = of.get(key)
        if agent is None:
            agent = of[key] = Agent(batch.session, skew=self._skew_of(batch.node, steady_s=steady_s))
        elif agent.session != batch.session:
            agent = of[key] = Agent(batch.session)
        agent.held, agent.last_s = held, steady_s
        agent.skew.add(sent_s=batch.sent_s, received_s=received_s)
        return agent

    def lost(self, *, steady_s: float) -> list[int]:
        """Return the nodes whose recorder is silent."""
        return _silent(self._recorders, steady_s)

    def lost_probers(self, *, steady_s: float) -> list[int]:
        """Return the nodes whose prober is silent."""
        return _silent(self._probers, steady_s)

    def held_of(self, node: int, session: str) -> Base | None:
        """Return the base of the next differential batch.  Only recorders send samples."""
        agent = self._recorders.get(node)
        return agent.held if agent is not None and agent.session == session else None

    def of_node(self, node: int, *, steady_s: float) -> Agent | None:
        """Return the sender for the node's clock: the recorder, else the prober; of two silent ones the later."""
        known = [agent for agent in (self._recorders.get(node), self._probers.get(node)) if agent is not None]
        active = (agent for agent in known if not agent.is_silent(steady_s))
        return next(active, None) or max(known, key=lambda agent: agent.last_s, default=None)

    def _place(self, batch: Batch) -> tuple[dict[int, Agent], int]:
        if batch.rank is not None:
            return self._ranks, batch.rank
        return (self._probers if batch.prober else self._recorders), batch.node

    def _skew_of(self, node: int, *, steady_s: float) -> ClockSkew:
        """Return the node's known skew: the first batch of a sender is late, because it connects first."""
        other = self.of_node(node, steady_s=steady_s)
        if other is None or other.is_silent(steady_s, for_s=LATEST_AGE_S):
            return ClockSkew()
        return copy.deepcopy(other.skew)


def _silent(agents: Mapping[int, Agent], steady_s: float) -> list[int]:
    return [node for node, agent in agents.items() if agent.is_silent(steady_s)]
