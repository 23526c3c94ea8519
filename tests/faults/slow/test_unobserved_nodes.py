"""Nodes without an agent, foreign bytes that either end reports, and jobs with too many nodes for pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.detector import Job
from faults.diagnosis import Diagnosis
from faults.observations import Collective, Observation, Socket, SocketPoll
from faults.slow import SlowDetector, SlowSettings
from faults.slow.network_detector import foreign_pairs
from faults.slow.sampling import MIN_ROWS, Sample
from faults.slow.sockets import Sockets, Span
from faults.slow.sparse_fit import count_disjoint_pairs

NODES = 4


def span(reporting: set[int]) -> Span:
    """A span of 2 s with foreign bytes from 1 to 2 and 1 MB of the job on each pair."""
    sockets = Sockets(NODES, 5.0)
    for at_s in (0.0, 2.0):
        for i in sorted(reporting):
            sockets.observe(Observation(at_s, i, SocketPoll(NODES - 1)))
            for j in set(range(NODES)) - {i}:
                sent, got = (1e6 + 2e7 * ((a, b) == (1, 2)) for a, b in ((i, j), (j, i)))
                counters = (1 + ({i, j} == {1, 2}), int(at_s * sent), int(at_s * got), int(at_s * 1e5))
                sockets.observe(Observation(at_s, i, Socket(*counters, *([0] * 15)), peer=j))
    found = sockets.span(0.0, 2.0, counted=True)
    assert found is not None
    return found


@pytest.mark.parametrize("silent", [None, 0, 1, 2])
def test_foreign_bytes_are_detected_from_either_end(silent: int | None) -> None:
    usual = np.full((NODES, NODES), 1e6)
    flagged = foreign_pairs(span(set(range(NODES)) - {silent}), usual, 200.0, 0.1)
    assert [tuple(map(int, pair)) for pair in np.argwhere(flagged)] == [(1, 2)]


def test_foreign_bytes_between_two_silent_nodes_are_not_detected() -> None:
    assert not foreign_pairs(span({0, 3}), np.full((NODES, NODES), 1e6), 200.0, 0.1).any()


def test_pairs_without_a_common_end_are_counted() -> None:
    ring = np.zeros((6, 6), dtype=np.bool_)
    ring[np.arange(6), (np.arange(6) + 1) % 6] = True
    star = np.zeros((6, 6), dtype=np.bool_)
    star[2, [0, 1, 3, 4, 5]] = star[[0, 1], 2] = True
    assert (count_disjoint_pairs(ring), count_disjoint_pairs(star)) == (3, 1)


@given(st.integers(1, 400), st.integers(1, 2000), st.integers(1, 300_000))
def test_a_sample_is_bounded_and_in_order(count: int, horizon: int, length: int) -> None:
    sample = Sample(1, horizon)
    for number in range(count):
        sample.take(np.array([float(number)]))
    kept = sample.rows[:, 0]
    assert sample.total == count
    assert 1 <= len(kept) <= 256
    assert (np.diff(kept) > 0).all()
    assert kept[-1] >= count - 1 - max(1, 2 * horizon // 256)
    assert Sample(length, horizon).rows.shape == (0, length)
    assert MIN_ROWS <= 256


def test_above_the_node_limit_late_ranks_are_still_found() -> None:
    nodes = 300
    detector = SlowDetector(Job(nodes, tuple(range(nodes))), SlowSettings(max_nodes=100))
    found: list[Diagnosis] = []
    for step in range(60):
        for rank in range(nodes):
            arrived_s = 0.25 * step + 0.05 + (0.05 if rank == 7 and step > 40 else 0.0) + 1e-4 * ((rank + step) % 5)
            ended_s = 0.25 * step + 0.2
            detector.observe(Observation(ended_s, rank, Collective(step, "x", 1, arrived_s, ended_s, step), rank))
        detector.observe(Observation(0.25 * step + 0.2, 299, SocketPoll(1)))
        detector.observe(Observation(0.25 * step + 0.2, 299, Socket(1, step, step, step, *([0] * 15)), peer=0))
        found += detector.evaluate(0.25 * step + 0.2)
    assert {(diagnosis.node, diagnosis.isolate) for diagnosis in found} == {(7, True)}
