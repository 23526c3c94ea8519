"""The compiled dispatch rules, against the rules in plain Python."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch, gpu_loads
from placement.layout import Layout


def taker(copies: list[int], gpu: int, layout: Layout) -> int | None:
    """Rule `nearest`: the copy that a GPU uses."""
    own = [slot for slot in copies if layout.gpu_of_slot[slot] == gpu]
    beside = [slot for slot in copies if layout.node_of_slot[slot] == layout.node_of_gpu[gpu]]
    if own:
        return own[0]
    return beside[0] if 0 < len(beside) < len(copies) else None


def plain_loads(expert_of_slot: Ints, tokens: Floats, layout: Layout, rule: Dispatch) -> Floats:
    """Add up GPU by GPU: each GPU sends an equal part of all tokens."""
    loads = np.zeros((len(tokens), layout.gpus))
    for layer, expert in np.ndindex(tokens.shape):
        copies = np.flatnonzero(expert_of_slot[layer] == expert).tolist()
        shares = dict.fromkeys(copies, Fraction(0))
        for gpu in range(layout.gpus):
            near = taker(copies, gpu, layout) if rule is Dispatch.NEAREST else None
            for slot in copies if near is None else [near]:
                shares[slot] += Fraction(1, layout.gpus * (len(copies) if near is None else 1))
        for slot, share in shares.items():
            loads[layer, layout.gpu_of_slot[slot]] += float(share) * tokens[layer, expert]
    return loads


@st.composite
def placed(draw: st.DrawFn) -> tuple[Ints, Floats, Layout]:
    """Any map that has every expert, on nodes and GPUs of any size."""
    gpus_of_node = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    gpus = sum(gpus_of_node)
    layout = Layout.of(
        node_of_gpu=[node for node, count in enumerate(gpus_of_node) for _ in range(count)],
        slots_of_gpu=draw(st.lists(st.integers(1, 3), min_size=gpus, max_size=gpus)),
    )
    experts = draw(st.integers(1, layout.slots))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spare = rng.integers(0, experts, (2, layout.slots - experts))
    rows = np.concatenate([np.tile(np.arange(experts), (2, 1)), spare], axis=1)
    return rng.permuted(rows, axis=1), rng.uniform(0.1, 100, (2, experts)), layout


@given(placed(), st.sampled_from(Dispatch))
def test_compiled_rules_match_the_reference_rules(case: tuple[Ints, Floats, Layout], rule: Dispatch) -> None:
    expert_of_slot, tokens, layout = case
    found = gpu_loads(expert_of_slot, tokens, layout=layout, rule=rule)
    assert found == pytest.approx(plain_loads(expert_of_slot, tokens, layout, rule))


@given(placed(), st.sampled_from(Dispatch))
def test_no_token_is_lost(case: tuple[Ints, Floats, Layout], rule: Dispatch) -> None:
    expert_of_slot, tokens, layout = case
    assert gpu_loads(expert_of_slot, tokens, layout=layout, rule=rule).sum(axis=1) == pytest.approx(tokens.sum(axis=1))


def test_copies_on_different_nodes_share_equally_under_both_rules() -> None:
    layout = Layout.even(slots=8, gpus=8, nodes=4)
    row = np.array([[0, 1, 0, 2, 0, 3, 4, 5]])  # expert 0 on nodes 0, 1 and 2
    tokens = np.full((1, 6), 24.0)
    for rule in Dispatch:
        assert gpu_loads(row, tokens, layout=layout, rule=rule)[0, [0, 2, 4]].tolist() == pytest.approx([8.0] * 3)


def test_a_second_copy_on_a_node_serves_only_its_own_gpu() -> None:
    layout = Layout.even(slots=8, gpus=8, nodes=2)
    row = np.array([[0, 0, 1, 2, 0, 3, 4, 5]])  # expert 0 on GPUs 0 and 1 of node 0, and on node 1
    tokens = np.array([[8.0, 1, 1, 1, 1, 1]])
    assert gpu_loads(row, tokens, layout=layout, rule=Dispatch.NEAREST)[0, [0, 1, 4]].tolist() == [3.0, 1.0, 4.0]


def test_copies_on_a_single_node_share_equally() -> None:
    layout = Layout.even(slots=8, gpus=8, nodes=2)
    row = np.array([[0, 0, 0, 1, 2, 3, 4, 5]])
    tokens = np.array([[9.0, 1, 1, 1, 1, 1]])
    found = gpu_loads(row, tokens, layout=layout, rule=Dispatch.NEAREST)[0, :3]
    assert found.tolist() == pytest.approx([3.0, 3.0, 3.0])


def test_rules_have_the_names_of_the_command_line() -> None:
    assert [str(rule) for rule in Dispatch] == ["equal", "nearest", "hash"]
