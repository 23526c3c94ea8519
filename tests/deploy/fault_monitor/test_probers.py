"""The recorder and the prober of a node are independent agents, with separate sessions, loss and clocks."""

from collections.abc import Sequence

import numpy as np
import pytest

from deploy.fault_monitor.ingest import LATEST_AGE_S, LOST_AFTER_S, Ingest, Ingested
from deploy.telemetry.batch_codec import Base, BaseMissingError, WireError, encode
from deploy.telemetry.diag import Sample
from faults.detector import Job
from faults.observations import Observation, Probe, ProbeReturned, Process

ZERO_S = 1_795_000_000.0
JOB = Job(nodes=2, rank_node=(0, 1))
DELAY_S = 0.002  # of a train


class Node:
    """The recorder and the prober of one node, with the node's clock."""

    def __init__(self, intake: Ingest, node: int = 1, *, off_s: float = 0.0) -> None:
        self.intake, self.node, self.off_s = intake, node, off_s
        self.held: Base | None = None
        self.numbers = {"recorder": 0, "prober": 0}

    def polls(self, at_s: float, *, session: str = "recorder", late_s: float = 0.0) -> Ingested:
        """A recorder batch, based on the previous one."""
        rows = np.full((1, 19), int(at_s), np.int64)
        sample = Sample(ZERO_S + at_s + self.off_s, self.node, np.array([0], np.int64), rows)
        return self._take("recorder", [sample], [], at_s, session=session, late_s=late_s)

    def trains(self, at_s: float, *, session: str = "prober", late_s: float = 0.0) -> Ingested:
        """A prober batch with a train from the other node, in the clocks of both."""
        arrived_s = ZERO_S + at_s - 1.0 + DELAY_S + self.off_s
        observation = self._observation(at_s, Probe(2048, ZERO_S + at_s - 1.0, arrived_s))
        return self._take("prober", [], [observation], at_s, session=session, late_s=late_s)

    def returns(self, at_s: float, *, of: "Node", by: str) -> Ingested:
        """A batch with the report about a train to the other node."""
        arrived_s = ZERO_S + at_s - 1.0 + DELAY_S + of.off_s
        observation = self._observation(at_s, ProbeReturned(2048, ZERO_S + at_s - 1.0 + self.off_s, arrived_s))
        return self._take(by, [], [observation], at_s, session=by, late_s=0.0)

    def _observation(self, at_s: float, values: Probe | ProbeReturned) -> Observation:
        return Observation(ZERO_S + at_s + self.off_s, self.node, values, peer=1 - self.node)

    def _take(
        self, of: str, samples: list[Sample], others: Sequence[Observation], at_s: float, *, session: str, late_s: float
    ) -> Ingested:
        held = self.held if of == "recorder" else None
        body, after = encode(
            samples,
            [*others],
            session=session,
            number=self.numbers[of],
            held=held,
            node=self.node,
            sent_s=ZERO_S + at_s + self.off_s,
            prober=of == "prober",
        )
        self.numbers[of] += 1
        taken = self.intake.take(body, received_s=ZERO_S + at_s + late_s, steady_s=at_s)
        if of == "recorder":
            self.held = after if samples else None
        return taken


@pytest.fixture
def intake() -> Ingest:
    return Ingest(JOB, zero_s=ZERO_S)


def test_batches_sent_in_turn_are_all_accepted(intake: Ingest) -> None:
    node = Node(intake)
    for turn in range(20):  # a batch with an unknown base would raise
        polls, trains = node.polls(2.0 * turn), node.trains(2.0 * turn + 1.0)
        assert (len(polls.observations), polls.malformed) == (2, 0)
        assert (len(trains.observations), trains.malformed) == (1, 0)
    assert (node.numbers["recorder"], node.held is not None) == (20, True)


def test_a_recorders_batch_cannot_build_on_its_probers(intake: Ingest) -> None:
    node = Node(intake)
    node.trains(0.0, session="shared")
    node.held = Base(0, np.array([0], np.int64), np.zeros((1, 19), np.int64))
    with pytest.raises(BaseMissingError):
        node.polls(1.0, session="shared")


def test_recorder_and_prober_are_lost_independently(intake: Ingest) -> None:
    node, gone_s = Node(intake), LOST_AFTER_S + 1.0
    node.polls(0.0)
    node.trains(0.0)
    node.trains(gone_s)
    assert (intake.agents.lost(steady_s=gone_s), intake.agents.lost_probers(steady_s=gone_s)) == ([1], [])
    node.polls(gone_s)
    later_s = 2 * gone_s
    node.polls(later_s)
    assert (intake.agents.lost(steady_s=later_s), intake.agents.lost_probers(steady_s=later_s)) == ([], [1])


