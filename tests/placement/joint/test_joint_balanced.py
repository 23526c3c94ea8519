"""Replica counts and packing together: optimal on small layers, legal on all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.eplb import eplb_global
from bench.expert_loads import synthetic
from fleet.documents import RuleError
from placement.arrays import Floats
from placement.balance import balanced
from placement.bounds import lower_bound
from placement.imbalance import imbalance
from placement.joint import joint_balanced
from placement.layout import Layout
from placement.validation import check_slots, contiguous, copies
from tests.placement.bounds.every_placement import optimum
from tests.placement.bounds.test_lower_bound import TOY, small_cases

NEARLY = 1.001


def imbalance_per_layer(tokens: Floats, layout: Layout) -> Floats:
    """The imbalance per layer of a placement by the joint search, which must be legal."""
    slots = joint_balanced(tokens, layout=layout)
    check_slots(slots, experts=tokens.shape[1], layout=layout)
    return imbalance(slots, tokens, layout=layout).per_layer


@given(small_cases())
def test_small_layers_reach_the_optimum(case: tuple[Layout, np.ndarray]) -> None:
    layout, tokens = case
    assert imbalance_per_layer(tokens[np.newaxis], layout)[0] <= optimum(tokens, layout=layout) * NEARLY


@given(st.lists(st.integers(1, 99), min_size=3, max_size=6), st.integers(3, 4))
def test_small_layers_with_two_slots_per_gpu_reach_the_optimum(tokens: list[int], gpus: int) -> None:
    layout = Layout.even(slots=2 * gpus, gpus=gpus, nodes=1)
    loads = np.array(tokens, dtype=np.float64)
    assert imbalance_per_layer(loads[np.newaxis], layout)[0] <= optimum(loads, layout=layout) * NEARLY


def test_the_eight_expert_example_reaches_its_optimum() -> None:
    assert imbalance_per_layer(TOY, Layout.even(slots=16, gpus=8, nodes=1))[0] == pytest.approx(1.0851, abs=5e-5)


@pytest.mark.parametrize(("slots", "gpus"), [(288, 144), (288, 96), (320, 160)])
def test_with_few_slots_the_joint_search_is_better_than_eplb(slots: int, gpus: int) -> None:
    tokens = synthetic("deepseek-v3").tokens[:8]
    layout = Layout.even(slots=slots, gpus=gpus, nodes=1)
    found = imbalance_per_layer(tokens, layout)
    published = imbalance(eplb_global(tokens, slots=slots, gpus=gpus), tokens, layout=layout).per_layer
    assert (found <= published + 1e-9).all()
    assert found.mean() < published.mean()
    assert (found >= lower_bound(tokens, layout=layout) - 1e-9).all()


@pytest.mark.parametrize("speeds", [None, [1.0] * 8 + [0.5] * 8])
@pytest.mark.parametrize("slots", [32, 48, 64])
def test_the_joint_search_is_no_worse_than_the_base(slots: int, speeds: list[float] | None) -> None:
    tokens = synthetic("deepseek-v3").tokens[:4, :28] + 1.0
    layout = Layout.even(slots=slots, gpus=16, nodes=2, speeds=speeds) if slots >= 28 else None
    assert layout is not None
    base = imbalance(balanced(tokens, layout=layout), tokens, layout=layout).per_layer
    assert (imbalance_per_layer(tokens, layout) <= base + 1e-9).all()


def test_gpus_of_one_and_two_slots_are_supported() -> None:
    tokens = synthetic("deepseek-v3").tokens[:4, :24] + 1.0
    layout = Layout.of(node_of_gpu=[0] * 16, slots_of_gpu=[2, 1] * 4 + [2] * 8)
    base = imbalance(balanced(tokens, layout=layout), tokens, layout=layout).per_layer
    assert (imbalance_per_layer(tokens, layout) <= base + 1e-9).all()


def test_a_start_is_never_made_worse() -> None:
    tokens = synthetic("deepseek-v3").tokens[:4]
    layout = Layout.even(slots=288, gpus=96, nodes=12)
    start = contiguous(layers=4, experts=256, layout=layout)
    slots = joint_balanced(tokens, layout=layout, start=start)
    check_slots(slots, experts=256, layout=layout)
    begun = imbalance(start, tokens, layout=layout).per_layer
    assert (imbalance(slots, tokens, layout=layout).per_layer < begun).all()
    again = joint_balanced(tokens, layout=layout, start=slots)
    assert (
        imbalance(again, tokens, layout=layout).per_layer <= imbalance(slots, tokens, layout=layout).per_layer
    ).all()


def test_a_balanced_start_is_kept() -> None:
    layout = Layout.even(slots=16, gpus=8, nodes=1)
    start = contiguous(layers=1, experts=8, layout=Layout.even(slots=16, gpus=8, nodes=1))
    np.testing.assert_array_equal(joint_balanced(np.ones((1, 8)), layout=layout, start=start), start)


def test_hot_experts_receive_more_copies() -> None:
    slots = joint_balanced(TOY, layout=Layout.even(slots=16, gpus=8, nodes=1))
    counts = copies(slots, experts=8)[0]
    assert counts.sum() == 16
    assert counts[:2].min() > counts[4:].max()


def test_the_search_is_deterministic() -> None:
    tokens = synthetic("deepseek-v3").tokens[:2]
    layout = Layout.even(slots=288, gpus=96, nodes=12)
    np.testing.assert_array_equal(joint_balanced(tokens, layout=layout), joint_balanced(tokens, layout=layout))


def test_an_illegal_start_is_refused() -> None:
    layout = Layout.even(slots=16, gpus=8, nodes=1)
    with pytest.raises(RuleError, match="twice"):
        joint_balanced(TOY, layout=layout, start=np.array([[0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]]))
