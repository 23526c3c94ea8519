"""Replica counts: the hottest copy has the lowest possible load, also with unequal slots per GPU."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numba import njit

from placement.arrays import Floats, Ints
from placement.balance import hottest_first
from placement.balance.packing import Heap, Workspace, capacity_of, replicate
from placement.balance.state import Layer
from placement.layout import Layout
from tests.placement.balance.oracle import coldest_hottest_copy

Counted = Callable[[Floats, Ints, Ints, int, int], tuple[Ints, Ints]]


@pytest.fixture(scope="module")
def counted() -> Counted:
    """`replicate` from Python: the counts, and the expert of each copy."""

    def run(tokens: Floats, order: Ints, capacity: Ints, slots: int, cold: int) -> tuple[Ints, Ints]:
        experts, none, nothing = len(tokens), np.empty(0, np.int64), np.empty(0)
        counts, each, copies = np.empty(experts, np.int64), np.empty(experts), np.empty(slots, np.int64)
        holds = np.empty((0, 0), np.bool_)
        layer = Layer(tokens, counts, each, none, nothing, holds, nothing, nothing, none)
        heap = Heap(np.empty(experts), np.empty(experts, np.int64))
        replicate(layer, order, capacity, Workspace(heap, copies), cold)
        return counts, copies

    compiled: Counted = njit()(run)
    compiled(np.ones(1), np.zeros(1, np.int64), np.array([0, 1]), 1, 0)
    return compiled


@given(
    slots_of_gpu=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    loads=st.lists(st.integers(1, 100), min_size=1, max_size=5),
)
def test_the_load_of_the_hottest_copy_is_minimal(counted: Counted, slots_of_gpu: list[int], loads: list[int]) -> None:
    tokens = np.array(loads, dtype=np.float64)
    assume(max(slots_of_gpu) <= len(loads) <= sum(slots_of_gpu))
    layout = Layout.of(node_of_gpu=[0] * len(slots_of_gpu), slots_of_gpu=slots_of_gpu)
    order = hottest_first(tokens[np.newaxis])[0]
    counts, copies = counted(tokens, order, capacity_of(layout.slots_of_gpu), layout.slots, 0)
    np.testing.assert_array_equal(np.bincount(copies, minlength=len(loads)), counts)
    assert (np.diff((tokens / counts)[copies]) <= 0).all()
    assert float((tokens / counts).max()) == pytest.approx(coldest_hottest_copy(tokens, layout=layout))


def test_copies_can_be_reserved_for_the_coldest_experts(counted: Counted) -> None:
    tokens = np.array([9.0, 4.0, 8.0, 1.0])
    order = hottest_first(tokens[np.newaxis])[0]
    counts, copies = counted(tokens, order, np.array([0, 4]), 8, 2)
    assert counts.tolist() == [2, 2, 2, 2]
    assert copies.tolist() == [0, 0, 2, 2, 1, 1, 3, 3]
    counts, _copies = counted(tokens, order, np.array([0, 4]), 8, 1)
    assert counts.tolist() == [3, 1, 2, 2]


def test_unequal_memory_limits_the_copies_per_expert() -> None:
    """Slots that only one GPU has cannot hold a second copy of an expert."""
    assert capacity_of(np.array([2, 2, 2])).tolist() == [0, 3]  # each expert at most once per GPU
    assert capacity_of(np.array([1, 1, 6])).tolist() == [0, 3, 4, 5, 6, 7, 8]


def test_equal_loads_are_ordered_by_expert_number() -> None:
    tokens = np.array([[2.0, 7.0, 2.0, 7.0, 3.0]])
    assert hottest_first(tokens).tolist() == [[1, 3, 4, 0, 2]]
