"""The fewest copies to move for a ceiling."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.migration import minimise_moves, moved_copies, moved_per_layer
from placement.validation import check_slots
from tests.placement.migration.placements import drifted, fewest, loads, placement

RULES = (Dispatch.EQUAL, Dispatch.NEAREST)
SMALL = (
    Layout.even(slots=6, gpus=3, nodes=1),
    Layout.even(slots=8, gpus=4, nodes=2),
    Layout.of(node_of_gpu=[0, 0, 1], slots_of_gpu=[3, 2, 2], speeds=[2, 1, 1]),
)
LARGER = Layout.even(slots=40, gpus=8, nodes=2)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("layout", SMALL)
def test_is_the_minimum_on_layers_small_enough_for_exhaustive_search(layout: Layout, rule: Dispatch) -> None:
    rng = np.random.default_rng(5)
    asked = 0
    for _ in range(25):
        experts = int(rng.integers(4, 6))
        tokens, before = loads(rng, layers=1, experts=experts), placement(rng, layers=1, experts=experts, layout=layout)
        ceiling = float(rng.uniform(1.1, 1.5))
        best = fewest(before, tokens, layout=layout, rule=rule, ceiling=ceiling)
        if best is None:
            continue
        plan = balanced(tokens, layout=layout)
        found = minimise_moves(before, tokens, layout=layout, rule=rule, ceiling=ceiling, width=64, plan=plan)
        assert found.reached
        assert found.moves == best
        asked += 1
    assert asked >= 8


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(1.0, 1.4), st.sampled_from(RULES), st.none() | st.integers(0, 30))
def test_is_legal_and_reports_its_moves(seed: int, ceiling: float, rule: Dispatch, max_moves: int | None) -> None:
    rng = np.random.default_rng(seed)
    tokens, before = loads(rng, layers=3, experts=32), placement(rng, layers=3, experts=32, layout=LARGER)
    found = minimise_moves(
        before,
        tokens,
        layout=LARGER,
        rule=rule,
        ceiling=ceiling,
        max_moves=max_moves,
        plan=balanced(tokens, layout=LARGER),
    )
    check_slots(found.expert_of_slot, experts=32, layout=LARGER)
    assert max_moves is None or found.moves <= max_moves
    assert found.moves == moved_copies(before, found.expert_of_slot, layout=LARGER)
    assert found.moved.tolist() == moved_per_layer(before, found.expert_of_slot, layout=LARGER).tolist()
    after = imbalance(found.expert_of_slot, tokens, layout=LARGER, rule=rule)
    assert found.after.per_layer == pytest.approx(after.per_layer)
    assert found.after.mean <= found.before.mean + 1e-9
    assert found.reached == (after.mean <= ceiling + 1e-9)


def test_moves_nothing_within_the_ceiling() -> None:
    rng = np.random.default_rng(1)
    tokens, before = loads(rng, layers=4, experts=32), placement(rng, layers=4, experts=32, layout=LARGER)
    first = minimise_moves(before, tokens, layout=LARGER, ceiling=1.1)
    again = minimise_moves(first.expert_of_slot, tokens, layout=LARGER, ceiling=1.1)
    assert first.moves > 0
    assert again.moves == 0
    assert again.expert_of_slot.tolist() == first.expert_of_slot.tolist()


def test_moves_far_less_than_a_new_plan() -> None:
    rng = np.random.default_rng(2)
    tokens = loads(rng, layers=8, experts=32)
    before = balanced(tokens, layout=LARGER)
    later = drifted(rng, tokens)
    found = minimise_moves(before, later, layout=LARGER, ceiling=1.05)
    assert found.reached
    assert found.before.mean > 1.1
    assert found.moves < found.full_plan_moves / 3


def test_layers_share_one_budget() -> None:
    """Layers of which some are far off and some are even: moves go where they help most, none to the even ones."""
    rng = np.random.default_rng(3)
    tokens = loads(rng, layers=6, experts=32)
    before = balanced(tokens, layout=LARGER)
    later = tokens.copy()
    later[:2] = drifted(rng, tokens[:2], by=0.6)
    found = minimise_moves(before, later, layout=LARGER, ceiling=1.03)
    assert found.reached
    assert found.moved[2:].sum() == 0
    assert (found.after.per_layer[:2] > 1.03).all()


def test_more_moves_never_make_it_less_even() -> None:
    rng = np.random.default_rng(4)
    tokens, before = loads(rng, layers=3, experts=32), placement(rng, layers=3, experts=32, layout=LARGER)
    means = [
        minimise_moves(before, tokens, layout=LARGER, ceiling=1.0, max_moves=moves).after.mean
        for moves in range(0, 30, 3)
    ]
    assert means == sorted(means, reverse=True)
    assert means[-1] < means[0]


def test_reaches_whatever_the_full_plan_reaches() -> None:
    """With one state per level the search gets stuck; the plan remains."""
    rng = np.random.default_rng(6)
    tokens, before = loads(rng, layers=6, experts=32, skew=1.5), placement(rng, layers=6, experts=32, layout=LARGER)
    plan = balanced(tokens, layout=LARGER)
    ceiling = imbalance(plan, tokens, layout=LARGER).mean
    found = minimise_moves(before, tokens, layout=LARGER, ceiling=ceiling, plan=plan, width=1)
    assert found.reached
    assert found.moves <= found.full_plan_moves


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
def test_names_the_violation(wrong: dict[str, Any], field: str) -> None:
    rng = np.random.default_rng(7)
    asked: dict[str, Any] = {
        "current": placement(rng, layers=1, experts=32, layout=LARGER),
        "tokens": np.ones((1, 32)),
        "layout": LARGER,
        "ceiling": 1.1,
        **wrong,
    }
    with pytest.raises(RuleError) as raised:
        minimise_moves(**asked)
    assert raised.value.violations[0][0][0] == field
