"""Placements that hold an expert twice on one GPU."""

import numpy as np
import pytest

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.layout import Layout
from placement.migration import minimise_moves, moved_copies
from placement.migration.min_moves import without_duplicates
from placement.validation import check_slots
from tests.placement.migration.placements import loads, placement

LAYOUT = Layout.of(node_of_gpu=[0, 0, 0, 1, 1, 1], slots_of_gpu=[5, 5, 5, 5, 4, 4], speeds=[1, 1, 1, 1, 2, 2])
RULES = (Dispatch.EQUAL, Dispatch.NEAREST)


def _with_duplicates(seed: int) -> tuple[Ints, Floats]:
    """Three layers, of which the first and the last repeat an expert on GPU 0."""
    rng = np.random.default_rng(seed)
    current = placement(rng, layers=3, experts=18, layout=LAYOUT)
    for layer in (0, 2):
        here, row = slice(0, 5), current[layer]
        spare = [slot for slot in range(5) if (row == row[slot]).sum() > 1]
        if not spare:
            there = int(np.flatnonzero(np.bincount(row)[row[5:]] > 1)[0]) + 5
            row[0], row[there] = row[there], row[0]
            spare = [0] if len(set(row[here])) == 5 and (row == row[0]).sum() > 1 else []
        if spare:
            row[spare[0]] = row[1] if spare[0] != 1 else row[0]
    return current, loads(rng, layers=3, experts=18)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(8))
def test_each_duplicate_is_replaced_by_one_loaded_copy(seed: int, rule: Dispatch) -> None:
    current, tokens = _with_duplicates(seed)
    duplicates = sum(5 - len(set(row[:5].tolist())) for row in current)
    legal = without_duplicates(current, tokens, layout=LAYOUT, rule=rule)
    check_slots(legal, experts=18, layout=LAYOUT)
    assert moved_copies(current, legal, layout=LAYOUT) == (legal != current).sum() == duplicates


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ceiling", [1.1, 100.0])
def test_a_placement_with_duplicates_becomes_legal_at_any_ceiling(ceiling: float, rule: Dispatch) -> None:
    cases = 0
    for seed in range(8):
        current, tokens = _with_duplicates(seed)
        cases += any(len(set(row[:5].tolist())) < 5 for row in current)
        found = minimise_moves(current, tokens, layout=LAYOUT, rule=rule, ceiling=ceiling)
        check_slots(found, experts=18, layout=LAYOUT)
    assert cases >= 4


def test_too_few_moves_for_a_legal_placement_are_refused() -> None:
    rng = np.random.default_rng(1)
    layout = Layout.even(slots=6, gpus=2, nodes=1)
    current = np.array([[0, 1, 1, 2, 3, 0]])
    with pytest.raises(RuleError, match="at least 1"):
        minimise_moves(current, loads(rng, layers=1, experts=4), layout=layout, ceiling=1.0, max_moves=0)


def test_a_legal_placement_is_unchanged() -> None:
    rng = np.random.default_rng(2)
    current, tokens = placement(rng, layers=2, experts=18, layout=LAYOUT), loads(rng, layers=2, experts=18)
    assert without_duplicates(current, tokens, layout=LAYOUT, rule=Dispatch.EQUAL) is current
