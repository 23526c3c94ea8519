"""Plans against rule `nearest`: even where that is possible, always allowed, never worse than what they began with."""

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.expert_loads import synthetic
from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.nearest import balanced_nearest
from placement.slots import check_slots, contiguous, copies

LAYERS = 12  # enough for a mean, few enough for a test


def nearest(expert_of_slot: Ints, tokens: Floats, layout: Layout) -> float:
    return imbalance(expert_of_slot, tokens, layout=layout, rule=Dispatch.NEAREST).mean


@st.composite
def layouts(draw: st.DrawFn, *, experts: int) -> Layout:
    """Nodes and GPUs of different sizes and speeds that hold these experts."""
    gpus_of_node = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    gpus = sum(gpus_of_node)
    least = -(-experts // gpus)
    slots = draw(st.lists(st.integers(least, experts), min_size=gpus, max_size=gpus))
    return Layout.of(
        node_of_gpu=[node for node, count in enumerate(gpus_of_node) for _ in range(count)],
        slots_of_gpu=slots,
        speeds=draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=gpus, max_size=gpus)),
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[Floats, Layout]:
    experts = draw(st.integers(1, 12))
    load = st.floats(1e-3, 1e6)
    tokens = draw(st.lists(st.lists(load, min_size=experts, max_size=experts), min_size=1, max_size=3))
    return np.array(tokens), draw(layouts(experts=experts))


@pytest.mark.parametrize(
    ("slots", "gpus", "nodes", "most"), [(288, 32, 4, 1.002), (288, 72, 9, 1.01), (320, 64, 8, 1.01), (96, 8, 1, 1.002)]
)
def test_deepseek_v3_is_even(slots: int, gpus: int, nodes: int, most: float) -> None:
    tokens = synthetic("deepseek-v3", seed=3).tokens[:LAYERS, : min(slots, 256)]
    layout = Layout.even(slots=slots, gpus=gpus, nodes=nodes)
    found = balanced_nearest(tokens, layout=layout)
    assert nearest(found, tokens, layout) <= most


def test_copies_lie_on_nodes_of_their_own() -> None:
    tokens = synthetic("deepseek-v3", seed=1).tokens[:LAYERS]
    layout = Layout.even(slots=288, gpus=32, nodes=4)
    found = balanced_nearest(tokens, layout=layout)
    on_node = layout.node_of_slot * 256 + found
    assert all(len(np.unique(row)) == layout.slots for row in on_node)
    alike = imbalance(found, tokens, layout=layout, rule=Dispatch.EQUAL).per_layer
    assert imbalance(found, tokens, layout=layout, rule=Dispatch.NEAREST).per_layer == pytest.approx(alike)


def test_slow_gpus_get_less() -> None:
    tokens = synthetic("deepseek-v3", seed=2).tokens[:4]
    layout = Layout.even(slots=288, gpus=32, nodes=4, speeds=[0.5, 1.0] * 16)
    assert nearest(balanced_nearest(tokens, layout=layout), tokens, layout) <= 1.01


@settings(max_examples=60, deadline=None)
@given(problems())
def test_every_plan_may_stand_and_comes_out_the_same_again(problem: tuple[Floats, Layout]) -> None:
    tokens, layout = problem
    found = balanced_nearest(tokens, layout=layout)
    check_slots(found, experts=tokens.shape[1], layout=layout)
    assert (found == balanced_nearest(tokens, layout=layout)).all()


@settings(max_examples=60, deadline=None)
@given(problems(), problems())
def test_a_start_is_never_made_worse(problem: tuple[Floats, Layout], other: tuple[Floats, Layout]) -> None:
    tokens, layout = problem
    earlier = np.resize(other[0], tokens.shape)  # a plan for loads that are no longer so
    start = balanced_nearest(earlier, layout=layout)
    found = balanced_nearest(tokens, layout=layout, start=start)
    check_slots(found, experts=tokens.shape[1], layout=layout)
    before = imbalance(start, tokens, layout=layout, rule=Dispatch.NEAREST).per_layer
    after = imbalance(found, tokens, layout=layout, rule=Dispatch.NEAREST).per_layer
    assert (after <= before * (1 + 1e-9)).all()


SMALL = Layout.of(node_of_gpu=[0, 0, 1, 2], slots_of_gpu=[2, 2, 2, 1])


@cache
def every_plan() -> Ints:
    """[plans, slots]: five experts in seven slots."""
    rows = np.array(list(itertools.product(range(5), repeat=SMALL.slots)))
    whole = (copies(rows, experts=5) > 0).all(axis=1)
    apart = (rows[:, [0, 2, 4]] != rows[:, [1, 3, 5]]).all(axis=1)
    found: Ints = rows[whole & apart]
    return found


def test_small_cases_come_near_the_best_there_is() -> None:
    """All plans are tried."""
    ratios = []
    for seed in range(30):
        tokens = np.random.default_rng(seed).lognormal(0, 1, (1, 5))
        plans = every_plan()
        same = np.repeat(tokens, len(plans), axis=0)
        best = imbalance(plans, same, layout=SMALL, rule=Dispatch.NEAREST).per_layer.min()
        ratios.append(nearest(balanced_nearest(tokens, layout=SMALL), tokens, SMALL) / best)
    assert min(ratios) >= 1 - 1e-9
    assert np.median(ratios) <= 1.0 + 1e-9
    assert np.mean(ratios) <= 1.01


def test_more_experts_than_slots_are_refused() -> None:
    with pytest.raises(RuleError, match=r"slots: must be at least the number of experts \(9\), got 8"):
        balanced_nearest(np.ones((1, 9)), layout=Layout.even(slots=8, gpus=4, nodes=2))


def test_a_start_of_another_shape_is_refused() -> None:
    layout = Layout.even(slots=8, gpus=4, nodes=2)
    start = contiguous(layers=1, experts=8, layout=Layout.even(slots=12, gpus=4, nodes=2))
    with pytest.raises(RuleError, match="physical_to_logical_map: must be layers x 8 slots"):
        balanced_nearest(np.ones((1, 8)), layout=layout, start=start)
