"""Plans for rule `nearest`: balanced where possible, always legal, never worse than their start."""

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.expert_loads import synthetic
from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.nearest import balanced_nearest
from placement.validation import check_slots, contiguous, copies

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
def test_deepseek_v3_is_balanced(slots: int, gpus: int, nodes: int, most: float) -> None:
    tokens = synthetic("deepseek-v3", seed=3).tokens[:LAYERS, : min(slots, 256)]
    layout = Layout.even(slots=slots, gpus=gpus, nodes=nodes)
    found = balanced_nearest(tokens, layout=layout)
    assert nearest(found, tokens, layout) <= most


def test_copies_of_an_expert_are_on_different_nodes() -> None:
    tokens = synthetic("deepseek-v3", seed=1).tokens[:LAYERS]
    layout = Layout.even(slots=288, gpus=32, nodes=4)
    found = balanced_nearest(tokens, layout=layout)
    on_node = layout.node_of_slot * 256 + found
    assert all(len(np.unique(row)) == layout.slots for row in on_node)
    alike = imbalance(found, tokens, layout=layout, rule=Dispatch.EQUAL).per_layer
    assert imbalance(found, tokens, layout=layout, rule=Dispatch.NEAREST).per_layer == pytest.approx(alike)


@pytest.mark.parametrize("shape", [(288, 72, 9), (320, 64, 8)])
def test_the_imbalance_does_not_depend_on_the_choice_of_copy_within_a_node(shape: tuple[int, int, int]) -> None:
    """With few slots per GPU the search exchanges the most copies."""
    tokens = synthetic("deepseek-v3", seed=6).tokens[:LAYERS]
    slots, gpus, nodes = shape
    layout = Layout.even(slots=slots, gpus=gpus, nodes=nodes)
    plan = balanced_nearest(tokens, layout=layout)
    found = nearest(plan, tokens, layout)
    assert found <= 1.01
    assert _imbalance_if(plan, tokens, layout, first_of_node=True) == pytest.approx(found, rel=1e-9)
    assert _imbalance_if(plan, tokens, layout, first_of_node=False) == pytest.approx(found, rel=1e-9)


def _imbalance_if(plan: Ints, tokens: Floats, layout: Layout, *, first_of_node: bool) -> float:
    """A GPU without its own copy uses the first one on its node, or all on its node equally; else any copy."""
    loads = np.zeros((len(plan), layout.gpus))
    for layer, row in enumerate(plan):
        for expert, count in enumerate(tokens[layer]):
            slots = np.flatnonzero(row == expert)
            own = layout.gpu_of_slot[slots] == np.arange(layout.gpus)[:, np.newaxis]
            beside = layout.node_of_slot[slots] == layout.node_of_gpu[:, np.newaxis]
            if first_of_node:
                beside &= beside.cumsum(axis=1) == 1
            taken = np.where(own.any(axis=1, keepdims=True), own, beside)
            taken |= ~taken.any(axis=1, keepdims=True)
            shares = (taken / taken.sum(axis=1, keepdims=True)).mean(axis=0)
            np.add.at(loads[layer], layout.gpu_of_slot[slots], count * shares)
    even = tokens.sum(axis=1, keepdims=True) * layout.shares
    return float((loads / even).max(axis=1).mean())


def on_one_node(expert_of_slot: Ints, layout: Layout, *, experts: int) -> int:
    """Count copies on the same node of an expert that has at most as many copies as there are nodes."""
    found = 0
    for row, counts in zip(expert_of_slot, copies(expert_of_slot, experts=experts), strict=True):
        few = counts[row] <= layout.nodes
        places = layout.node_of_slot[few] * experts + row[few]
        found += len(places) - len(np.unique(places))
    return found


@given(st.data())
def test_no_node_has_two_avoidable_copies_of_an_expert(data: st.DataObject) -> None:
    """For any loads, from one copy per expert to one per node, with and without a start."""
    nodes, gpus_of_node, slots_of_gpu = (data.draw(st.integers(1, most)) for most in (4, 3, 4))
    layout = Layout.even(slots=nodes * gpus_of_node * slots_of_gpu, gpus=nodes * gpus_of_node, nodes=nodes)
    experts = data.draw(st.integers(gpus_of_node * slots_of_gpu, layout.slots))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    tokens = generator.lognormal(0, 2, (3, experts))
    plan = balanced_nearest(tokens, layout=layout)
    assert on_one_node(plan, layout, experts=experts) == 0
    later = balanced_nearest(generator.lognormal(0, 2, (3, experts)), layout=layout, start=plan)
    assert on_one_node(later, layout, experts=experts) == 0


def test_copies_of_a_start_are_spread_over_nodes() -> None:
    """The start has adjacent copies, as a plan for equal dispatch may have."""
    layout = Layout.even(slots=24, gpus=8, nodes=4)
    start = np.arange(24)[np.newaxis] % 18
    start[0, 3:6] = start[0, 0:3][::-1]
    start[0, [18, 19, 20]] = [3, 4, 5]
    check_slots(start, experts=18, layout=layout)
    assert on_one_node(start, layout, experts=18) > 0
    tokens = np.random.default_rng(8).lognormal(0, 0.5, (1, 18))
    found = balanced_nearest(tokens, layout=layout, start=start)
    assert on_one_node(found, layout, experts=18) == 0
    assert nearest(found, tokens, layout) <= nearest(start, tokens, layout)


def test_slow_gpus_receive_less_load() -> None:
    tokens = synthetic("deepseek-v3", seed=2).tokens[:4]
    layout = Layout.even(slots=288, gpus=32, nodes=4, speeds=[0.5, 1.0] * 16)
    assert nearest(balanced_nearest(tokens, layout=layout), tokens, layout) <= 1.01


@given(problems())
def test_every_plan_is_legal_and_reproducible(problem: tuple[Floats, Layout]) -> None:
    tokens, layout = problem
    found = balanced_nearest(tokens, layout=layout)
    check_slots(found, experts=tokens.shape[1], layout=layout)
    assert (found == balanced_nearest(tokens, layout=layout)).all()


@given(problems(), problems())
def test_a_start_is_never_made_worse(problem: tuple[Floats, Layout], other: tuple[Floats, Layout]) -> None:
    tokens, layout = problem
    earlier = np.resize(other[0], tokens.shape)  # a plan for outdated loads
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


def test_small_cases_are_near_the_optimum() -> None:
    """Compare with all plans."""
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
