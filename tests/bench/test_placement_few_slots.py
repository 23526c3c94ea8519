"""Uneven slots per GPU at the same total."""

import numpy as np
import pytest

from bench.expert_loads import synthetic
from bench.placement_few_slots import uneven_layout, with_givers
from placement.imbalance import imbalance
from placement.joint import joint_balanced
from placement.layout import Layout
from placement.validation import check_slots

EVEN = Layout.even(slots=288, gpus=144, nodes=18)


def test_an_uneven_layout_lowers_the_mean_imbalance() -> None:
    tokens = synthetic("deepseek-v3").tokens[:6]
    uneven = uneven_layout(tokens, layout=EVEN)
    slots = joint_balanced(tokens, layout=uneven)
    check_slots(slots, experts=256, layout=uneven)
    equal = imbalance(joint_balanced(tokens, layout=EVEN), tokens, layout=EVEN)
    assert imbalance(slots, tokens, layout=uneven).mean < equal.mean - 0.02


@pytest.mark.parametrize("givers", [0, 1, 18, 19, 72])
def test_gpus_with_fewer_and_more_slots_are_equal_in_number_and_spread_over_nodes(givers: int) -> None:
    uneven = with_givers(EVEN, givers)
    assert uneven.slots == EVEN.slots
    assert np.bincount(uneven.slots_of_gpu, minlength=4).tolist() == [0, givers, 144 - 2 * givers, givers]
    np.testing.assert_array_equal(uneven.node_of_gpu, EVEN.node_of_gpu)
    for slots in (1, 3):
        of_node = np.bincount(uneven.node_of_gpu[uneven.slots_of_gpu == slots], minlength=18)
        assert of_node.max() - of_node.min() <= 1


def test_even_loads_leave_the_layout_even() -> None:
    assert uneven_layout(np.ones((2, 16)), layout=Layout.even(slots=16, gpus=8, nodes=2)).is_even
