"""Crashes in generated jobs: the first vanished node, its cascade, and the normal end of a job."""

from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.monitor import MonitorSettings
from faults.observations import DeviceCounter, Heartbeat, Observation, Process, SocketPoll
from faults.replay import replay
from tests.faults.stories import Story

ONLY = MonitorSettings(slow=None)
DIES = Story(nodes=4, gone=((5.1, 2),))


def diagnoses(story: Story) -> tuple[Diagnosis, ...]:
    return replay(story.job, story.observations(), ONLY)


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


def test_when_all_nodes_vanish_in_one_poll_the_only_rank_without_error_is_diagnosed() -> None:
    all_nodes = tuple((5.1, node) for node in range(4))
    found = only(DIES.but(gone=all_nodes, failed=((5.11, 0), (5.11, 1), (5.12, 3))))
    assert (found.node, found.isolate) == (2, True)


def test_nodes_that_vanish_in_one_poll_without_errors_are_a_normal_job_end() -> None:
    all_nodes = tuple((5.1, node) for node in range(4))
    assert diagnoses(DIES.but(gone=all_nodes, goes_on=True)) == ()


def test_nodes_that_exit_one_after_another_are_a_normal_job_end() -> None:
    # No rank waits in an operation: each has finished the last one and exits.
    ends = Story(goes_on=True, end_s=8.0, gone=((5.1, 0), (5.4, 1), (5.9, 3), (6.1, 2)))
    observations = [
        observation for observation in ends.observations() if observation.rank is None or observation.at_s < 5.0
    ]
    assert replay(ends.job, observations, ONLY) == ()


def test_two_nodes_that_vanish_in_the_same_poll_are_not_isolated() -> None:
    found = only(DIES.but(gone=((5.1, 2), (5.15, 1)), records=False, end_s=6.0))
    assert not found.isolate


def test_socket_evidence_alone_takes_longer_and_isolates_no_node() -> None:
    found = only(DIES.but(records=False, beats=False))
    assert (found.fault, found.node, found.isolate) == (FaultClass.CRASH, 2, False)
    assert 6.0 <= found.detected_s <= 6.6


def test_device_counters_are_part_of_the_evidence() -> None:
    xid = Observation(5.05, 2, DeviceCounter("GPU-0", "xid", 79, 1.0))
    observations = sorted([*DIES.observations(), xid], key=lambda observation: observation.at_s)
    (found,) = replay(DIES.job, observations, ONLY)
    assert "xid 79" in found.reason
    assert "device" in found.evidence


def test_a_node_that_is_lost_with_its_agent_is_reported_by_its_peers() -> None:
    observations = [
        observation for observation in DIES.observations() if observation.node != 2 or observation.at_s < 5.0
    ]
    (found,) = replay(DIES.job, observations, ONLY)
    assert found.node == 2


def test_the_first_vanished_node_is_not_isolated_while_another_agent_is_late() -> None:
    cascade = DIES.but(gone=((5.1, 2), (5.4, 3)))
    late = [
        observation
        for observation in cascade.observations()
        if observation.node not in (1, 2) or not observation.at_s > 5.0
    ]
    assert not any(found.isolate for found in replay(DIES.job, late, ONLY))


def test_a_last_heartbeat_at_the_time_of_the_exit_does_not_isolate() -> None:
    job = Story(nodes=3).job
    observations = [
        Observation(1.0, 2, Heartbeat(0, 0, None, 0, "comm"), rank=2),
        Observation(1.0, 2, Process(1, "gone", 0.0), rank=2),
        *(Observation(at_s, node, SocketPoll(2), None) for at_s in range(1, 8) for node in (0, 1)),
    ]
    assert [(found.node, found.isolate) for found in replay(job, observations, ONLY)] == [(2, False)]
