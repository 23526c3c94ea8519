"""The rules of a legal placement."""

import numpy as np
import pytest

from fleet.documents import RuleError
from placement.layout import Layout
from placement.validation import check_capacity, check_slots, contiguous, copies

LAYOUT = Layout.even(slots=6, gpus=3, nodes=1)


def test_a_contiguous_placement_repeats_experts_in_redundant_slots() -> None:
    rows = contiguous(layers=2, experts=4, layout=LAYOUT)
    assert rows.tolist() == [[0, 1, 2, 3, 0, 1]] * 2
    check_slots(rows, experts=4, layout=LAYOUT)


def test_copies_are_counted_per_layer() -> None:
    rows = np.array([[0, 1, 2, 3, 0, 0], [3, 2, 1, 0, 3, 2]])
    assert copies(rows, experts=5).tolist() == [[3, 1, 1, 1, 0], [1, 1, 2, 2, 0]]


def test_one_slot_per_expert_suffices() -> None:
    check_capacity(experts=6, layout=LAYOUT)


@pytest.mark.parametrize(
    ("experts", "message"),
    [
        (7, r"slots: must be at least the number of experts \(7\), got 6"),
        (1, "slots: a GPU would hold 2 of 1 experts, so one of them twice"),
    ],
)
def test_experts_that_do_not_fit_are_refused(experts: int, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        check_capacity(experts=experts, layout=LAYOUT)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0, 1, 2, 3]], r"physical_to_logical_map: must be layers x 6 slots, got \(1, 4\)"),
        ([0, 1, 2, 3, 0, 1], r"physical_to_logical_map: must be layers x 6 slots, got \(6,\)"),
        ([[0, 1, 2, 3, 0, 4]], "physical_to_logical_map: must name experts from 0 to 3"),
        ([[0, 1, 2, 3, 0, -1]], "physical_to_logical_map: must name experts from 0 to 3"),
        ([[0, 1, 2, 3, 0, 1], [0, 1, 2, 0, 1, 2]], r"physical_to_logical_map\[1\]: must hold every expert, 3 is in no"),
        ([[0, 1, 2, 3, 1, 1]], r"physical_to_logical_map\[0\]: must not hold an expert twice on one GPU"),
    ],
)
def test_illegal_maps_are_refused(rows: list[list[int]], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        check_slots(np.array(rows), experts=4, layout=LAYOUT)
