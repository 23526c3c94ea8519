"""Decodes batches of recorders, probers and ranks, checks them, and gives observations on one clock."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from deploy.fault_monitor.agents import LATEST_AGE_S, Agents
from deploy.telemetry.batch_codec import WireError, decode
from deploy.telemetry.diag import Sample
from faults.detector import Job
from faults.observations import Observation, Probe, ProbeReturned, on_clock_of

MAX_AHEAD_S: Final = 5.0


@dataclass(slots=True)
class Ingested:
    observations: list[Observation]
    malformed: int


class Ingest:
    """Decodes the batches of one job."""

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
            if self._is_of_now(moved.at_s, received_s=received_s):
                seen = moved.observations()
                inside = sample.peers.size == 0 or sample.peers[-1] < self._job.nodes  # they are in rising order
                kept += seen if inside else filter(self._of_the_job, seen)
        return kept

    def _others(
        self, others: Sequence[Observation], zero_s: float, *, received_s: float, steady_s: float
    ) -> Iterator[Observation]:
        """Yield the current observations of the job's nodes and ranks, with times from zero."""
        for seen in others:
            moved = on_clock_of(seen, zero_s)
            if isinstance(seen.values, Probe | ProbeReturned):
                receiver = seen.node if isinstance(seen.values, Probe) else seen.peer
                arrival_zero_s = self._zero_of_node(receiver, zero_s, steady_s=steady_s)
                moved = moved._replace(values=on_clock_of(seen, arrival_zero_s).values)
            if self._is_of_now(moved.at_s, received_s=received_s) and self._of_the_job(seen):
                yield moved

    def _zero_of_node(self, node: int | None, zero_s: float, *, steady_s: float) -> float:
        """Return the zero of the receiver's clock, whichever end reports: both reports then have equal times."""
        agent = None if node is None else self.agents.of_node(node, steady_s=steady_s)
        return zero_s if agent is None else self._zero_s - agent.skew.ahead_s

    def _is_of_now(self, at_s: float, *, received_s: float) -> bool:
        return -MAX_AHEAD_S <= received_s - self._zero_s - at_s <= LATEST_AGE_S

    def _node_of(self, rank: int) -> int | None:
        return self._job.rank_node[rank] if rank < len(self._job.rank_node) else None

    def _of_the_job(self, seen: Observation) -> bool:
        nodes, ranks = self._job.nodes, len(self._job.rank_node)
        return all(0 <= rank < ranks for rank in seen.ranks) and (seen.peer is None or 0 <= seen.peer < nodes)
