"""Clock offsets from messages for which a rank waited."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from faults.observations import Observation, PointToPoint
from faults.slow.one_way_delays import MAX_RECENT, Delays, ahead_of

DELAY_S = 0.003
OFFSETS = st.lists(st.floats(-0.05, 0.05), min_size=3, max_size=8)


def delays_of(pairs: list[tuple[int, int]], offset_s: list[float]) -> dict[tuple[int, int], float]:
    return {(i, j): DELAY_S + offset_s[j] - offset_s[i] for i, j in pairs}


def ring(nodes: int) -> list[tuple[int, int]]:
    return [(node, (node + 1) % nodes) for node in range(nodes)]


@given(OFFSETS)
def test_a_ring_of_messages_gives_all_clock_offsets(offset_s: list[float]) -> None:
    apart_s = ahead_of(delays_of(ring(len(offset_s)), offset_s), nodes=len(offset_s))
    assert np.allclose(apart_s, np.subtract.outer(offset_s, offset_s).T)


@given(OFFSETS)
def test_messages_in_both_directions_of_a_chain_give_all_clock_offsets(offset_s: list[float]) -> None:
    chain = ring(len(offset_s))[:-1]
    apart_s = ahead_of(delays_of([*chain, *((j, i) for i, j in chain)], offset_s), nodes=len(offset_s))
    assert np.allclose(apart_s, np.subtract.outer(offset_s, offset_s).T)


def test_messages_in_one_direction_of_a_chain_give_no_clock_offsets() -> None:
    chain = ring(4)[:-1]
    assert np.isnan(ahead_of(delays_of(chain, [0.0, 0.01, 0.02, 0.03]), nodes=4)).all()


def test_clock_offsets_are_known_only_within_groups_that_exchange_messages() -> None:
    offset_s = [0.0, 0.01, -0.02, 0.03]
    apart_s = ahead_of(delays_of([(0, 1), (1, 0), (2, 3), (3, 2)], offset_s), nodes=5)
    assert np.isclose(apart_s[0, 1], 0.01)
    assert np.isclose(apart_s[2, 3], 0.05)
    assert np.isnan(apart_s[1, 2])
    assert np.isnan(apart_s[4]).all()


def test_one_longer_delay_shifts_the_clock_offsets_by_at_most_its_excess() -> None:
    longer = delays_of(ring(8), [0.0] * 8)
    longer[2, 3] += 0.004
    assert np.nanmax(np.abs(ahead_of(longer, nodes=8))) <= 0.004


def shaped(offset_s: list[float], *, late_s: float, slow_from_s: float, until_s: float, seed: int = 0) -> Delays:
    """A ring in which either the sender or the receiver is late, as in a computing job; from `slow_from_s` on, node 1
    sends slowly."""
    rng = np.random.default_rng(seed)
    nodes = len(offset_s)
    delays = Delays(nodes, keep_s=10.0, baseline_age_s=5.0)
    for step in range(int(4 * until_s)):
        at_s = 0.25 * step
        called_s = at_s + rng.uniform(0.0, late_s, nodes)
        for rank in range(nodes):
            source, took_s = (rank - 1) % nodes, 0.02 if (rank - 1) % nodes == 1 and at_s >= slow_from_s else 0.004
            got_s = max(called_s[rank], called_s[source]) + took_s
            called, got = called_s[rank] + offset_s[rank], got_s + offset_s[rank]
            values = PointToPoint(source, (rank + 1) % nodes, 1, called, got, got, step)
            delays.observe(Observation(at_s + 0.05, rank, values, rank, source))
        delays.extend_baseline(at_s, suspected=at_s >= slow_from_s)
    return delays


@given(st.lists(st.floats(-0.02, 0.02), min_size=4, max_size=4), st.integers(0, 99))
def test_slowdowns_do_not_depend_on_clock_offsets(offset_s: list[float], seed: int) -> None:
    found = []
    for offsets in ([0.0] * 4, offset_s):
        log, _ = shaped(offsets, late_s=0.003, slow_from_s=20.0, until_s=22.5, seed=seed).slowdowns(20.0, 22.5)
        found.append(log)
    assert np.allclose(found[0], found[1], equal_nan=True)
    assert np.isclose(found[1][1, 2], np.log(5.0), atol=0.05)
    assert abs(found[1][0, 1]) < 0.1


def exchanged(delays: Delays, step: int, at_s: float, *, receiver_first: bool) -> None:
    """Rank 0 sends to rank 1, and its record comes before or after the record of rank 1."""
    sent = Observation(at_s, 0, PointToPoint(1, 1, 1, at_s, at_s + 0.004, at_s + 0.004, step), 0, 1)
    got = Observation(at_s, 1, PointToPoint(0, 0, 1, at_s, at_s + 0.004, at_s + 0.004, step), 1, 0)
    for observation in (got, sent) if receiver_first else (sent, got):
        delays.observe(observation)


@given(st.integers(1, 30), st.sampled_from(["sender", "receiver"]))
def test_a_restarted_job_matches_no_message_from_before_the_restart(back: int, first: str) -> None:
    delays = Delays(2, keep_s=10.0, baseline_age_s=5.0)
    for step in range(40):
        exchanged(delays, step, 0.25 * step, receiver_first=first == "receiver")
    for step in range(40 - back, 60):
        exchanged(delays, step, 70.0 + 0.25 * step, receiver_first=first == "receiver")
    assert max(message.since_sent_s for pair in delays._passes.values() for _, message in pair.recent) < 1.0
    assert len(delays._passes[0, 1].recent) == 60 + back  # the restart loses no message


def test_memory_is_bounded_for_arbitrary_step_numbers() -> None:
    delays, rng = Delays(2, keep_s=10.0, baseline_age_s=5.0), np.random.default_rng(0)
    for _ in range(5_000):
        step = int(rng.choice([rng.integers(0, 50), rng.integers(0, 10**9)]))
        delays.observe(Observation(1.0, 0, PointToPoint(1, 1, 1, 1.0, 1.0, 1.0, step), 0, 1))
    assert len(delays._called) + len(delays._waiting) < 100
    for step in range(3_000):  # without any evaluation
        exchanged(delays, 50 + step, 1.0 + 0.01 * step, receiver_first=False)
    assert all(len(pair.recent) <= MAX_RECENT for pair in delays._passes.values())


def test_a_clock_that_is_set_back_leaves_its_pair_without_a_slowdown() -> None:
    delays = shaped([0.0] * 4, late_s=0.003, slow_from_s=1e9, until_s=20.0)
    log, _ = delays.slowdowns(15.0, 20.0)
    assert np.isfinite(log[0, 1])
    for step in range(80, 90):  # the clock of rank 1 is set back by half a second
        at_s = 0.25 * step
        delays.observe(Observation(at_s, 0, PointToPoint(3, 1, 1, at_s, at_s + 0.004, at_s + 0.004, step), 0, 3))
        delays.observe(Observation(at_s, 1, PointToPoint(0, 2, 1, at_s - 0.5, at_s - 0.496, at_s - 0.496, step), 1, 0))
    assert np.isnan(delays.slowdowns(19.0, 22.5)[0][0, 1])
