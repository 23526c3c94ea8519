"""EPLB, the baseline: its published example and its documented properties."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.eplb import eplb, eplb_global
from placement.arrays import Floats
from placement.validation import copies


def test_published_example() -> None:
    """From the readme of deepseek-ai/EPLB: two layers, four groups on two nodes."""
    tokens = np.array(
        [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]],
        dtype=np.float64,
    )
    assert eplb(tokens, slots=16, groups=4, nodes=2, gpus=8).tolist() == [
        [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
        [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1],
    ]


def test_many_slots_per_gpu_example() -> None:
    """The example that its successors start from: a peak of 232 where 180 would be even."""
    tokens = np.array([[600.0, 560, 120, 120, 20, 10, 10, 10]])
    placed = eplb_global(tokens, slots=16, gpus=8)[0]
    each = tokens[0] / np.bincount(placed, minlength=8)
    assert round(float(each[placed].reshape(8, 2).sum(axis=1).max())) == 232


@st.composite
def _loads(draw: st.DrawFn, *, experts: int) -> Floats:
    rows = st.lists(st.integers(1, 10_000), min_size=experts, max_size=experts)
    return np.array(draw(st.lists(rows, min_size=1, max_size=3)), dtype=np.float64)


@given(tokens=_loads(experts=16), slots=st.sampled_from([16, 24, 32]))
def test_groups_stay_on_one_node(tokens: Floats, slots: int) -> None:
    for row in eplb(tokens, slots=slots, groups=4, nodes=2, gpus=8):
        nodes_of_group = [
            {slot // (slots // 2) for slot in range(slots) if row[slot] // 4 == group} for group in range(4)
        ]
        assert all(len(nodes) == 1 for nodes in nodes_of_group)


@given(tokens=_loads(experts=12), groups=st.sampled_from([1, 3, 4]), slots=st.sampled_from([12, 24]))
def test_every_expert_has_a_slot(tokens: Floats, groups: int, slots: int) -> None:
    placed = eplb(tokens, slots=slots, groups=groups, nodes=2, gpus=4)
    assert placed.shape == (len(tokens), slots)
    assert copies(placed, experts=12).min() >= 1


@given(tokens=_loads(experts=9))
def test_no_copy_would_lower_the_peak_at_another_expert(tokens: Floats) -> None:
    """Greedy counts: without one of its copies, an expert's other copies are at least as hot as the hottest copy."""
    counts = copies(eplb_global(tokens, slots=15, gpus=5), experts=9)
    for row, count in zip(tokens.astype(np.float32), counts, strict=True):
        spared = row[count > 1] / (count[count > 1] - 1).astype(np.float32)
        assert (spared >= (row / count.astype(np.float32)).max()).all()


def test_groups_that_do_not_divide_are_ignored() -> None:
    tokens = np.random.default_rng(7).integers(1, 1000, size=(4, 24)).astype(np.float64)
    uneven = eplb(tokens, slots=36, groups=8, nodes=3, gpus=6)
    np.testing.assert_array_equal(uneven, eplb_global(tokens, slots=36, gpus=6))
