"""The number of slots that improve a bound, and their memory."""

import numpy as np
import pytest

from fleet.documents import RuleError
from placement.bounds import lower_bound, redundancy_advice
from placement.layout import Layout

EXPERT_BYTES = 44_040_192
EIGHT = Layout.even(slots=8, gpus=4, nodes=1)
HOT = np.array([[8.0, 1, 1, 1, 1, 1, 1, 2], [2.0, 2, 2, 2, 2, 2, 2, 2]])


def test_slots_are_added_to_every_gpu_until_the_mean_bound_meets_the_target() -> None:
    step = redundancy_advice(HOT, layout=EIGHT, expert_bytes=EXPERT_BYTES)
    more = (step.slots - 8) // 4
    assert more > 0
    assert step.bound_mean <= 1.01
    assert step.bound_mean == pytest.approx(_mean_bound(step.slots))
    assert _mean_bound(step.slots - 4) > 1.01
    assert step.extra_bytes_per_gpu == more * 2 * EXPERT_BYTES


def test_even_loads_need_no_more_slots() -> None:
    step = redundancy_advice(HOT[1:], layout=EIGHT, expert_bytes=EXPERT_BYTES)
    assert step.slots == 8
    assert step.extra_bytes_per_gpu == 0


def test_no_gpu_holds_an_expert_twice() -> None:
    """The slow GPU limits the bound even when both GPUs hold all experts, and there the steps end."""
    layout = Layout.of(node_of_gpu=[0, 0], slots_of_gpu=[1, 1], speeds=[1000, 1])
    step = redundancy_advice(np.array([[1.0, 1.0]]), layout=layout, expert_bytes=1)
    assert step.slots == 4
    assert step.bound_mean > 1.01


def test_the_number_of_steps_can_be_limited() -> None:
    assert redundancy_advice(HOT, layout=EIGHT, expert_bytes=1, target=1.0, max_steps=1).slots == 12


def test_a_target_below_one_is_refused() -> None:
    with pytest.raises(RuleError, match="target"):
        redundancy_advice(HOT, layout=EIGHT, expert_bytes=1, target=0.9)


def _mean_bound(slots: int) -> float:
    return float(lower_bound(HOT, layout=Layout.even(slots=slots, gpus=4, nodes=1)).mean())
