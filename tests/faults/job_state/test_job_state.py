"""The job state keeps the newest data, counts polls as well as seconds, and stays bounded for every input."""

from hypothesis import given
from hypothesis import strategies as st

from faults.detector import Job
from faults.job_state import JobState, PairTraffic
from faults.job_state.groups import ranks_of
from faults.observations import (
    Collective,
    FlightProgress,
    Heartbeat,
    Observation,
    OperationCounts,
    Process,
    Socket,
    SocketPoll,
)
from tests.faults.stories import IDLE

JOB = Job(3, (0, 1, 2), groups=((0, 1),))
SENT = IDLE._replace(unacked=2)


class TestPairs:
    def test_a_stall_lasts_as_long_as_its_polls(self) -> None:
        pair = PairTraffic(1.0, SENT)
        for at_s in (1.25, 1.5):
            pair.observe(at_s, SENT)
        assert (pair.stuck_s(), pair.stuck_samples) == (0.5, 3)

    def test_an_acknowledgement_restarts_the_stall(self) -> None:
        pair = PairTraffic(1.0, SENT)
        pair.observe(1.25, SENT._replace(acked_bytes=100))
        assert (pair.stuck_s(), pair.stuck_samples) == (0.0, 1)

    def test_a_stall_ends_without_outstanding_bytes(self) -> None:
        pair = PairTraffic(1.0, SENT)
        pair.observe(1.25, IDLE)
        assert (pair.stuck_since_s, pair.stuck_samples) == (None, 0)

    def test_bytes_that_were_read_do_not_count_as_unread(self) -> None:
        pair = PairTraffic(1.0, IDLE._replace(read_queue_bytes=100))
        pair.observe(1.25, IDLE._replace(read_queue_bytes=50))
        assert pair.unread_s() == 0.0


def test_only_stalled_pairs_are_marked_stuck() -> None:
    state = JobState(JOB)
    for at_s in (0.0, 0.25):
        state.observe(Observation(at_s, 0, SENT, peer=1))
        state.observe(Observation(at_s, 1, IDLE, peer=0))
    assert state.stuck == {(0, 1)}
    state.observe(Observation(0.5, 0, IDLE, peer=1))
    assert state.stuck == set()


def test_step_time_and_lateness_come_from_records() -> None:
    state = JobState(JOB)
    for seq in range(1, 6):
        for rank in range(3):
            late = 0.5 if (seq, rank) == (3, 2) else 0.0
            done = Collective(seq, "all_reduce", 8, seq * 0.2 - 0.1 + late, seq * 0.2 + late, seq)
            state.observe(Observation(seq * 0.2 + late, rank, done, rank=rank))
    assert round(state.pace.step_s() or 0.0, 6) == 0.2
    assert round(state.pace.latest_s(), 6) == 0.5


def test_groups_are_distinguished_and_have_members() -> None:
    state = JobState(JOB)
    state.observe(Observation(1.0, 0, FlightProgress("0", (), 3, -1, 2, "all_reduce", 0.5), rank=0))
    state.observe(Observation(1.0, 0, Collective(1, "all_gather", 8, 0.9, None, group="0,2"), rank=0))
    assert state.groups["0"].members == {0, 1}
    assert state.groups["0,2"].members == {0, 2}
    assert state.groups["0"].entered == {0: 3}


def test_ras_operation_counts_add_up_to_the_entered_operations() -> None:
    state = JobState(JOB)
    state.observe(Observation(1.0, 0, OperationCounts("0xab", 3, (("AllReduce", 7), ("Broadcast", 2)), "ok"), rank=0))
    assert state.groups["ras:0xab"].entered == {0: 9}


def test_short_group_names_expand_to_ranks() -> None:
    assert ranks_of("0-3", below=8) == (0, 1, 2, 3)
    assert ranks_of("0-6:2", below=8) == (0, 2, 4, 6)
    assert ranks_of("1,4,6", below=8) == (1, 4, 6)
    for text in ("", "1", "0-9", "0-3:0", "1,,2", "9,1", "all", "0-99999999999"):
        assert ranks_of(text, below=8) == ()


values = st.one_of(
    st.builds(SocketPoll, st.integers(0, 9)),
    st.builds(Socket, *[st.integers(0, 2**40)] * 19),
    st.builds(Heartbeat, *[st.integers(0, 99)] * 2, st.none(), st.integers(0, 99), st.sampled_from(["comm", "x"])),
    st.builds(
        Collective,
        st.integers(0, 99),
        st.text(max_size=3),
        st.integers(0, 99),
        st.floats(-1e6, 1e6),
        st.none() | st.floats(-1e6, 1e6),
        st.none() | st.integers(0, 99),
        st.text(max_size=5),
    ),
    st.builds(Process, st.integers(0, 9), st.sampled_from(["R", "T", "gone", "?"]), st.floats(0, 9)),
    st.builds(
        FlightProgress,
        st.text(max_size=2),
        st.lists(st.integers(-5, 9), max_size=3).map(tuple),
        *[st.integers(-1, 99)] * 3,
        st.none(),
        st.none() | st.floats(-1e6, 1e6),
    ),
)
indices = st.none() | st.integers(-2, 5)
observations = st.builds(Observation, st.floats(), st.integers(-2, 5), values, indices, indices)


@given(st.lists(observations, max_size=80))
def test_no_observation_raises(stream: list[Observation]) -> None:
    from faults.monitor import FaultMonitor, MonitorSettings  # noqa: PLC0415 - the readers of the state must not raise either

    monitor = FaultMonitor(JOB, MonitorSettings(slow=None))
    for number, observation in enumerate(stream):
        monitor.observe(observation)
        monitor.evaluate(float(number))


def test_a_flood_of_groups_and_operations_is_bounded() -> None:
    state = JobState(JOB)
    for seq in range(3000):
        state.observe(Observation(0.0, 0, Collective(seq, "all_reduce", 8, 0.0, None, group=f"g{seq}"), rank=0))
        state.observe(Observation(0.0, 0, Collective(seq, "all_reduce", 8, 0.0, 0.0, step=seq), rank=0))
    assert len(state.pace._arrivals) <= 33
