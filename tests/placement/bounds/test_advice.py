"""The number of slots that improve a bound, and their memory."""

import numpy as np
import pytest

from fleet.documents import RuleError
from placement.bounds import lower_bound, redundancy_advice
from placement.layout import Layout

EXPERT_BYTES = 44_040_192
EIGHT = Layout.even(slots=8, gpus=4, nodes=1)
HOT = np.array([[8.0, 1, 1, 1, 1, 1, 1, 2], [2.0, 2, 2, 2, 2, 2, 2, 2]])


def test_steps_add_a_slot_to_every_gpu_until_the_target_is_met() -> None:
    advice = redundancy_advice(HOT, layout=EIGHT, expert_bytes=EXPERT_BYTES)
    assert [step.slots for step in advice.steps] == [8 + 4 * more for more in range(len(advice.steps))]
    assert advice.steps[-1].layers_above == 0
    assert advice.is_needed
    assert advice.enough == advice.steps[-1]


def test_each_step_carries_its_bound_and_its_memory() -> None:
    advice = redundancy_advice(HOT, layout=EIGHT, expert_bytes=EXPERT_BYTES)
    for more, step in enumerate(advice.steps):
        bounds = lower_bound(HOT, layout=Layout.even(slots=8 + 4 * more, gpus=4, nodes=1))
        assert step.bound_mean == pytest.approx(bounds.mean())
        assert step.bound_max == pytest.approx(bounds.max())
        assert step.extra_bytes_per_gpu == more * 2 * EXPERT_BYTES


def test_each_layer_has_its_own_need() -> None:
    advice = redundancy_advice(HOT, layout=EIGHT, expert_bytes=EXPERT_BYTES)
    assert advice.slots_of_layer[1] == 8
    assert advice.slots_of_layer[0] > 8


def test_even_loads_need_nothing() -> None:
    advice = redundancy_advice(HOT[1:], layout=EIGHT, expert_bytes=EXPERT_BYTES)
    assert not advice.is_needed
    assert len(advice.steps) == 1
    assert advice.enough == advice.steps[0]


def test_no_gpu_holds_an_expert_twice() -> None:
    """The slow one is behind even when both hold all experts, and there the steps end."""
    layout = Layout.of(node_of_gpu=[0, 0], slots_of_gpu=[1, 1], speeds=[1000, 1])
    advice = redundancy_advice(np.array([[1.0, 1.0]]), layout=layout, expert_bytes=1)
    assert [step.slots for step in advice.steps] == [2, 4]
    assert advice.enough is None
    assert (advice.slots_of_layer == 0).all()


def test_steps_can_be_limited() -> None:
    advice = redundancy_advice(HOT, layout=EIGHT, expert_bytes=EXPERT_BYTES, target=1.0, most_steps=1)
    assert len(advice.steps) == 2


def test_a_target_below_one_is_refused() -> None:
    with pytest.raises(RuleError, match="target"):
        redundancy_advice(HOT, layout=EIGHT, expert_bytes=1, target=0.9)
