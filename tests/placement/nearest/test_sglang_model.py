"""SGLang's random choices for a map, compared with plain Python, and maps balanced for them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.expert_loads import synthetic
from fleet.documents import RuleError
from placement.arrays import Ints
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.formats.engine_writers import EnginePlacement, sglang_json
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.nearest import (
    balanced_for_sglang,
    balanced_nearest,
    engine_choices,
    engine_imbalance,
    engine_loads,
)
from placement.nearest.sglang_dispatch import words
from placement.validation import check_slots, contiguous, copies
from tests.placement.nearest.plain_sglang import choices

DEEPSEEK_ROWS = tuple(range(3, 15))  # its first three layers are dense


@st.composite
def maps(draw: st.DrawFn) -> tuple[Ints, int, Layout]:
    """Maps of a few layers, from one copy each to one on every GPU, on one node or several."""
    nodes, gpus_of_node, slots_of_gpu = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    layout = Layout.even(slots=nodes * gpus_of_node * slots_of_gpu, gpus=nodes * gpus_of_node, nodes=nodes)
    experts = draw(st.integers(slots_of_gpu, layout.slots))
    seed = draw(st.integers(0, 2**32 - 1))
    tokens = np.random.default_rng(seed).lognormal(0, 2, (draw(st.integers(1, 4)), experts))
    return balanced_nearest(tokens, layout=layout), experts, layout


@given(maps())
def test_choices_match_the_reference_rule(case: tuple[Ints, int, Layout]) -> None:
    expert_of_slot, experts, layout = case
    found = engine_choices(expert_of_slot, experts=experts, layout=layout)
    plain = choices(expert_of_slot, experts=experts, layout=layout)
    assert (found == plain).all()


@pytest.mark.parametrize("copies_of_first", [24, 30])
def test_draws_match_the_python_random_module(copies_of_first: int) -> None:
    """Python samples 16 of 24 from a pool, and 4 of 30 by repeated draws."""
    layout = Layout.even(slots=128, gpus=64, nodes=2)
    row = np.arange(128, dtype=np.int64)
    row[: 2 * copies_of_first : 2] = 0
    _, row = np.unique(row, return_inverse=True)
    rows, experts = np.stack([row, row]), int(row.max()) + 1
    found = engine_choices(rows, experts=experts, layout=layout)
    assert (found == choices(rows, experts=experts, layout=layout)).all()


def test_dense_layers_consume_their_part_of_the_draws() -> None:
    layout = Layout.even(slots=24, gpus=8, nodes=4)
    tokens = np.random.default_rng(5).lognormal(0, 1.5, (2, 16))
    moe = balanced_nearest(tokens, layout=layout)
    dense = contiguous(layers=2, experts=16, layout=layout)
    whole = np.stack([dense[0], moe[0], dense[1], moe[1]])
    found = engine_choices(moe, experts=16, layout=layout, layers=(1, 3))
    assert (found == choices(whole, experts=16, layout=layout)[[1, 3]]).all()


def test_dense_layers_match_those_of_the_file() -> None:
    layout = Layout.even(slots=24, gpus=8, nodes=4)
    moe = balanced_nearest(np.random.default_rng(7).lognormal(0, 1.5, (2, 16)), layout=layout)
    placed = EnginePlacement.of(moe, layout=layout, experts=16, layers=(1, 3), hidden_layers=5)
    loaded = np.array(json.loads(sglang_json(placed))["physical_to_logical_map"])
    found = engine_choices(moe, experts=16, layout=layout, layers=(1, 3))
    assert (found == choices(loaded, experts=16, layout=layout)[[1, 3]]).all()


@given(maps())
def test_no_token_is_lost(case: tuple[Ints, int, Layout]) -> None:
    expert_of_slot, experts, layout = case
    tokens = np.random.default_rng(1).uniform(1, 9, (len(expert_of_slot), experts))
    loads = engine_loads(expert_of_slot, tokens, layout=layout)
    assert loads.sum(axis=1) == pytest.approx(tokens.sum(axis=1))


def test_few_experts_have_random_choices_in_a_balanced_plan() -> None:
    """Each expert has one copy or a copy on every node; at most one expert per layer has another number."""
    tokens = synthetic("deepseek-v3", seed=5).tokens[: len(DEEPSEEK_ROWS)]
    layout = Layout.even(slots=288, gpus=32, nodes=4)
    plan = balanced_nearest(tokens, layout=layout)
    counts = copies(plan, experts=256)
    drawn = (counts > 1) & (counts < layout.nodes)
    assert (drawn.sum(axis=1) <= 1).all()
    assert imbalance(plan, tokens, layout=layout, rule=Dispatch.NEAREST).mean < 1.002
    assert engine_imbalance(plan, tokens, layout=layout, layers=DEEPSEEK_ROWS).mean < 1.005


@pytest.mark.parametrize(("slots", "gpus", "nodes", "most"), [(320, 64, 8, 1.02), (288, 72, 9, 1.035)])
def test_balancing_for_sglang_lowers_the_imbalance_of_its_choices(
    slots: int, gpus: int, nodes: int, most: float
) -> None:
    tokens = synthetic("deepseek-v3", seed=5).tokens[: len(DEEPSEEK_ROWS)]
    layout = Layout.even(slots=slots, gpus=gpus, nodes=nodes)
    plan = balanced_nearest(tokens, layout=layout)
    found = balanced_for_sglang(plan, tokens, layout=layout, layers=DEEPSEEK_ROWS)
    check_slots(found, experts=256, layout=layout)
    assert (copies(found, experts=256) == copies(plan, experts=256)).all()
    assert engine_imbalance(plan, tokens, layout=layout, layers=DEEPSEEK_ROWS).mean > 1.015
    assert engine_imbalance(found, tokens, layout=layout, layers=DEEPSEEK_ROWS).mean < most
    assert imbalance(found, tokens, layout=layout, rule=Dispatch.NEAREST).mean < most


def test_balancing_for_sglang_halves_the_imbalance_of_its_random_choices() -> None:
    """A plan for equal dispatch has two or three copies of the hottest experts."""
    tokens = synthetic("deepseek-v3", seed=5).tokens[: len(DEEPSEEK_ROWS)]
    layout = Layout.even(slots=288, gpus=32, nodes=4)
    plan = balanced(tokens, layout=layout)
    found = balanced_for_sglang(plan, tokens, layout=layout, layers=DEEPSEEK_ROWS)
    before = engine_imbalance(plan, tokens, layout=layout, layers=DEEPSEEK_ROWS).mean
    assert before > 1.05
    assert engine_imbalance(found, tokens, layout=layout, layers=DEEPSEEK_ROWS).mean < 1 + (before - 1) / 2


@given(maps())
def test_balanced_maps_are_legal_and_never_worse(case: tuple[Ints, int, Layout]) -> None:
    expert_of_slot, experts, layout = case
    tokens = np.random.default_rng(2).lognormal(0, 2, (len(expert_of_slot), experts))
    found = balanced_for_sglang(expert_of_slot, tokens, layout=layout)
    check_slots(found, experts=experts, layout=layout)
    assert (copies(found, experts=experts) == copies(expert_of_slot, experts=experts)).all()
    before = engine_imbalance(expert_of_slot, tokens, layout=layout).mean
    assert engine_imbalance(found, tokens, layout=layout).mean <= before


def test_more_random_words_are_drawn_when_the_first_do_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout.even(slots=24, gpus=8, nodes=4)
    tokens = np.random.default_rng(6).lognormal(0, 1.5, (3, 16))
    plan = balanced_nearest(tokens, layout=layout)
    plenty = engine_choices(plan, experts=16, layout=layout)
    monkeypatch.setattr("placement.nearest.sglang_model.FIRST_WORDS", 1)
    assert (engine_choices(plan, experts=16, layout=layout) == plenty).all()
    assert (words(1000)[:10] == words(10)).all()


def test_uneven_layouts_are_refused() -> None:
    layout = Layout.of(node_of_gpu=[0, 0, 1], slots_of_gpu=[2, 2, 2])
    with pytest.raises(RuleError, match="layout: must have equal slots on every GPU and equal GPUs on every node"):
        engine_choices(np.arange(6)[np.newaxis], experts=6, layout=layout)


@pytest.mark.parametrize(
    ("layers", "message"),
    [((0, 1), r"must be one number per row \(1\), got 2"), ((-1,), "from 0 to 999"), ((1000,), "from 0 to 999")],
)
def test_invalid_row_numbers_are_refused(layers: tuple[int, ...], message: str) -> None:
    layout = Layout.even(slots=4, gpus=2, nodes=1)
    with pytest.raises(RuleError, match=f"layers: .*{message}"):
        engine_choices(np.arange(4)[np.newaxis], experts=4, layout=layout, layers=layers)
