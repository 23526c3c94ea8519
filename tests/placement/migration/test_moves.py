"""Renumbered GPUs: few moves and an equivalent plan."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch, gpu_loads
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.migration import moved_copies, relabelled
from placement.migration.assignment import assigned
from placement.migration.moves import in_kept_slots, moved_per_layer
from placement.validation import check_slots
from tests.placement.migration.placements import loads, placement

FOUR = Layout.even(slots=16, gpus=4, nodes=2)
UNLIKE = Layout.of(node_of_gpu=[0, 0, 1, 1, 2, 2], slots_of_gpu=[3, 2, 3, 2, 2, 3], speeds=[1, 2, 1, 2, 1, 1])
SIX = Layout.even(slots=24, gpus=6, nodes=3)


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_assignment_matches_exhaustive_search(seed: int, n: int) -> None:
    costs = np.random.default_rng(seed).integers(0, 20, size=(3, n, n)).astype(np.float64)
    for one, columns in zip(costs, assigned(costs), strict=True):
        assert sorted(columns.tolist()) == list(range(n))
        best = min(sum(one[row, p[row]] for row in range(n)) for p in itertools.permutations(range(n)))
        assert one[np.arange(n), columns].sum() == best


def test_relabelling_moves_as_few_copies_as_the_best_permutation() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        plan, current = (placement(rng, layers=1, experts=12, layout=FOUR) for _ in range(2))
        found = relabelled(plan, current, layout=FOUR)
        by_gpu = plan.reshape(4, 4)
        every = [
            moved_copies(current, by_gpu[list(order)].reshape(1, -1), layout=FOUR)
            for order in itertools.permutations(range(4))
        ]
        assert moved_copies(current, found, layout=FOUR) == min(every)


def test_a_renumbered_plan_moves_no_copy() -> None:
    rng = np.random.default_rng(1)
    current = placement(rng, layers=5, experts=20, layout=SIX)
    order = rng.permuted(np.tile(np.arange(6), (5, 1)), axis=1)
    plan = np.take_along_axis(current.reshape(5, 6, 4), order[:, :, np.newaxis], axis=1).reshape(5, 24)
    assert relabelled(plan, current, layout=SIX).tolist() == current.tolist()


@given(st.integers(0, 10**6), st.sampled_from([SIX, UNLIKE]), st.sampled_from([Dispatch.EQUAL, Dispatch.NEAREST]))
def test_relabelling_keeps_the_plan_equivalent(seed: int, layout: Layout, rule: Dispatch) -> None:
    rng = np.random.default_rng(seed)
    plan, current = (placement(rng, layers=3, experts=10, layout=layout) for _ in range(2))
    tokens = loads(rng, layers=3, experts=10)
    found = relabelled(plan, current, layout=layout, rule=rule)
    check_slots(found, experts=10, layout=layout)
    planned = imbalance(plan, tokens, layout=layout, rule=rule).per_layer
    assert imbalance(found, tokens, layout=layout, rule=rule).per_layer == pytest.approx(planned)
    assert moved_copies(current, found, layout=layout) <= moved_copies(current, plan, layout=layout)
    if rule is Dispatch.NEAREST:
        assert _by_node(found, tokens, layout, rule) == pytest.approx(_by_node(plan, tokens, layout, rule))
        assert _together(found, layout) == _together(plan, layout)


@given(st.integers(0, 10**6))
def test_a_copy_that_stays_on_its_gpu_keeps_its_slot(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = (placement(rng, layers=2, experts=14, layout=UNLIKE) for _ in range(2))
    found = in_kept_slots(after, before, layout=UNLIKE)
    assert moved_per_layer(before, found, layout=UNLIKE).tolist() == (found != before).sum(axis=1).tolist()
    assert moved_copies(after, found, layout=UNLIKE) == 0


def _by_node(placed: Ints, tokens: Floats, layout: Layout, rule: Dispatch) -> Floats:
    """Loads of nodes, independent of the order of nodes."""
    per_gpu = gpu_loads(placed, tokens, layout=layout, rule=rule)
    return np.sort(np.add.reduceat(per_gpu, np.unique(layout.node_of_gpu, return_index=True)[1], axis=1), axis=1)


def _together(placed: Ints, layout: Layout) -> list[list[list[int]]]:
    """Per layer the experts of each node, independent of the order of nodes."""
    return [sorted(sorted(row[layout.node_of_slot == node].tolist()) for node in range(layout.nodes)) for row in placed]
