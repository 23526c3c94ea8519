"""The pairs that exchange traffic, and the slowdown of each pair in a window."""

import numpy as np

from faults.detector import Job
from faults.large_jobs import LargeJobSettings
from faults.large_jobs.traffic_graph import OUTSIDE, Edges, Pair, Sum, settled, unknown, window

NODES = 10
SETTINGS = LargeJobSettings()


def total(bytes_: int, *, busy_us: int = 1_000_000, connections: int = 2) -> Sum:
    found = Sum()
    found.bytes, found.busy_us, found.connections = bytes_, busy_us, connections
    return found


def ring(bytes_: int = 25_000_000) -> dict[Pair, Sum]:
    return {(node, (node + 1) % NODES): total(bytes_) for node in range(NODES)}


def edges() -> Edges:
    found = settled([ring()] * 3, Job(NODES, tuple(range(NODES))), SETTINGS)
    assert found is not None
    return found


def test_a_pair_with_twice_the_busy_time_is_twice_as_slow() -> None:
    result = window(edges(), {**ring(), (3, 4): total(25_000_000, busy_us=2_000_000)}, SETTINGS, from_s=0.0, to_s=5.0)
    assert np.allclose(result.slowdown, [np.log(2.0) if at == edges().at[3, 4] else 0.0 for at in range(NODES)])
    assert result.foreign is None


def test_foreign_bytes_mark_all_edges_of_their_nodes() -> None:
    beside = {**ring(), (3, 4): total(75_000_000, connections=3)}
    outside = {**ring(), (7, OUTSIDE): total(75_000_000)}
    for sums, nodes in ((beside, {3, 4}), (outside, {7})):
        result = window(edges(), sums, SETTINGS, from_s=0.0, to_s=5.0)
        assert result.foreign is not None
        marked = [pair for pair, at in edges().at.items() if result.foreign[at]]
        assert marked == [pair for pair in edges().at if nodes & set(pair)]


def test_a_connection_with_few_foreign_bytes_marks_no_edge() -> None:
    result = window(edges(), {**ring(), (3, 4): total(26_000_000, connections=3)}, SETTINGS, from_s=0.0, to_s=5.0)
    assert result.foreign is None


def test_too_few_pairs_give_no_edges() -> None:
    few = {(node, node + 1): total(1_000_000) for node in range(4)}
    assert settled([few] * 3, Job(NODES, tuple(range(NODES))), SETTINGS) is None


def test_a_job_that_resumes_with_other_pairs_is_unknown() -> None:
    other = {((node + 1) % NODES, node): each for (node, _), each in ring().items()}
    assert unknown(edges(), other)
    assert not unknown(edges(), {**ring(), **{pair: total(1_000_000) for pair in other}})
