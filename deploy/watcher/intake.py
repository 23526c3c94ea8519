"""Batches in, of recorders and of ranks that tell of themselves; observations on one clock out.

Nothing that anybody sends gets further than here.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from deploy.recorder.diag import Sample
from deploy.recorder.wire import Batch, Held, WireError, decode
from deploy.watcher.skew import ClockSkew
from faults.detector import Job
from faults.observations import Observation, ProbeReturned, on_clock_of

LATEST_AGE_S: Final = 120.0  # older than this is a backlog or a broken clock
MOST_AHEAD_S: Final = 5.0
LOST_AFTER_S: Final = 10.0  # without a batch; a quiet agent sends every 2 s


@dataclass(slots=True)
class Agent:
    """One node's recorder, or a rank, as it is known here."""

    session: str
    held: Held | None = None
    skew: ClockSkew = field(default_factory=ClockSkew)
    heard_s: float = 0.0  # by our steady clock


@dataclass(slots=True)
class Taken:
    """What came of a batch."""

    observations: list[Observation]
    malformed: int


class Intake:
    """All agents of a job."""

    def __init__(self, job: Job, *, zero_s: float) -> None:
        self._job = job
        self._zero_s = zero_s
        self.agents: dict[int, Agent] = {}  # by node
        self._ranks: dict[int, Agent] = {}  # that have told of themselves, past the recorder of their node

    def take(self, body: bytes, *, received_s: float, steady_s: float) -> Taken:
        """Raises WireError; BaseMissingError where the agent should send a whole batch.

        A recorder that was started again has a new session.  Its first batch is whole.
        """
        batch, held = decode(body, held_of=self._held_of)
        if batch.node >= self._job.nodes:
            raise WireError(f"expected a node from 0 to {self._job.nodes - 1}")
        if batch.rank is not None and self._node_of(batch.rank) != batch.node:
            raise WireError(f"expected a rank of node {batch.node}")
        agent = self._agent(batch, steady_s=steady_s)
        agent.held, agent.heard_s = held, steady_s
        agent.skew.heard(sent_s=batch.sent_s, received_s=received_s)
        told = sum(1 + len(sample.peers) for sample in batch.samples) + len(batch.others)
        zero_s = self._zero_s - agent.skew.ahead_s
        kept = self._looks(batch.samples, zero_s, received_s=received_s)
        kept += self._others(batch.others, zero_s, received_s=received_s)
        return Taken(kept, batch.malformed + told - len(kept))

    def lost(self, *, steady_s: float) -> list[int]:
        """Nodes whose agents were heard, and are not any more."""
        return [node for node, agent in self.agents.items() if steady_s - agent.heard_s > LOST_AFTER_S]

    def _agent(self, batch: Batch, *, steady_s: float) -> Agent:
        """Who has sent it.  A node's recorder and each of its ranks have sessions of their own at once."""
        of, key = (self.agents, batch.node) if batch.rank is None else (self._ranks, batch.rank)
        agent = of.get(key)
        if agent is None or agent.session != batch.session:
            skew = self._skew_of_node(batch.node, steady_s=steady_s) if agent is None else None
            agent = of[key] = Agent(batch.session, skew=skew or ClockSkew())
        return agent

    def _skew_of_node(self, node: int, *, steady_s: float) -> ClockSkew | None:
        """As its recorder has shown it till now: a rank's first batch comes late, for it has to find its way first."""
        recorder = self.agents.get(node)
        known = recorder is not None and steady_s - recorder.heard_s <= LATEST_AGE_S
        return copy.deepcopy(recorder.skew) if recorder is not None and known else None

    def _held_of(self, node: int, session: str) -> Held | None:
        agent = self.agents.get(node)
        return agent.held if agent is not None and agent.session == session else None

    def _looks(self, samples: Sequence[Sample], zero_s: float, *, received_s: float) -> list[Observation]:
        """Of now, counted from zero; moved as a whole, for it is most of what comes."""
        kept: list[Observation] = []
        for sample in samples:
            moved = sample._replace(at_s=sample.at_s - zero_s)
            if self._is_of_now(moved.at_s, received_s=received_s):
                seen = moved.observations()
                inside = sample.peers.size == 0 or sample.peers[-1] < self._job.nodes  # they are in rising order
                kept += seen if inside else filter(self._of_the_job, seen)
        return kept

    def _others(self, others: Sequence[Observation], zero_s: float, *, received_s: float) -> Iterator[Observation]:
        """Of the job's nodes and ranks, and of now; counted from zero."""
        for seen in others:
            moved = on_clock_of(seen, zero_s)
            if isinstance(seen.values, ProbeReturned):
                moved = moved._replace(values=on_clock_of(seen, self._zero_of_peer(seen.peer, zero_s)).values)
            if self._is_of_now(moved.at_s, received_s=received_s) and self._of_the_job(seen):
                yield moved

    def _zero_of_peer(self, peer: int | None, zero_s: float) -> float:
        """What counts as zero of the clock by which a train arrived, so that both ends tell of it alike."""
        agent = None if peer is None else self.agents.get(peer)
        return zero_s if agent is None else self._zero_s - agent.skew.ahead_s

    def _is_of_now(self, at_s: float, *, received_s: float) -> bool:
        return -MOST_AHEAD_S <= received_s - self._zero_s - at_s <= LATEST_AGE_S

    def _node_of(self, rank: int) -> int | None:
        return self._job.rank_node[rank] if rank < len(self._job.rank_node) else None

    def _of_the_job(self, seen: Observation) -> bool:
        nodes, ranks = self._job.nodes, len(self._job.rank_node)
        known_rank = seen.rank is None or 0 <= seen.rank < ranks
        return known_rank and (seen.peer is None or 0 <= seen.peer < nodes)
