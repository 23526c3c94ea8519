"""The pieces of evidence, each on its own: windows, classes, gaps, steps, directions, persistence, workload."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from faults.observations import Collective, Heartbeat, Look, Observation, Pass, Socket
from faults.slow.baselines import classes, common
from faults.slow.directions import Delays, Ways, beyond, from_waiting, legs
from faults.slow.gaps import Gaps
from faults.slow.persistence import Persistence
from faults.slow.settings import SlowSettings
from faults.slow.sockets import Sockets
from faults.slow.steps import Steps, harm
from faults.slow.workload import Cause, lost
from faults.verdict import Direction


def socket(acked: int, busy_us: int) -> Socket:
    return Socket(1, acked, 0, busy_us, *([0] * 15))


def test_bandwidth_is_bytes_over_busy_time() -> None:
    sockets = Sockets(2, 10.0)
    for at_s, acked, busy in ((0.0, 0, 0), (1.0, 2_500_000, 100_000)):
        sockets.see(Observation(at_s, 0, Look(1)))
        sockets.see(Observation(at_s, 0, socket(acked, busy), peer=1))
    span = sockets.span(0.0, 1.0)
    assert span is not None
    assert span.bandwidth_mbit(5.0)[0, 1] == 200.0
    assert np.isnan(span.bandwidth_mbit(50.0)[0, 1])  # too little busy time to tell


def test_a_connection_opened_anew_tells_nothing() -> None:
    sockets = Sockets(2, 10.0)
    for at_s, acked in ((0.0, 1000), (1.0, 10)):
        sockets.see(Observation(at_s, 0, socket(acked, 0), peer=1))
    span = sockets.span(0.0, 1.0)
    assert span is not None
    assert np.isnan(span.bytes[0, 1])


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(-2, 4), st.integers(-2, 4)), max_size=30))
def test_sockets_take_anything(rows: list[tuple[float, int, int]]) -> None:
    sockets = Sockets(3, 2.0)
    for at_s, node, peer in rows:
        sockets.see(Observation(at_s, node, socket(1, 1), peer=peer))
    assert all(a.at_s < b.at_s for line in sockets.rows for a, b in zip(line, list(line)[1:], strict=False))


def test_pairs_of_one_role_are_one_class() -> None:
    kinds = classes(np.array([[np.nan, 100.0, 105.0], [98.0, np.nan, 1e6], [1.01e6, 0.99e6, np.nan]]))
    assert kinds[0, 1] == kinds[0, 2] == kinds[1, 0] >= 0
    assert kinds[1, 2] == kinds[2, 0] == kinds[2, 1] != kinds[0, 1]
    assert kinds[0, 0] == -1


def test_what_slows_a_whole_class_is_common_and_a_gain_is_not() -> None:
    kind = np.zeros((1, 4), dtype=np.int64)
    assert common(np.array([[0.3, 0.3, 0.3, 1.3]]), kind)[0, 0] == 0.3
    assert common(np.array([[0.0, 0.0, 1.0, 1.0]]), kind)[0, 0] == 0.0  # half of a small ring may be one NIC's
    assert common(np.array([[-2.0, -2.0, -2.0, 0.0]]), kind)[0, 0] == 0.0


def run_steps(gaps: Gaps, extra_s: dict[int, float], steps: range, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for step in steps:
        for rank in range(4):
            start_s = float(step)
            arrived_s = start_s + 0.03 + float(rng.normal(0, 0.002)) + extra_s.get(rank, 0.0)
            values = Collective(step, "all_reduce", 1, arrived_s, start_s + 1.0, step)
            gaps.see(Observation(start_s + 1.0, rank, values, rank))


def test_a_rank_that_begins_to_lag_is_found_and_no_other() -> None:
    gaps = Gaps(4, SlowSettings(warm_up_s=0.001))
    run_steps(gaps, {}, range(60))
    assert gaps.late(0.2) == []
    run_steps(gaps, {2: 0.03}, range(60, 80))
    (late,) = gaps.late(0.2)
    assert (late.rank, late.from_start) == (2, False)
    assert abs(late.extra_s - 0.03) < 0.004


def test_a_rank_that_lagged_from_the_start_is_found_by_its_peers() -> None:
    gaps = Gaps(4, SlowSettings(warm_up_s=0.001))
    run_steps(gaps, {1: 0.05}, range(40))
    (late,) = gaps.late(0.2)
    assert (late.rank, late.from_start) == (1, True)


def test_one_long_pause_is_no_straggler() -> None:
    gaps = Gaps(4, SlowSettings(warm_up_s=0.001))
    run_steps(gaps, {}, range(60))
    run_steps(gaps, {3: 0.9}, range(60, 61))
    run_steps(gaps, {}, range(61, 66), seed=1)
    assert gaps.late(0.2) == []


def test_steps_by_records_and_by_heartbeats() -> None:
    records, beats = Steps(2), Steps(2)
    for step in range(20):
        for rank in range(2):
            values = Collective(step, "x", 1, 0.25 * step, 0.25 * step + 0.1, step)
            records.see(Observation(0.25 * step + 0.1, rank, values, rank))
            beats.see(Observation(0.5 * step, rank, Heartbeat(0, 0, None, 2 * step, "comm"), rank))
    assert np.allclose(records.between(0.0, 9.0), 0.25)
    assert np.allclose(beats.between(0.0, 9.0), 0.25)


def test_harm_is_certain_only_beyond_the_noise() -> None:
    rng = np.random.default_rng(0)
    usual, longer = np.exp(rng.normal(0.0, 0.1, 40)), np.exp(rng.normal(0.4, 0.1, 40))
    certain = sum(harm(np.exp(rng.normal(0.0, 0.1, 10)), usual)[1] > 1.0 for _ in range(400))
    assert certain <= 400 * 0.12  # 5 % by the normal limit, medians of ten have longer tails and share one baseline
    assert harm(longer, usual)[1] > 1.3


def test_bytes_wait_behind_the_slow_way() -> None:
    data, acks = np.zeros((4, 4)), np.zeros((4, 4))
    data[2, 1], acks[3, 2] = 40e3, 50e3  # node 2 sends slowly: its data and its acknowledgements
    assert from_waiting(data, acks, 2) > 2.0
    assert from_waiting(acks.T, data.T, 2) > 2.0 or from_waiting(data.T, acks.T, 2) < -2.0
    assert legs(data, acks, 2)[0] > 0.5
    data, acks = np.zeros((4, 4)), np.zeros((4, 4))
    data[2, 1] = 40e3
    assert legs(data, acks, 2) == (0.0, 1)


def test_directions() -> None:
    nothing = float("nan")
    assert Ways(2.0, nothing).direction(0.7) is Direction.TX
    assert Ways(-2.0, nothing).direction(0.7) is Direction.RX
    assert Ways(0.1, nothing).direction(0.7) is Direction.BOTH
    assert Ways(0.1, -0.6).direction(0.7) is Direction.RX


def test_one_way_delays_come_from_both_sides_of_a_pass() -> None:
    delays = Delays(2, 600.0)
    for step in range(40):
        slow = 0.02 if step >= 30 else 0.005
        for rank in range(2):
            got = step + (slow if rank == 1 else 0.005)
            delays.see(Observation(got, rank, Pass(1 - rank, 1 - rank, 1, float(step), got, got, step), rank, 1 - rank))
    log, _ = delays.excess(29.5, 40.0)
    assert np.isclose(log[0, 1], np.log(4))
    assert np.isclose(log[1, 0], 0.0)


def test_other_ways_of_one_end_tell_a_nic_from_a_link() -> None:
    log, error = np.full((4, 4), np.nan), np.full((4, 4), np.nan)
    for r in range(4):  # passes r -> r+1
        log[r, (r + 1) % 4], error[r, (r + 1) % 4] = 0.0, 0.05
    assert beyond(log, error, 2, 1) == (0.0, 0.0)  # the ring link 2 -> 1 alone
    log[2, 3] = 1.0
    assert beyond(log, error, 2, 1) == (1.0, 0.0)  # the sender's pass is slow as well
    log[1, 2] = 1.0
    assert beyond(log, error, 2, 1)[0] == 0.0  # and so is what it gets: it is itself behind


def test_a_fault_is_believed_after_hits_and_over_when_gone() -> None:
    persistence: Persistence[int] = Persistence(3, 4, 2.0)
    for at_s in (0.0, 0.5):
        persistence.look(at_s, {"a": 1})
    assert persistence.confirmed() == []
    persistence.look(1.0, {})
    persistence.look(1.5, {"a": 1})
    (found,) = persistence.confirmed()
    assert (found.first_s, found.confirmed_s) == (0.0, 1.5)
    persistence.look(4.0, {})
    assert persistence.confirmed() == []


def test_imbalance_pauses_and_checkpoints_are_told_apart() -> None:
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
