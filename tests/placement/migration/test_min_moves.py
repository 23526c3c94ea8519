"""The fewest moved copies for a ceiling."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.migration import minimise_moves, moved_copies, relabelled
from placement.migration.knapsack import SLACK
from placement.validation import check_slots
from tests.placement.migration.placements import drifted, fewest_moves, loads, placement

RULES = (Dispatch.EQUAL, Dispatch.NEAREST)
SMALL = (
    Layout.even(slots=6, gpus=3, nodes=1),
    Layout.even(slots=8, gpus=4, nodes=2),
    Layout.of(node_of_gpu=[0, 0, 1], slots_of_gpu=[3, 2, 2], speeds=[2, 1, 1]),
)
LARGER = Layout.even(slots=40, gpus=8, nodes=2)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("layout", SMALL)
def test_small_layers_match_exhaustive_search(layout: Layout, rule: Dispatch) -> None:
    rng = np.random.default_rng(5)
    searched = 0
    for _ in range(25):
        experts = int(rng.integers(4, 6))
        tokens, before = loads(rng, layers=1, experts=experts), placement(rng, layers=1, experts=experts, layout=layout)
        ceiling = float(rng.uniform(1.1, 1.5))
        best = fewest_moves(before, tokens, layout=layout, rule=rule, ceiling=ceiling)
        if best is None:
            continue
        plan = balanced(tokens, layout=layout)
        found = minimise_moves(before, tokens, layout=layout, rule=rule, ceiling=ceiling, width=64, plan=plan)
        assert imbalance(found, tokens, layout=layout, rule=rule).mean <= ceiling + SLACK
        assert moved_copies(before, found, layout=layout) == best
        searched += 1
    assert searched >= 8


@given(st.integers(0, 10**6), st.floats(1.0, 1.4), st.sampled_from(RULES), st.none() | st.integers(0, 30))
def test_the_result_is_legal_and_never_less_balanced(
    seed: int, ceiling: float, rule: Dispatch, max_moves: int | None
) -> None:
    rng = np.random.default_rng(seed)
    tokens, before = loads(rng, layers=3, experts=32), placement(rng, layers=3, experts=32, layout=LARGER)
    plan = balanced(tokens, layout=LARGER)
    found = minimise_moves(before, tokens, layout=LARGER, rule=rule, ceiling=ceiling, max_moves=max_moves, plan=plan)
    check_slots(found, experts=32, layout=LARGER)
    assert max_moves is None or moved_copies(before, found, layout=LARGER) <= max_moves
    assert (found != before).sum() == moved_copies(before, found, layout=LARGER)
    now, after = (imbalance(placed, tokens, layout=LARGER, rule=rule).mean for placed in (before, found))
    assert after <= now + 1e-9


def test_within_the_ceiling_no_copy_moves() -> None:
    rng = np.random.default_rng(1)
    tokens, before = loads(rng, layers=4, experts=32), placement(rng, layers=4, experts=32, layout=LARGER)
    first = minimise_moves(before, tokens, layout=LARGER, ceiling=1.1)
    again = minimise_moves(first, tokens, layout=LARGER, ceiling=1.1)
    assert moved_copies(before, first, layout=LARGER) > 0
    assert again.tolist() == first.tolist()


def test_far_fewer_copies_move_than_for_a_new_plan() -> None:
    rng = np.random.default_rng(2)
    tokens = loads(rng, layers=8, experts=32)
    before = balanced(tokens, layout=LARGER)
    later = drifted(rng, tokens)
    found = minimise_moves(before, later, layout=LARGER, ceiling=1.05)
    assert imbalance(found, later, layout=LARGER).mean <= 1.05 + SLACK
    assert imbalance(before, later, layout=LARGER).mean > 1.1
    full = relabelled(balanced(later, layout=LARGER), before, layout=LARGER)
    assert moved_copies(before, found, layout=LARGER) < moved_copies(before, full, layout=LARGER) / 3


def test_all_layers_share_one_budget_of_moves() -> None:
    """Only some layers have a high imbalance: copies move there, and none moves in balanced layers."""
    rng = np.random.default_rng(3)
    tokens = loads(rng, layers=6, experts=32)
    before = balanced(tokens, layout=LARGER)
    later = tokens.copy()
    later[:2] = drifted(rng, tokens[:2], by=0.6)
    found = minimise_moves(before, later, layout=LARGER, ceiling=1.03)
    after = imbalance(found, later, layout=LARGER)
    assert after.mean <= 1.03 + SLACK
    assert (found[2:] == before[2:]).all()
    assert (after.per_layer[:2] > 1.03).all()


def test_more_moves_never_raise_the_imbalance() -> None:
    rng = np.random.default_rng(4)
    tokens, before = loads(rng, layers=3, experts=32), placement(rng, layers=3, experts=32, layout=LARGER)
    found = [minimise_moves(before, tokens, layout=LARGER, ceiling=1.0, max_moves=moves) for moves in range(0, 30, 3)]
    means = [imbalance(placed, tokens, layout=LARGER).mean for placed in found]
    assert means == sorted(means, reverse=True)
    assert means[-1] < means[0]


def test_the_ceiling_of_the_full_plan_is_reached() -> None:
    """With one state per level the search finds no further move, and the full plan is used."""
    rng = np.random.default_rng(6)
    tokens, before = loads(rng, layers=6, experts=32, skew=1.5), placement(rng, layers=6, experts=32, layout=LARGER)
    plan = balanced(tokens, layout=LARGER)
    ceiling = imbalance(plan, tokens, layout=LARGER).mean
    found = minimise_moves(before, tokens, layout=LARGER, ceiling=ceiling, plan=plan, width=1)
    assert imbalance(found, tokens, layout=LARGER).mean <= ceiling + SLACK
    full = relabelled(plan, before, layout=LARGER)
    assert moved_copies(before, found, layout=LARGER) <= moved_copies(before, full, layout=LARGER)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"ceiling": 0.9}, "ceiling"),
        ({"ceiling": float("nan")}, "ceiling"),
        ({"max_moves": -1}, "max_moves"),
        ({"width": 0}, "width"),
        ({"tokens": np.ones((2, 32))}, "current"),
        ({"current": np.zeros((1, 40), dtype=np.int64)}, "physical_to_logical_map"),
    ],
)
def test_an_invalid_argument_is_named(wrong: dict[str, Any], field: str) -> None:
    rng = np.random.default_rng(7)
    arguments: dict[str, Any] = {
        "current": placement(rng, layers=1, experts=32, layout=LARGER),
        "tokens": np.ones((1, 32)),
        "layout": LARGER,
        "ceiling": 1.1,
        **wrong,
    }
    with pytest.raises(RuleError) as raised:
        minimise_moves(**arguments)
    assert raised.value.violations[0][0][0] == field
