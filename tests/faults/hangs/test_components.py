from hypothesis import given
from hypothesis import strategies as st

from faults.hangs.components import sinks

edges = st.integers(1, 8).flatmap(
    lambda size: st.lists(st.frozensets(st.integers(0, size - 1), max_size=3), min_size=size, max_size=size).map(
        lambda targets: dict(enumerate(targets))
    )
)


@given(edges)
def test_sinks_are_the_components_that_no_edge_leaves(graph: dict[int, frozenset[int]]) -> None:
    reach = {vertex: _reachable(graph, vertex) for vertex in graph}
    expected = {
        frozenset(other for other in reach[vertex] if vertex in reach[other])
        for vertex in graph
        if all(vertex in reach[other] for other in reach[vertex])
    }
    found = sinks(graph)
    assert len(found) == len(expected)
    assert set(found) == expected


def test_a_long_chain_ends_at_its_last_vertex() -> None:
    size = 50_000
    assert sinks({index: (index + 1,) if index < size else () for index in range(size + 1)}) == [frozenset({size})]


def _reachable(graph: dict[int, frozenset[int]], start: int) -> set[int]:
    reached = {start}
    while True:
        further = reached.union(*(graph[vertex] for vertex in reached))
        if further == reached:
            return reached
        reached = further
