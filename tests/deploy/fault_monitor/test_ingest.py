"""The ingest converts batches to observations on the monitor's clock, for any agent clock."""

from collections.abc import Sequence

import numpy as np
import pytest

from deploy.fault_monitor.ingest import LOST_AFTER_S, MAX_DELAY_S, ClockSkew, Ingest
from deploy.telemetry.batch_codec import Base, BaseMissingError, WireError, encode
from deploy.telemetry.diag import Sample
from faults.detector import Job
from faults.observations import FlightProgress, Heartbeat, Observation, PointToPoint, Process, SocketPoll

ZERO_S = 1_795_000_000.0
JOB = Job(nodes=2, rank_node=(0, 1))


def body(
    *,
    node: int = 1,
    sent_s: float,
    number: int = 0,
    held: Base | None = None,
    rank: int = 1,
    peers: Sequence[int] = (0,),
    session: str = "s",
) -> tuple[bytes, Base]:
    rows = np.arange(19 * len(peers), dtype=np.int64).reshape(-1, 19)
    sample = Sample(sent_s - 0.25, node, np.array(peers, np.int64), rows)
    others = [Observation(sent_s, node, Process(5, "T", 1.0), rank=rank)]
    return encode([sample], others, session=session, number=number, held=held, node=node, sent_s=sent_s)


def test_times_are_relative_to_the_monitors_zero() -> None:
    batch, _held = body(sent_s=ZERO_S + 10.0)
    taken = Ingest(JOB, zero_s=ZERO_S).take(batch, received_s=ZERO_S + 10.01, steady_s=0.0)
    assert taken.malformed == 0
    assert taken.observations[0].values == SocketPoll(1)
    assert [observation.at_s for observation in taken.observations] == pytest.approx([9.75, 9.75, 10.0])


def test_a_wrong_clock_is_corrected() -> None:
    batch, _held = body(sent_s=ZERO_S + 70.0)
    taken = Ingest(JOB, zero_s=ZERO_S).take(batch, received_s=ZERO_S + 10.0, steady_s=0.0)
    assert [observation.at_s for observation in taken.observations] == pytest.approx([9.75, 9.75, 10.0])


def test_clock_skew_is_estimated_from_the_minimum_delay() -> None:
    skew = ClockSkew()
    for delay_s in (0.3, 0.02, 0.5):
        skew.add(sent_s=5.0, received_s=7.0 + delay_s)
    assert skew.ahead_s == pytest.approx(2.02)


def test_a_small_delay_is_not_clock_skew() -> None:
    skew = ClockSkew()
    skew.add(sent_s=5.0, received_s=5.0 + MAX_DELAY_S / 2)
    assert skew.ahead_s == 0.0


def test_unknown_ranks_and_nodes_are_counted() -> None:
    intake = Ingest(JOB, zero_s=ZERO_S)
    batch, _held = body(sent_s=ZERO_S, rank=2)
    assert intake.take(batch, received_s=ZERO_S, steady_s=0.0).malformed == 1
    batch, _held = body(sent_s=ZERO_S, node=2)
    with pytest.raises(WireError, match="0 to 1"):
        intake.take(batch, received_s=ZERO_S, steady_s=0.0)


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (PointToPoint(0, 1, 8, ZERO_S, ZERO_S, ZERO_S), 1),
        (PointToPoint(2, 1, 8, ZERO_S, ZERO_S, ZERO_S), 0),
        (PointToPoint(0, 9, 8, ZERO_S, ZERO_S, ZERO_S), 0),
        (FlightProgress("g", (0, 1), 3, 3, 3, None, None), 1),
        (FlightProgress("g", (0, 1, 2), 3, 3, 3, None, None), 0),
    ],
)
def test_ranks_inside_an_observation_must_be_of_the_job(values: PointToPoint | FlightProgress, kept: int) -> None:
    batch, _held = encode(
        [], [Observation(ZERO_S, 1, values, rank=1)], session="s", number=0, held=None, node=1, sent_s=ZERO_S
    )
    taken = Ingest(JOB, zero_s=ZERO_S).take(batch, received_s=ZERO_S, steady_s=0.0)
    assert (len(taken.observations), taken.malformed) == (kept, 1 - kept)


def test_a_new_monitor_requests_a_complete_batch() -> None:
    first, held = body(sent_s=ZERO_S)
    second, _held = body(sent_s=ZERO_S + 1.0, number=1, held=held)
    with pytest.raises(BaseMissingError):
        Ingest(JOB, zero_s=ZERO_S).take(second, received_s=ZERO_S + 1.0, steady_s=0.0)
    intake = Ingest(JOB, zero_s=ZERO_S)
    intake.take(first, received_s=ZERO_S, steady_s=0.0)
    assert len(intake.take(second, received_s=ZERO_S + 1.0, steady_s=1.0).observations) == 3


def test_a_silent_agent_is_lost() -> None:
    intake = Ingest(JOB, zero_s=ZERO_S)
    intake.take(body(sent_s=ZERO_S)[0], received_s=ZERO_S, steady_s=5.0)
    assert intake.agents.lost(steady_s=5.0 + LOST_AFTER_S) == []
    assert intake.agents.lost(steady_s=5.1 + LOST_AFTER_S) == [1]


def test_a_poll_keeps_only_peers_of_the_job() -> None:
    batch, _held = body(sent_s=ZERO_S, peers=(0, 1, 2, 9))
    taken = Ingest(JOB, zero_s=ZERO_S).take(batch, received_s=ZERO_S, steady_s=0.0)
    assert [observation.peer for observation in taken.observations] == [None, 0, 1, None]
    assert taken.malformed == 2


