"""Crashes in generated jobs: the first vanished node, its cascade, and the normal end of a job."""

from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.monitor import MonitorSettings
from faults.observations import DeviceCounter, Heartbeat, Observation, Process, SocketPoll
from faults.replay import replay
from tests.faults.stories import Story

ONLY = MonitorSettings(slow=None)
DIES = Story(nodes=4, gone=((5.1, 2),))


def diagnoses(story: Story) -> tuple[Diagnosis, ...]:
    return replay(story.job, story.told(), ONLY)


def only(story: Story) -> Diagnosis:
    (found,) = diagnoses(story)
    return found


def test_a_crash_is_diagnosed_within_half_a_second() -> None:
    found = only(DIES)
    assert (found.fault, found.scope, found.node, found.isolate) == (FaultClass.CRASH, Scope.RANK, 2, True)
    assert found.onset_s <= 5.1 <= found.detected_s <= 5.6


def test_the_cascade_is_no_separate_fault() -> None:
    found = only(DIES.but(gone=((5.1, 2), (5.6, 1), (6.1, 3), (6.6, 0))))
    assert (found.node, found.detected_s <= 5.6) == (2, True)


def test_all_vanish_in_one_poll_and_the_only_rank_without_error_is_diagnosed() -> None:
    everybody = tuple((5.1, node) for node in range(4))
    found = only(DIES.but(gone=everybody, failed=((5.11, 0), (5.11, 1), (5.12, 3))))
    assert (found.node, found.isolate) == (2, True)


def test_all_vanish_in_one_poll_without_errors_at_the_end_of_a_job() -> None:
    everybody = tuple((5.1, node) for node in range(4))
    assert diagnoses(DIES.but(gone=everybody, goes_on=True)) == ()


def test_a_job_whose_nodes_end_one_after_another() -> None:
    # No rank waits in an operation: each has finished the last one and exits.
    ends = Story(goes_on=True, end_s=8.0, gone=((5.1, 0), (5.4, 1), (5.9, 3), (6.1, 2)))
    told = [seen for seen in ends.told() if seen.rank is None or seen.at_s < 5.0]
    assert replay(ends.job, told, ONLY) == ()


def test_two_in_the_same_poll_have_no_order_and_are_not_isolated() -> None:
    found = only(DIES.but(gone=((5.1, 2), (5.15, 1)), records=False, end_s=6.0))
    assert not found.isolate


def test_sockets_alone_take_longer_and_isolate_no_node() -> None:
    found = only(DIES.but(records=False, beats=False))
    assert (found.fault, found.node, found.isolate) == (FaultClass.CRASH, 2, False)
    assert 6.0 <= found.detected_s <= 6.6


def test_reports_of_devices_are_part_of_the_evidence() -> None:
    xid = Observation(5.05, 2, DeviceCounter("GPU-0", "xid", 79, 1.0))
    told = sorted([*DIES.told(), xid], key=lambda seen: seen.at_s)
    (found,) = replay(DIES.job, told, ONLY)
    assert "xid 79" in found.reason
    assert "device" in found.evidence


def test_a_node_that_is_lost_with_its_agent_is_reported_by_its_peers() -> None:
    told = [seen for seen in DIES.told() if seen.node != 2 or seen.at_s < 5.0]
    (found,) = replay(DIES.job, told, ONLY)
    assert found.node == 2


def test_the_first_vanished_node_is_not_isolated_while_another_agent_is_late() -> None:
    cascade = DIES.but(gone=((5.1, 2), (5.4, 3)))
    late = [seen for seen in cascade.told() if seen.node not in (1, 2) or not seen.at_s > 5.0]
    assert not any(found.isolate for found in replay(DIES.job, late, ONLY))


def test_a_last_heartbeat_at_the_moment_of_the_end() -> None:
    job = Story(nodes=3).job
    told = [
        Observation(1.0, 2, Heartbeat(0, 0, None, 0, "comm"), rank=2),
        Observation(1.0, 2, Process(1, "gone", 0.0), rank=2),
        *(Observation(at_s, node, SocketPoll(2), None) for at_s in range(1, 8) for node in (0, 1)),
    ]
    assert [(found.node, found.isolate) for found in replay(job, told, ONLY)] == [(2, False)]
