"""Probe readings of a pair from either end, through real trains, reports, batches and the monitor's ingest."""

import time
from collections import Counter
from contextlib import ExitStack
from itertools import count

import pytest

from deploy.fault_monitor.ingest import Ingest
from deploy.telemetry.batch_codec import encode
from deploy.telemetry.prober import Prober
from faults.detector import Job
from faults.observations import Observation, Probe, ProbeReturned
from faults.probe_dedup import ProbeDeduplicator
from tests.deploy.telemetry.loopback import HERE, arrived, free_port

ZERO_S = time.time()
NODES = 3
JOB = Job(nodes=NODES, rank_node=(0, 1, 2))
TURNS = 4
Pair = tuple[int, int]


class Nodes:
    """Probers of all nodes of a job on loopback, and their reports."""

    def __init__(self, stack: ExitStack) -> None:
        port = free_port()
        self.probers = [Prober(node=node, peers=HERE, size_bytes=9_000, port=port) for node in range(NODES)]
        for prober in self.probers:
            stack.callback(prober.close)
        self.observations: list[Observation] = []

    def run_turns(self, turns: int) -> Counter[Pair]:
        """Send, receive and acknowledge trains in each turn; return the number of trains of each pair."""
        for poll in range(3 * turns):
            arrived()
            for prober in self.probers:
                self.observations += prober.poll(ZERO_S + poll // 3)
        trains = [observation for observation in self.observations if isinstance(observation.values, Probe)]
        return Counter((observation.peer, observation.node) for observation in trains if observation.peer is not None)


class MonitorDouble:
    """The readings of a job from the monitor's ingest."""

    def __init__(self, *, off_s: dict[int, float] | None = None) -> None:
        self.intake, self.ends = Ingest(JOB, zero_s=ZERO_S), ProbeDeduplicator(NODES, max_pairs=100)
        self.off_s = off_s or {}
        self.readings: list[tuple[Pair, Probe]] = []
        self.numbers = count()

    def of_pairs(self) -> Counter[Pair]:
        """The number of readings of each pair."""
        return Counter(pair for pair, _values in self.readings)

    def receive(self, node: int, observations: list[Observation]) -> None:
        """Receive one batch of a node's recorder, whose clock may be wrong."""
        sent_s = max((each.at_s for each in observations), default=ZERO_S + self.off_s.get(node, 0.0)) + 0.5
        body, _held = encode(
            [], observations, session=f"of {node}", number=next(self.numbers), held=None, node=node, sent_s=sent_s
        )
        taken = self.intake.take(body, received_s=sent_s + 0.001 - self.off_s.get(node, 0.0), steady_s=0.0)
        assert taken.malformed == 0
        for one in taken.observations:
            reading = self.ends.reading(one)
            if reading is not None and reading.peer is not None and isinstance(reading.values, Probe):
                self.readings.append(((reading.peer, reading.node), reading.values))


def test_the_sender_reports_for_a_silent_receiver() -> None:
    with ExitStack() as stack:
        nodes, monitor = Nodes(stack), MonitorDouble()
        trains = nodes.run_turns(TURNS)
    for node in (0, 2):  # node 1 is alive, but its batches are lost
        monitor.receive(node, [observation for observation in nodes.observations if observation.node == node])
    assert len(trains) == NODES * (NODES - 1)
    assert monitor.of_pairs() == trains
    measured = [
        tuple(observation.values)
        for observation in nodes.observations
        if observation.node == 1 and isinstance(observation.values, Probe)
    ]
    assert sorted(values.tail_s or 0.0 for pair, values in monitor.readings if pair[1] == 1) == pytest.approx(
        sorted(values[3] or 0.0 for values in measured), abs=2e-6
    )


@pytest.mark.parametrize("off_s", [0.0, -0.004, 300.0, -300.0])
def test_reports_of_both_ends_give_one_reading_with_any_clocks(off_s: float) -> None:
    """Each end's times are corrected by the estimate of its clock; a train has the times of two clocks."""
    with ExitStack() as stack:
        nodes, monitor = Nodes(stack), MonitorDouble(off_s={1: off_s})
        trains = nodes.run_turns(TURNS)
    for node in range(NODES):
        monitor.receive(node, [])  # so that the monitor can estimate each clock
    for node in range(NODES):
        monitor.receive(
            node,
            [_by_clock_of(observation, node, off_s) for observation in nodes.observations if observation.node == node],
        )
    assert sum(trains.values()) >= 2 * TURNS
    assert monitor.of_pairs() == trains


def _by_clock_of(observation: Observation, node: int, off_s: float) -> Observation:
    """The observation with the wrong clock of node 1."""
    assert isinstance(observation.values, Probe | ProbeReturned)
    sender = observation.peer if isinstance(observation.values, Probe) else node
    receiver = node if isinstance(observation.values, Probe) else observation.peer
    values = observation.values._replace(
        sent_s=observation.values.sent_s + (off_s if sender == 1 else 0.0),
        received_s=observation.values.received_s + (off_s if receiver == 1 else 0.0),
    )
    return observation._replace(at_s=observation.at_s + (off_s if node == 1 else 0.0), values=values)
