"""A job that restarts in place counts from the start again. This is no hang, and later hangs are found."""

import pytest

from faults.diagnosis import Diagnosis, FaultClass
from faults.job_state import JobState
from faults.monitor import MonitorSettings
from faults.observations import (
    Collective,
    FlightProgress,
    Heartbeat,
    Observation,
    OperationCounts,
    SocketPoll,
    on_clock_of,
)
from faults.replay import replay
from tests.faults.stories import POLL_S, Story

ONLY = MonitorSettings(slow=None)
FIRST = Story(goes_on=True, end_s=12.0)
RECORDS, BEATS = {"records": True, "beats": False}, {"records": False, "beats": True}
BOTH = {"records": True, "beats": True}


def diagnoses(second: Story, *, down_s: float, records: bool, beats: bool) -> tuple[Diagnosis, ...]:
    """Diagnoses of a job that ran, was down for `down_s`, and then ran as `second`."""
    begins_s = FIRST.end_s + down_s
    lives = [(FIRST, 0.0), (second, begins_s)]
    observations = [
        on_clock_of(observation, -from_s)
        for story, from_s in lives
        for observation in story.but(records=records, beats=beats).observations()
    ]
    away = range(int(FIRST.end_s / POLL_S), int(begins_s / POLL_S))
    observations += [Observation(poll * POLL_S, node, SocketPoll(0)) for poll in away for node in range(FIRST.nodes)]
    return replay(FIRST.job, sorted(observations, key=lambda observation: observation.at_s), ONLY)


@pytest.mark.parametrize("down_s", [1.0, 2.0, 15.0])
@pytest.mark.parametrize("sources", [RECORDS, BEATS, BOTH])
def test_a_restart_is_not_diagnosed_as_a_hang(down_s: float, sources: dict[str, bool]) -> None:
    assert diagnoses(Story(goes_on=True, end_s=20.0), down_s=down_s, **sources) == ()


@pytest.mark.parametrize("sources", [BEATS, BOTH])
def test_a_hang_below_the_count_before_the_restart_is_found(sources: dict[str, bool]) -> None:
    (diagnosis,) = diagnoses(Story(behind=2, stop_s=4.0, end_s=14.0), down_s=5.0, **sources)
    assert (diagnosis.fault, diagnosis.node, diagnosis.isolate) == (FaultClass.NONCOMM_HANG, 2, True)
    assert 21.0 <= diagnosis.onset_s <= 21.5
    assert diagnosis.detected_s <= 26.0


@pytest.mark.parametrize("sources", [RECORDS, BEATS, BOTH])
def test_a_cut_after_a_restart_is_found(sources: dict[str, bool]) -> None:
    cut = tuple((end, 1) for end in (0, 2)) + tuple((1, end) for end in (0, 2))
    (diagnosis,) = diagnoses(Story(dead=cut, stop_s=4.0, end_s=14.0), down_s=5.0, **sources)
    assert (diagnosis.fault, diagnosis.node) == (FaultClass.COMM_HANG, 1)
    assert 21.0 < diagnosis.detected_s <= 24.0


def collective(seq: int, arrived_s: float, group: str = "") -> Observation:
    return Observation(arrived_s + 0.1, 0, Collective(seq, "all_reduce", 8, arrived_s, arrived_s + 0.1, group=group), 0)


def beat(at_s: float, entered: int) -> Observation:
    return Observation(at_s, 0, Heartbeat(entered, entered, None, entered, "comm"), rank=0)


def counts_after(*observations: Observation) -> tuple[int, int]:
    state = JobState(FIRST.job)
    for observation in observations:
        state.observe(observation)
    return state.ranks[0].entered, state.ranks[0].finished


class TestOneRank:
    def test_a_repeated_or_late_record_is_no_restart(self) -> None:
        observations = [collective(seq, float(seq)) for seq in (1, 2, 3)]
        assert counts_after(*observations, observations[0], observations[2], observations[1]) == (3, 3)

    def test_a_late_heartbeat_is_no_restart(self) -> None:
        assert counts_after(beat(1.0, 10), beat(2.0, 20), beat(1.5, 15)) == (20, 20)

    def test_a_heartbeat_behind_the_records_is_no_restart(self) -> None:
        assert counts_after(beat(1.0, 1), collective(9, 1.2), beat(1.5, 5), beat(2.0, 9)) == (9, 9)

    def test_late_observations_from_before_the_restart_are_ignored(self) -> None:
        assert counts_after(collective(50, 5.0), beat(5.0, 50), beat(9.0, 2), collective(51, 5.2), beat(8.0, 51)) == (
            2,
            2,
        )

    def test_a_dump_after_a_restart_counts(self) -> None:
        state = JobState(FIRST.job)
        for at_s, entered in ((1.0, 100), (9.0, 4)):
            state.observe(Observation(at_s, 0, FlightProgress("0", (), entered, -1, entered - 1, "send", None), rank=0))
            state.observe(Observation(at_s, 0, OperationCounts("0xab", 2, (("AllReduce", entered),), "ok"), rank=0))
        assert [state.groups[name].entered[0] for name in ("0", "ras:0xab")] == [4, 4]

    def test_a_recreated_group_counts_from_the_start(self) -> None:
        state = JobState(FIRST.job)
        for observation in (collective(70, 5.0, "0-3"), collective(1, 6.0, "0-3")):
            state.observe(observation)
        assert (state.groups["0-3"].entered, state.groups["0-3"].finished) == ({0: 1}, {0: 1})
