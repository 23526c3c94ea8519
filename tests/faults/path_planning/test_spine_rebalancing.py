"""Rebalancing exchanges flows between spines until none has more than it can forward, and uncolours no flow."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from faults.path_planning.colouring import Colouring
from faults.path_planning.spine_rebalancing import Effort, SpineRebalancing

LEAVES, PLANES = 4, 4  # of a pod; a plane is one spine of it
GRAPHS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=32)
SPINES = {(leaf, plane): 10 * (leaf // LEAVES) + plane for leaf in range(8) for plane in range(PLANES)}
PODS = {spine: spine // 10 for spine in SPINES.values()}


def excess(found: Colouring[int], onward: list[bool], capacity: dict[tuple[int, int], int]) -> int:
    """The excess load of all spines, computed independently of the class under test."""
    load: Counter[tuple[int, int]] = Counter()
    for ends, colour, on in zip(found.edges, found.colour, onward, strict=True):
        if on and colour is not None:
            load.update((side, SPINES[leaf, colour]) for side, leaf in enumerate(ends))
    return sum(max(0, count - capacity[place]) for place, count in load.items())


@given(GRAPHS, st.lists(st.integers(0, 4), min_size=16, max_size=16))
def test_rebalancing_raises_no_excess_and_keeps_every_flow_coloured(
    edges: list[tuple[int, int]], capacities: list[int]
) -> None:
    slots = {leaf: range(PLANES) for leaf in range(8)}
    found = Colouring(edges, slots, slots)
    found.run()
    onward = [one // LEAVES != other // LEAVES for one, other in edges]
    places = [(side, spine) for side in (0, 1) for spine in sorted(PODS)]
    capacity = dict(zip(places, capacities, strict=True))
    before, without = excess(found, onward, capacity), found.colour.count(None)
    SpineRebalancing(found, (SPINES, SPINES), onward, capacity, PODS).run()
    assert excess(found, onward, capacity) <= before
    assert found.colour.count(None) == without
    for side in (0, 1):
        counts = Counter((ends[side], colour) for ends, colour in zip(edges, found.colour, strict=True))
        assert all(count == 1 for (_, colour), count in counts.items() if colour is not None)


def test_a_flow_within_the_pod_swaps_spines_with_a_flow_to_a_core() -> None:
    """Two leaves, two spines: leaf 0 sends one flow to a core and one to leaf 1, and spine 0 has lost its uplink."""
    edges = [(0, 4), (0, 1)]
    slots = {leaf: range(2) for leaf in range(8)}
    found = Colouring(edges, slots, slots)
    found.run()
    assert found.colour == [0, 1]
    capacity = {(side, spine): 4 for side in (0, 1) for spine in PODS} | {(0, 0): 0}
    SpineRebalancing(found, (SPINES, SPINES), [True, False], capacity, PODS, effort=Effort(0)).run()
    assert found.colour == [0, 1]
    effort = Effort(100)
    SpineRebalancing(found, (SPINES, SPINES), [True, False], capacity, PODS, effort=effort).run()
    assert found.colour == [1, 0]
    assert effort.edges < 100