def test_a_node_with_only_a_prober_has_no_lost_recorder(intake: Ingest) -> None:
    Node(intake).trains(0.0)
    assert intake.agents.lost(steady_s=100.0) == []
    assert intake.agents.lost_probers(steady_s=100.0) == [1]


def test_a_prober_of_an_unknown_node_is_refused(intake: Ingest) -> None:
    with pytest.raises(WireError, match="0 to 1"):
        Node(intake, 2).trains(0.0)


@pytest.mark.parametrize("off_s", [0.0, 300.0])
def test_a_delayed_first_batch_is_corrected_by_the_clock_of_the_other_agent(off_s: float) -> None:
    late_s = 0.4
    first, then = Ingest(JOB, zero_s=ZERO_S), Ingest(JOB, zero_s=ZERO_S)
    beside, alone = Node(first, off_s=off_s), Node(then, off_s=off_s)
    beside.polls(0.0)
    (observation,) = beside.trains(5.0, late_s=late_s).observations
    assert observation.at_s == pytest.approx(5.0)
    alone.trains(0.0)
    assert [observation.at_s for observation in alone.polls(5.0, late_s=late_s).observations] == pytest.approx(
        [5.0, 5.0]
    )


def test_an_old_clock_estimate_is_dropped(intake: Ingest) -> None:
    node = Node(intake, off_s=300.0)
    node.polls(0.0)
    node.off_s = 0.0  # the clock was corrected while no agent sent
    (observation,) = node.trains(LATEST_AGE_S + 1.0).observations
    assert observation.at_s == pytest.approx(LATEST_AGE_S + 1.0)


def test_a_set_clock_is_used_before_the_other_agent_confirms_it(
    intake: Ingest,
) -> None:
    node = Node(intake)
    node.polls(0.0)
    node.trains(1.0)
    node.off_s = -300.0
    (observation,) = node.trains(2.0, session="new").observations
    assert observation.at_s == pytest.approx(2.0)


@pytest.mark.parametrize("off_s", [0.0, 300.0, -300.0])
@pytest.mark.parametrize("recorder", ["active", "lost", "never started"])
def test_both_ends_agree_on_a_train_with_any_remaining_agent_of_the_receiver(
    intake: Ingest, recorder: str, off_s: float
) -> None:
    """Node 1 receives the train, by its own clock; the other end has a recorder that also sends probes."""
    sender, receiver = Node(intake, 0), Node(intake, 1, off_s=off_s)
    now_s = 3 * LOST_AFTER_S
    if recorder != "never started":
        receiver.polls(0.0 if recorder == "lost" else now_s - 1.0)
    receiver.trains(now_s - 1.0)
    if recorder == "lost":
        assert intake.agents.lost(steady_s=now_s) == [1]
    (ours,) = receiver.trains(now_s).observations
    (its,) = sender.returns(now_s, of=receiver, by="recorder").observations
    assert isinstance(ours.values, Probe)
    assert isinstance(its.values, ProbeReturned)
    assert its.values.received_s == pytest.approx(ours.values.received_s, abs=1e-5)
    assert its.values.received_s == pytest.approx(now_s - 1.0 + DELAY_S, abs=1e-5)


def test_a_clock_set_after_the_loss_of_the_recorder_comes_from_the_prober(intake: Ingest) -> None:
    sender, receiver = Node(intake, 0), Node(intake, 1)
    receiver.polls(0.0)
    receiver.off_s, now_s = 300.0, LOST_AFTER_S + 5.0
    receiver.trains(now_s, session="new")
    (its,) = sender.returns(now_s, of=receiver, by="prober").observations
    assert isinstance(its.values, ProbeReturned)
    assert its.values.received_s == pytest.approx(now_s - 1.0 + DELAY_S, abs=1e-5)


def test_process_observations_of_a_prober_are_malformed(intake: Ingest) -> None:
    others = [Observation(ZERO_S, 1, Process(5, "T", 1.0), rank=1)]
    body, _held = encode([], others, session="s", number=0, held=None, node=1, sent_s=ZERO_S, prober=True)
    taken = intake.take(body, received_s=ZERO_S, steady_s=0.0)
    assert (taken.observations, taken.malformed) == ([], 1)
