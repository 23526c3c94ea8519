"""Koenig: as many colours as the maximum degree suffice; no vertex has a colour twice or one that it lacks."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from faults.path_planning.colouring import Colouring

GRAPHS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40)


@given(GRAPHS)
def test_the_maximum_degree_suffices(edges: list[tuple[int, int]]) -> None:
    degree = max((count for side in (0, 1) for count in Counter(edge[side] for edge in edges).values()), default=0)
    slots = {vertex: range(degree) for vertex in range(7)}
    found = Colouring(edges, slots, slots)
    found.run()
    assert None not in found.colour
    _check_no_vertex_has_a_colour_twice(found)


@given(GRAPHS, st.lists(st.sets(st.integers(0, 7), max_size=8), min_size=14, max_size=14))
def test_a_vertex_has_only_its_own_colours(edges: list[tuple[int, int]], has: list[set[int]]) -> None:
    left = {vertex: sorted(has[vertex]) for vertex in range(7)}
    right = {vertex: sorted(has[7 + vertex]) for vertex in range(7)}
    found = Colouring(edges, left, right)
    found.run()
    for (one, other), colour in zip(edges, found.colour, strict=True):
        assert colour is None or (colour in left[one] and colour in right[other])
    _check_no_vertex_has_a_colour_twice(found)


@given(GRAPHS, st.lists(st.sets(st.integers(0, 7), max_size=8), min_size=14, max_size=14), st.randoms())
def test_a_swapped_chain_leaves_a_proper_colouring(
    edges: list[tuple[int, int]], has: list[set[int]], rng: Random
) -> None:
    left = {vertex: sorted(has[vertex]) for vertex in range(7)}
    right = {vertex: sorted(has[7 + vertex]) for vertex in range(7)}
    found = Colouring(edges, left, right)
    found.run()
    chains = [chain for edge in range(len(edges)) for chain in found.chains(edge)]
    if not chains:
        return
    chain, before = rng.choice(chains), list(found.colour)
    found.swap(chain)
    assert len(set(chain.edges)) == len(chain.edges)
    for edge, ((one, other), colour) in enumerate(zip(edges, found.colour, strict=True)):
        if edge in chain.edges:
            assert colour == chain.other(before[edge]) != before[edge]
            assert colour in left[one]
            assert colour in right[other]
        else:
            assert colour == before[edge]
    _check_no_vertex_has_a_colour_twice(found)


def _check_no_vertex_has_a_colour_twice(found: Colouring[int]) -> None:
    for side in (0, 1):
        counts = Counter(
            (edge[side], colour) for edge, colour in zip(found.edges, found.colour, strict=True) if colour is not None
        )
        assert max(counts.values(), default=1) == 1
