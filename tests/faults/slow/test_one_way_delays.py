"""How far clocks are apart, from messages that were waited for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from faults.observations import Observation, PointToPoint
from faults.slow.one_way_delays import MAX_RECENT, Delays, ahead_of

WAY_S = 0.003
OFFSETS = st.lists(st.floats(-0.05, 0.05), min_size=3, max_size=8)


def ways(pairs: list[tuple[int, int]], offset_s: list[float]) -> dict[tuple[int, int], float]:
    return {(i, j): WAY_S + offset_s[j] - offset_s[i] for i, j in pairs}


def ring(nodes: int) -> list[tuple[int, int]]:
    return [(node, (node + 1) % nodes) for node in range(nodes)]


@given(OFFSETS)
def test_a_ring_tells_all_offsets_from_the_way(offset_s: list[float]) -> None:
    apart_s = ahead_of(ways(ring(len(offset_s)), offset_s), nodes=len(offset_s))
    assert np.allclose(apart_s, np.subtract.outer(offset_s, offset_s).T)


@given(OFFSETS)
def test_messages_both_ways_along_a_chain_tell_them_too(offset_s: list[float]) -> None:
    chain = ring(len(offset_s))[:-1]
    apart_s = ahead_of(ways([*chain, *((j, i) for i, j in chain)], offset_s), nodes=len(offset_s))
    assert np.allclose(apart_s, np.subtract.outer(offset_s, offset_s).T)


def test_one_way_along_a_chain_tells_nothing() -> None:
    chain = ring(4)[:-1]
    assert np.isnan(ahead_of(ways(chain, [0.0, 0.01, 0.02, 0.03]), nodes=4)).all()


def test_groups_that_never_talk_are_told_apart_by_themselves_only() -> None:
    offset_s = [0.0, 0.01, -0.02, 0.03]
    apart_s = ahead_of(ways([(0, 1), (1, 0), (2, 3), (3, 2)], offset_s), nodes=5)
    assert np.isclose(apart_s[0, 1], 0.01)
    assert np.isclose(apart_s[2, 3], 0.05)
    assert np.isnan(apart_s[1, 2])
    assert np.isnan(apart_s[4]).all()


def test_one_way_that_is_longer_moves_the_clocks_by_its_share_only() -> None:
    longer = ways(ring(8), [0.0] * 8)
    longer[2, 3] += 0.004
    assert np.nanmax(np.abs(ahead_of(longer, nodes=8))) <= 0.004


def shaped(offset_s: list[float], *, late_s: float, slow_from_s: float, until_s: float, seed: int = 0) -> Delays:
    """A ring in which now the sender and now the receiver is the later one, as it is where ranks compute; then node 1
    sends slowly."""
    rng = np.random.default_rng(seed)
    nodes = len(offset_s)
    delays = Delays(nodes, keep_s=10.0, ripe_s=5.0)
    for step in range(int(4 * until_s)):
        at_s = 0.25 * step
        called_s = at_s + rng.uniform(0.0, late_s, nodes)
        for rank in range(nodes):
            source, took_s = (rank - 1) % nodes, 0.02 if (rank - 1) % nodes == 1 and at_s >= slow_from_s else 0.004
            got_s = max(called_s[rank], called_s[source]) + took_s
            called, got = called_s[rank] + offset_s[rank], got_s + offset_s[rank]
            values = PointToPoint(source, (rank + 1) % nodes, 1, called, got, got, step)
            delays.observe(Observation(at_s + 0.05, rank, values, rank, source))
        delays.ripen(at_s, suspected=at_s >= slow_from_s)
    return delays


@given(st.lists(st.floats(-0.02, 0.02), min_size=4, max_size=4), st.integers(0, 99))
def test_delays_are_the_same_whatever_the_clocks(offset_s: list[float], seed: int) -> None:
    found = []
    for offsets in ([0.0] * 4, offset_s):
        log, _ = shaped(offsets, late_s=0.003, slow_from_s=20.0, until_s=22.5, seed=seed).slowdowns(20.0, 22.5)
        found.append(log)
    assert np.allclose(found[0], found[1], equal_nan=True)
    assert np.isclose(found[1][1, 2], np.log(5.0), atol=0.05)
    assert abs(found[1][0, 1]) < 0.1


def exchanged(delays: Delays, step: int, at_s: float, *, receiver_first: bool) -> None:
    """Rank 0 sends to rank 1 and records it before or after."""
    sent = Observation(at_s, 0, PointToPoint(1, 1, 1, at_s, at_s + 0.004, at_s + 0.004, step), 0, 1)
    got = Observation(at_s, 1, PointToPoint(0, 0, 1, at_s, at_s + 0.004, at_s + 0.004, step), 1, 0)
    for seen in (got, sent) if receiver_first else (sent, got):
        delays.observe(seen)


@given(st.integers(1, 30), st.sampled_from(["sender", "receiver"]))
def test_a_job_that_begins_anew_matches_nothing_of_before(back: int, first: str) -> None:
    delays = Delays(2, keep_s=10.0, ripe_s=5.0)
    for step in range(40):
        exchanged(delays, step, 0.25 * step, receiver_first=first == "receiver")
    for step in range(40 - back, 60):
        exchanged(delays, step, 70.0 + 0.25 * step, receiver_first=first == "receiver")
    assert max(message.since_sent_s for pair in delays._passes.values() for _, message in pair.recent) < 1.0
    assert len(delays._passes[0, 1].recent) == 60 + back  # none was lost by it


def test_memory_is_bounded_whatever_steps_are_told() -> None:
    delays, rng = Delays(2, keep_s=10.0, ripe_s=5.0), np.random.default_rng(0)
    for _ in range(5_000):
        step = int(rng.choice([rng.integers(0, 50), rng.integers(0, 10**9)]))
        delays.observe(Observation(1.0, 0, PointToPoint(1, 1, 1, 1.0, 1.0, 1.0, step), 0, 1))
    assert len(delays._called) + len(delays._waiting) < 100
    for step in range(3_000):  # and nobody asks
        exchanged(delays, 50 + step, 1.0 + 0.01 * step, receiver_first=False)
    assert all(len(pair.recent) <= MAX_RECENT for pair in delays._passes.values())


def test_a_pair_whose_message_takes_no_time_says_nothing_until_its_clocks_are_set_right_again() -> None:
    delays = shaped([0.0] * 4, late_s=0.003, slow_from_s=1e9, until_s=20.0)
    log, _ = delays.slowdowns(15.0, 20.0)
    assert np.isfinite(log[0, 1])
    for step in range(80, 90):  # the clock of rank 1 is set back by half a second
        at_s = 0.25 * step
        delays.observe(Observation(at_s, 0, PointToPoint(3, 1, 1, at_s, at_s + 0.004, at_s + 0.004, step), 0, 3))
        delays.observe(Observation(at_s, 1, PointToPoint(0, 2, 1, at_s - 0.5, at_s - 0.496, at_s - 0.496, step), 1, 0))
    assert np.isnan(delays.slowdowns(19.0, 22.5)[0][0, 1])
