"""Decodes batches of recorders, probers and ranks, checks them, and gives observations on one clock."""

import copy
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from deploy.telemetry.batch_codec import Base, Batch, WireError, decode
from deploy.telemetry.diag import Sample
from faults.detector import Job
from faults.observations import Observation, Probe, ProbeReturned, on_clock_of

MAX_DELAY_S: Final = 0.025  # of a batch on a loaded machine
NEWEST: Final = 64  # batches: two minutes of an idle agent
LOST_AFTER_S: Final = 10.0  # without a batch; an idle agent sends every 2 s
LATEST_AGE_S: Final = 120.0  # an older batch comes from a backlog or a broken clock
MAX_AHEAD_S: Final = 5.0


class ClockSkew:
    """The offset of a node's clock, from one-way delays (Cristian 1989, without the reply).

    A batch sent at s by the node's clock arrives at r by the monitor's: r - s = skew + delay, and delay is at least 0.
    The minimum of the newest differences is the skew plus the minimum delay.  If a delay alone can explain this value,
    no correction is applied: both ends of a connection are compared at the same time, and an inexact correction would
    blur the comparison.
    """

    def __init__(self) -> None:
        self._differences_s: deque[float] = deque(maxlen=NEWEST)

    def add(self, *, sent_s: float, received_s: float) -> None:
        self._differences_s.append(received_s - sent_s)

    @property
    def ahead_s(self) -> float:
        """Return the correction of the node's times; 0 while its clock can be right."""
        min_s = min(self._differences_s, default=0.0)
        return 0.0 if 0.0 <= min_s <= MAX_DELAY_S else min_s


@dataclass(slots=True)
class Agent:
    session: str
    held: Base | None = None
    skew: ClockSkew = field(default_factory=ClockSkew)
    last_s: float = 0.0  # last batch, by our monotonic clock

    def is_silent(self, steady_s: float, *, for_s: float = LOST_AFTER_S) -> bool:
        return steady_s - self.last_s > for_s


class Agents:
    """The senders of a job: each node's recorder, its prober if that is a separate process, ranks without a recorder.

    Each sender has its own session and clock skew, because the processes start and end separately.  All senders of a
    node read one clock, so a new sender starts with the node's known skew.
    """

    def __init__(self) -> None:
        self.recorders: dict[int, Agent] = {}  # by node: all that ever sent a batch
        self.probers: dict[int, Agent] = {}  # likewise, of separate processes
        self._ranks: dict[int, Agent] = {}  # by rank

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
        return _silent(self.recorders, steady_s)

    def lost_probers(self, *, steady_s: float) -> list[int]:
        return _silent(self.probers, steady_s)

    def held_of(self, node: int, session: str) -> Base | None:
        agent = self.recorders.get(node)
        return agent.held if agent is not None and agent.session == session else None

    def of_node(self, node: int, *, steady_s: float) -> Agent | None:
        """Return the sender for the node's clock: the recorder, else the prober; of two silent ones the later."""
        known = [agent for agent in (self.recorders.get(node), self.probers.get(node)) if agent is not None]
        active = (agent for agent in known if not agent.is_silent(steady_s))
        return next(active, None) or max(known, key=lambda agent: agent.last_s, default=None)

    def _place(self, batch: Batch) -> tuple[dict[int, Agent], int]:
        if batch.rank is not None:
            return self._ranks, batch.rank
        return (self.probers if batch.prober else self.recorders), batch.node

    def _skew_of(self, node: int, *, steady_s: float) -> ClockSkew:
        """Return the node's known skew: the first batch of a sender is late, because it connects first."""
        other = self.of_node(node, steady_s=steady_s)
        if other is None or other.is_silent(steady_s, for_s=LATEST_AGE_S):
            return ClockSkew()
        return copy.deepcopy(other.skew)


@dataclass(slots=True)
class Ingested:
    observations: list[Observation]
    malformed: int


class Ingest:
    def __init__(self, job: Job, *, zero_s: float) -> None:
        self._job = job
        self._zero_s = zero_s
        self.agents = Agents()

    def take(self, body: bytes, *, received_s: float, steady_s: float) -> Ingested:
        """Decode a batch.  Raise WireError, or BaseMissingError if the agent must send a complete batch.

        The first batch of a session is complete.
        """
        batch, held = decode(body, held_of=self.agents.held_of)
        if batch.node >= self._job.nodes:
            raise WireError(f"expected a node from 0 to {self._job.nodes - 1}")
        if batch.rank is not None and self._node_of(batch.rank) != batch.node:
            raise WireError(f"expected a rank of node {batch.node}")
        agent = self.agents.record(batch, held, received_s=received_s, steady_s=steady_s)
        total = sum(1 + len(sample.peers) for sample in batch.samples) + len(batch.others)
        zero_s = self._zero_s - agent.skew.ahead_s
        kept = self._samples(batch.samples, zero_s, received_s=received_s)
        kept += self._others(batch.others, zero_s, received_s=received_s, steady_s=steady_s)
        return Ingested(kept, batch.malformed + total - len(kept))

    def _samples(self, samples: Sequence[Sample], zero_s: float, *, received_s: float) -> list[Observation]:
        """Return current samples with times from zero; samples are most of the data, so each is shifted as a whole."""
        kept: list[Observation] = []
        for sample in samples:
            moved = sample._replace(at_s=sample.at_s - zero_s)
            if self._is_current(moved.at_s, received_s=received_s):
                observations = moved.observations()
                inside = sample.peers.size == 0 or sample.peers[-1] < self._job.nodes  # they are in rising order
                kept += observations if inside else filter(self._belongs_to_job, observations)
        return kept

    def _others(
        self, others: Sequence[Observation], zero_s: float, *, received_s: float, steady_s: float
    ) -> Iterator[Observation]:
        """Yield the current observations of the job's nodes and ranks, with times from zero."""
        for observation in others:
            moved = on_clock_of(observation, zero_s)
            if isinstance(observation.values, Probe | ProbeReturned):
                receiver = observation.node if isinstance(observation.values, Probe) else observation.peer
                arrival_zero_s = self._zero_of_node(receiver, zero_s, steady_s=steady_s)
                moved = moved._replace(values=on_clock_of(observation, arrival_zero_s).values)
            if self._is_current(moved.at_s, received_s=received_s) and self._belongs_to_job(observation):
                yield moved

    def _zero_of_node(self, node: int | None, zero_s: float, *, steady_s: float) -> float:
        """Return the zero of the receiver's clock, whichever end reports: both reports then have equal times."""
        agent = None if node is None else self.agents.of_node(node, steady_s=steady_s)
        return zero_s if agent is None else self._zero_s - agent.skew.ahead_s

    def _is_current(self, at_s: float, *, received_s: float) -> bool:
        return -MAX_AHEAD_S <= received_s - self._zero_s - at_s <= LATEST_AGE_S

    def _node_of(self, rank: int) -> int | None:
        return self._job.rank_node[rank] if rank < len(self._job.rank_node) else None

    def _belongs_to_job(self, observation: Observation) -> bool:
        nodes, ranks = self._job.nodes, len(self._job.rank_node)
        return all(0 <= rank < ranks for rank in observation.ranks) and (
            observation.peer is None or 0 <= observation.peer < nodes
        )


def _silent(agents: Mapping[int, Agent], steady_s: float) -> list[int]:
    return [node for node, agent in agents.items() if agent.is_silent(steady_s)]
