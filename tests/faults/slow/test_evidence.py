"""The pieces of evidence, each on its own: windows, classes, gaps, steps, directions, persistence, workload."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from faults.diagnosis import Direction
from faults.observations import Collective, Heartbeat, Observation, PointToPoint, Socket, SocketPoll
from faults.slow.baselines import classes, common
from faults.slow.compute_gaps import ComputeGaps
from faults.slow.one_way_delays import Delays
from faults.slow.persistence import Persistence
from faults.slow.queue_location import Waiting, Waits
from faults.slow.settings import SlowSettings
from faults.slow.sockets import Sockets
from faults.slow.steps import Steps, harm
from faults.slow.workload import Cause, lost


def socket(acked: int, busy_us: int) -> Socket:
    return Socket(1, acked, 0, busy_us, *([0] * 15))


def test_bandwidth_is_bytes_over_busy_time() -> None:
    sockets = Sockets(2, 10.0)
    for at_s, acked, busy in ((0.0, 0, 0), (1.0, 2_500_000, 100_000)):
        sockets.observe(Observation(at_s, 0, SocketPoll(1)))
        sockets.observe(Observation(at_s, 0, socket(acked, busy), peer=1))
    span = sockets.span(0.0, 1.0)
    assert span is not None
    assert span.bandwidth_mbit(5.0)[0, 1] == 200.0
    assert np.isnan(span.bandwidth_mbit(50.0)[0, 1])  # too little busy time for an estimate


def test_a_reopened_connection_gives_no_byte_count() -> None:
    sockets = Sockets(2, 10.0)
    for at_s, acked in ((0.0, 1000), (1.0, 10)):
        sockets.observe(Observation(at_s, 0, socket(acked, 0), peer=1))
    span = sockets.span(0.0, 1.0)
    assert span is not None
    assert np.isnan(span.bytes[0, 1])


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(-2, 4), st.integers(-2, 4)), max_size=30))
def test_arbitrary_socket_rows_stay_in_time_order(rows: list[tuple[float, int, int]]) -> None:
    sockets = Sockets(3, 2.0)
    for at_s, node, peer in rows:
        sockets.observe(Observation(at_s, node, socket(1, 1), peer=peer))
    assert all(a.at_s < b.at_s for line in sockets.rows for a, b in zip(line, list(line)[1:], strict=False))


def test_pairs_of_one_role_are_one_class() -> None:
    kinds = classes(np.array([[np.nan, 100.0, 105.0], [98.0, np.nan, 1e6], [1.01e6, 0.99e6, np.nan]]))
    assert kinds[0, 1] == kinds[0, 2] == kinds[1, 0] >= 0
    assert kinds[1, 2] == kinds[2, 0] == kinds[2, 1] != kinds[0, 1]
    assert kinds[0, 0] == -1


def test_a_slowdown_of_a_whole_class_is_common_and_a_speedup_is_not() -> None:
    kind = np.zeros((1, 4), dtype=np.int64)
    assert common(np.array([[0.3, 0.3, 0.3, 1.3]]), kind)[0, 0] == 0.3
    assert common(np.array([[0.0, 0.0, 1.0, 1.0]]), kind)[0, 0] == 0.0  # half of a small ring may be one NIC's
    assert common(np.array([[-2.0, -2.0, -2.0, 0.0]]), kind)[0, 0] == 0.0


def run_steps(gaps: ComputeGaps, extra_s: dict[int, float], steps: range, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for step in steps:
        for rank in range(4):
            start_s = float(step)
            arrived_s = start_s + 0.03 + float(rng.normal(0, 0.002)) + extra_s.get(rank, 0.0)
            values = Collective(step, "all_reduce", 1, arrived_s, start_s + 1.0, step)
            gaps.observe(Observation(start_s + 1.0, rank, values, rank))


def test_a_rank_that_begins_to_lag_is_found_and_no_other() -> None:
    gaps = ComputeGaps(4, SlowSettings(warm_up_s=0.001))
    run_steps(gaps, {}, range(60))
    assert gaps.late(0.2) == []
    run_steps(gaps, {2: 0.03}, range(60, 80))
    (late,) = gaps.late(0.2)
    assert (late.rank, late.from_start) == (2, False)
    assert abs(late.extra_s - 0.03) < 0.004


def test_a_rank_that_lagged_from_the_start_is_found_by_its_peers() -> None:
    gaps = ComputeGaps(4, SlowSettings(warm_up_s=0.001))
    run_steps(gaps, {1: 0.05}, range(40))
    (late,) = gaps.late(0.2)
    assert (late.rank, late.from_start) == (1, True)


def test_one_long_pause_is_no_straggler() -> None:
    gaps = ComputeGaps(4, SlowSettings(warm_up_s=0.001))
    run_steps(gaps, {}, range(60))
    run_steps(gaps, {3: 0.9}, range(60, 61))
    run_steps(gaps, {}, range(61, 66), seed=1)
    assert gaps.late(0.2) == []


def test_step_times_come_from_records_or_heartbeats() -> None:
    records, beats = Steps(2), Steps(2)
    for step in range(20):
        for rank in range(2):
            values = Collective(step, "x", 1, 0.25 * step, 0.25 * step + 0.1, step)
            records.observe(Observation(0.25 * step + 0.1, rank, values, rank))
            beats.observe(Observation(0.5 * step, rank, Heartbeat(0, 0, None, 2 * step, "comm"), rank))
    assert np.allclose(records.between(0.0, 9.0), 0.25)
    assert np.allclose(beats.between(0.0, 9.0), 0.25)


def test_harm_is_certain_only_beyond_the_noise() -> None:
    rng = np.random.default_rng(0)
    usual, longer = np.exp(rng.normal(0.0, 0.1, 40)), np.exp(rng.normal(0.4, 0.1, 40))
    certain = sum(harm(np.exp(rng.normal(0.0, 0.1, 10)), usual).chance < 0.05 for _ in range(400))
    assert certain <= 400 * 0.12  # 5 % by the normal limit, medians of ten have longer tails and share one baseline
    assert harm(longer, usual).chance < 1e-6
    assert harm(longer, usual).without(0.3).log_ratio < harm(longer, usual).log_ratio


def test_waiting_bytes_identify_the_slow_direction() -> None:
    data, acks = np.zeros((4, 4)), np.zeros((4, 4))
    data[2, 1], acks[3, 2] = 40e3, 50e3  # node 2 sends slowly: its data and its acknowledgements
    waits = Waits(data, acks)
    assert waits.nats(2, Direction.TX) > 2.0
    assert waits.nats(2, Direction.RX) == -waits.nats(2, Direction.TX)
    assert Waits(data.T, acks.T).nats(2, Direction.RX) > 2.0
    assert waits.legs(2)[0] > 0.5
    data, acks = np.zeros((4, 4)), np.zeros((4, 4))
    data[2, 1] = 40e3
    assert Waits(data, acks).legs(2) == (0.0, 1)


def ring_counters(nodes: int, skew_s: np.ndarray, slow_from_s: float, polls: int = 60) -> tuple[Sockets, Waiting]:
    """A ring r -> r-1 at 200 Mbit/s with 20 kB in flight, half of them acknowledgements, and clocks with offsets.

    From `slow_from_s` on, 60 kB of data wait behind the sender of node 1.
    """
    sockets = Sockets(nodes, 60.0)
    waiting = Waiting(sockets, SlowSettings())
    rate = 200e6 / 8
    for poll in range(polls):
        at_s = 0.25 * poll
        for i in range(nodes):
            down, up = (i - 1) % nodes, (i + 1) % nodes
            mine_s, queued = at_s - skew_s[i], (60e3 if at_s >= slow_from_s else 0.0)
            acked, received = rate * (mine_s + 1.0), rate * (mine_s + 1.0) + 10e3
            unacked = 20e3 + (queued if i == 1 else 0.0)
            sockets.observe(Observation(at_s, i, SocketPoll(2)))
            values = Socket(1, int(acked), 0, 0, 0, 0, 0, 0, 0, round(unacked / 1448), *([0] * 9))
            sockets.observe(Observation(at_s, i, values, peer=down))
            sockets.observe(Observation(at_s, i, Socket(1, 0, int(received), *([0] * 16)), peer=up))
        waiting.take(at_s, suspected=False, baseline_age_s=5.0)
    return sockets, waiting


def test_a_constant_clock_offset_does_not_change_the_slow_direction() -> None:
    rate = np.full((4, 4), 200.0)
    found = []
    for skew_s in (np.zeros(4), np.array([0.0, 0.002, -0.002, 0.001])):
        _, waiting = ring_counters(4, skew_s, 12.5)
        for apart_s in (np.full((4, 4), np.nan), skew_s[None, :] - skew_s[:, None]):  # with messages and without
            waits = waiting.window(12.5, 15.0, now_mbit=rate, usual_mbit=rate, clock_offsets_s=apart_s)
            found.append(waits.nats(1, Direction.TX))
    assert min(found) > 2.0


def test_bytes_of_a_pair_with_unknown_clock_offset_count_half_as_data() -> None:
    rate, apart_s = np.full((4, 4), 200.0), np.full((4, 4), np.nan)
    apart_s[2, 3] = 0.0  # messages give the offset of another pair only
    _, waiting = ring_counters(4, np.zeros(4), 0.0, polls=20)  # too few for a past
    waits = waiting.window(2.5, 5.0, now_mbit=rate, usual_mbit=rate, clock_offsets_s=apart_s)
    assert waits.data[1].sum() > 0.0
    assert np.allclose(waits.data[1], waits.acks[1])


def exchange_messages(delays: Delays, until_s: float, offset_s: tuple[float, float], slow_from_s: float) -> None:
    for step in range(int(4 * until_s)):
        at_s = 0.25 * step
        for rank in range(2):
            took_s = 0.02 if rank == 1 and at_s >= slow_from_s else 0.005
            called_s, got_s = at_s + offset_s[rank], at_s + took_s + offset_s[rank]
            values = PointToPoint(1 - rank, 1 - rank, 1, called_s, got_s, got_s, step)
            delays.observe(Observation(at_s, rank, values, rank, 1 - rank))
        delays.extend_baseline(at_s, suspected=at_s >= slow_from_s)


def test_one_way_delays_are_compared_with_their_own_past_for_any_clock_offset() -> None:
    for offset_s in ((0.0, 0.0), (0.004, 0.0)):
        delays = Delays(2, keep_s=10.0, baseline_age_s=5.0)
        exchange_messages(delays, 22.5, offset_s, 20.0)
        log, sigma = delays.slowdowns(20.0, 22.5)
        assert delays.has_history
        assert np.isclose(log[0, 1], np.log(4.0))
        assert np.isclose(log[1, 0], 0.0)
        assert log[0, 1] > 5 * sigma[0, 1]


def test_a_fault_is_confirmed_after_hits_and_ends_without_hits() -> None:
    persistence: Persistence[int] = Persistence(3, 4, 2.0)
    for at_s in (0.0, 0.5):
        persistence.update(at_s, {"a": 1})
    assert persistence.confirmed() == []
    persistence.update(1.0, {})
    persistence.update(1.5, {"a": 1})
    (found,) = persistence.confirmed()
    assert (found.first_s, found.confirmed_s) == (0.0, 1.5)
    persistence.update(4.0, {})
    assert persistence.confirmed() == []


def test_a_fault_that_begins_near_another_is_not_alone() -> None:
    persistence: Persistence[int] = Persistence(1, 4, 100.0)
    for at_s, key in ((0.0, "a"), (12.0, "b"), (80.0, "c")):
        persistence.update(at_s, {key: 1})
    assert [persistence.alone(key, within_s=60.0) for key in "abc"] == [False, False, True]


def test_imbalance_pauses_and_checkpoints_are_distinguished() -> None:
    rng = np.random.default_rng(0)
    even = rng.normal(0.03, 0.002, (40, 8))
    assert lost(even, 0.2) == ()
    uneven = even + np.abs(rng.normal(0, 0.03, even.shape))
    assert [each.cause for each in lost(uneven, 0.2)] == [Cause.IMBALANCE]
    paused = even.copy()
    paused[np.arange(0, 40, 8), [1, 5, 2, 7, 0]] += 0.5
    assert [each.cause for each in lost(paused, 0.2)] == [Cause.PAUSES]
    checkpoint = even.copy()
    checkpoint[[10, 30]] += 2.0
    assert [each.cause for each in lost(checkpoint, 0.2)] == [Cause.TOGETHER]
    straggler = even.copy()
    straggler[:, 3] += 0.05
    assert lost(straggler, 0.2) == ()
