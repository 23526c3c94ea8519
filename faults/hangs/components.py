"""The strongly connected components of a directed graph that no edge leaves, by Kosaraju's two searches."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

V = TypeVar("V", bound=Hashable)


def sinks(edges: Mapping[V, Iterable[V]]) -> list[frozenset[V]]:
    """Return the components without an edge to another one.  Each target must be a key."""
    sources: dict[V, list[V]] = {vertex: [] for vertex in edges}
    for vertex, targets in edges.items():
        for target in targets:
            sources[target].append(vertex)
    reached: set[V] = set()
    ended = [vertex for root in edges for vertex in _in_order_of_end(edges, root, reached)]
    reached = set()
    component = {vertex: root for root in reversed(ended) for vertex in _in_order_of_end(sources, root, reached)}
    left = {
        component[vertex]
        for vertex, targets in edges.items()
        for each in targets
        if component[each] != component[vertex]
    }
    found: dict[V, set[V]] = defaultdict(set)
    for vertex, root in component.items():
        if root not in left:
            found[root].add(vertex)
    return [frozenset(vertices) for vertices in found.values()]


def _in_order_of_end(edges: Mapping[V, Iterable[V]], root: V, reached: set[V]) -> Iterator[V]:
    """Search from a root, depth first, and return the vertices in the order in which their search ends."""
    if root in reached:
        return
    reached.add(root)
    path = [(root, iter(edges[root]))]
    while path:
        vertex, targets = path[-1]
        target = next((each for each in targets if each not in reached), None)
        if target is None:
            path.pop()
            yield vertex
        else:
            reached.add(target)
            path.append((target, iter(edges[target])))