def test_observations_of_the_distant_past_and_the_future_are_counted() -> None:
    intake = Ingest(JOB, zero_s=ZERO_S)
    intake.take(body(sent_s=ZERO_S)[0], received_s=ZERO_S, steady_s=0.0)  # the agent's clock is right
    late, _held = body(sent_s=ZERO_S + 1.0)
    assert intake.take(late, received_s=ZERO_S + 500.0, steady_s=0.0).malformed == 3


def test_a_restarted_agent_is_corrected_by_its_new_clock() -> None:
    intake = Ingest(JOB, zero_s=ZERO_S)
    first, held = body(sent_s=ZERO_S)
    intake.take(first, received_s=ZERO_S + 0.01, steady_s=0.0)
    again, _held = body(sent_s=ZERO_S - 300.0, session="t")  # its clock was set back five minutes
    taken = intake.take(again, received_s=ZERO_S + 1.01, steady_s=1.0)
    assert taken.malformed == 0
    assert [observation.at_s for observation in taken.observations] == pytest.approx([0.76, 0.76, 1.01])
    old, _held = body(sent_s=ZERO_S + 1.0, number=1, held=held)
    with pytest.raises(BaseMissingError):  # a batch of the earlier agent process
        intake.take(old, received_s=ZERO_S + 1.01, steady_s=1.0)


def sent_directly(
    *, sent_s: float, rank: int = 1, node: int = 1, of_rank: int | None = None, session: str = "of a rank"
) -> bytes:
    """A batch of a rank about itself, or about another rank."""
    beat = Observation(sent_s, node, Heartbeat(5, 5, None, 4, "compute"), rank=rank if of_rank is None else of_rank)
    return encode([], [beat], session=session, number=0, held=None, node=node, sent_s=sent_s, rank=rank)[0]


def test_a_recorder_and_the_ranks_of_its_node_can_both_send() -> None:
    intake, held = Ingest(JOB, zero_s=ZERO_S), None
    for number in range(3):
        sent_s = ZERO_S + number
        batch, held = body(sent_s=sent_s, number=number, held=held)  # builds on the recorder's previous batch
        assert len(intake.take(batch, received_s=sent_s, steady_s=float(number)).observations) == 3
        taken = intake.take(sent_directly(sent_s=sent_s), received_s=sent_s, steady_s=float(number))
        assert [observation.rank for observation in taken.observations] == [1]
        assert [observation.at_s for observation in taken.observations] == pytest.approx([number])


def test_a_rank_that_reports_directly_does_not_count_as_its_recorder() -> None:
    intake = Ingest(JOB, zero_s=ZERO_S)
    intake.take(body(sent_s=ZERO_S)[0], received_s=ZERO_S, steady_s=0.0)
    later_s = LOST_AFTER_S + 1.0
    intake.take(sent_directly(sent_s=ZERO_S + later_s), received_s=ZERO_S + later_s, steady_s=later_s)
    assert intake.agents.lost(steady_s=later_s) == [1]
    assert intake.agents.lost(steady_s=3 * later_s) == [1]  # a rank that returned to the inbox is not lost either


def test_the_first_delayed_batch_of_a_rank_is_corrected_by_its_recorders_clock() -> None:
    intake, delay_s = Ingest(JOB, zero_s=ZERO_S), 0.4
    intake.take(body(sent_s=ZERO_S)[0], received_s=ZERO_S + 0.01, steady_s=0.0)
    first = intake.take(sent_directly(sent_s=ZERO_S + 5.0), received_s=ZERO_S + 5.0 + delay_s, steady_s=5.0)
    assert [observation.at_s for observation in first.observations] == pytest.approx([5.0])


def test_a_rank_whose_clock_was_set_is_corrected_by_its_new_clock() -> None:
    intake = Ingest(JOB, zero_s=ZERO_S)
    intake.take(body(sent_s=ZERO_S)[0], received_s=ZERO_S, steady_s=0.0)
    intake.take(sent_directly(sent_s=ZERO_S + 1.0), received_s=ZERO_S + 1.0, steady_s=1.0)
    again = sent_directly(sent_s=ZERO_S - 300.0, session="new")
    taken = intake.take(again, received_s=ZERO_S + 2.0, steady_s=2.0)
    assert [observation.at_s for observation in taken.observations] == pytest.approx([2.0])


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_of_another_node_is_refused(rank: int) -> None:
    with pytest.raises(WireError, match="a rank of node 1"):
        Ingest(JOB, zero_s=ZERO_S).take(sent_directly(sent_s=ZERO_S, rank=rank), received_s=ZERO_S, steady_s=0.0)


def test_a_rank_can_only_report_about_itself() -> None:
    job = Job(nodes=2, rank_node=(0, 1, 1))
    batch = sent_directly(sent_s=ZERO_S, rank=1, of_rank=2)
    taken = Ingest(job, zero_s=ZERO_S).take(batch, received_s=ZERO_S, steady_s=0.0)
    assert (taken.observations, taken.malformed) == ([], 1)


def test_a_batch_of_a_rank_without_an_index_or_with_polls_is_refused() -> None:
    sample = Sample(ZERO_S, 1, np.array([0], np.int64), np.zeros((1, 19), np.int64))
    for samples, rank in (([sample], 1), ([], -1), ([], 1 << 17)):
        batch, _held = encode(samples, [], session="s", number=0, held=None, node=1, sent_s=ZERO_S, rank=rank)
        with pytest.raises(WireError, match=r"of a rank|rank's index"):
            Ingest(JOB, zero_s=ZERO_S).take(batch, received_s=ZERO_S, steady_s=0.0)
