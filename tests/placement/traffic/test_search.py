"""The traffic search: its guarantees on any instance, and the optimum of tiny ones."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch, gpu_loads
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.token_trace import TokenTrace
from placement.traffic import minimise_traffic, remote_nodes, traffic_cost
from placement.traffic.local_search import spread_over_nodes, together
from placement.validation import check_slots
from tests.placement.traffic.instances import Instance, instance, instances

RULES = (Dispatch.EQUAL, Dispatch.NEAREST)
TINY = 1e-9


@settings(max_examples=12)
@given(case=instances())
def test_the_result_is_legal_and_no_worse_than_its_start(case: Instance) -> None:
    for rule in RULES:
        before = imbalance(case.placement, case.tokens, layout=case.layout, rule=rule).mean
        for ceiling in (before, before * 1.3):
            found = minimise_traffic(
                case.tokens, case.trace, layout=case.layout, rule=rule, ceiling=ceiling, start=case.placement
            )
            check_slots(found, experts=case.tokens.shape[1], layout=case.layout)
            assert imbalance(found, case.tokens, layout=case.layout, rule=rule).mean <= ceiling + TINY
            sent = remote_nodes(found, case.trace, layout=case.layout, rule=rule).sum()
            assert sent <= remote_nodes(case.placement, case.trace, layout=case.layout, rule=rule).sum() + TINY


def plain_loads(row: Ints, tokens: Floats, layout: Layout) -> Floats:
    """[GPUs]: the copy on the same GPU as the token, else the first on the same node, else any."""
    loads = np.zeros(layout.gpus)
    for expert, count in enumerate(tokens):
        at = layout.gpu_of_slot[np.flatnonzero(row == expert)]
        for gpu, node in enumerate(layout.node_of_gpu):
            near = at[layout.node_of_gpu[at] == node]
            for to in [gpu] if gpu in at else near[:1] if len(near) else at:
                loads[to] += count / layout.gpus / (1 if gpu in at or len(near) else len(at))
    return loads


@given(case=instances(), ceiling=st.sampled_from([1.0, 1.05, 1.3, 2.0]))
def test_under_nearest_copies_of_an_expert_are_on_different_nodes(case: Instance, ceiling: float) -> None:
    layout, experts = case.layout, case.tokens.shape[1]
    if layout.nodes == 1 or layout.slots > layout.nodes * experts:
        return  # some node must hold two copies of an expert
    found = minimise_traffic(case.tokens, case.trace, layout=layout, rule=Dispatch.NEAREST, ceiling=ceiling)
    assert not together(found, experts=experts, layout=layout).any()
    for row, tokens in zip(found, case.tokens, strict=True):
        loads = gpu_loads(row[np.newaxis], tokens[np.newaxis], layout=layout, rule=Dispatch.NEAREST)[0]
        assert loads == pytest.approx(plain_loads(row, tokens, layout))


def test_spreading_keeps_other_copies() -> None:
    layout = Layout.even(slots=8, gpus=4, nodes=2)
    row, tokens = np.array([0, 1, 0, 2, 3, 4, 5, 3]), np.arange(6, 0, -1.0)
    assert together(row[np.newaxis], experts=6, layout=layout)[0].tolist() == [True, False, False, True, False, False]
    made = spread_over_nodes(row, tokens, layout=layout)
    check_slots(made[np.newaxis], experts=6, layout=layout)
    assert not together(made[np.newaxis], experts=6, layout=layout).any()
    assert (spread_over_nodes(made, tokens, layout=layout) == made).all()


def least(case: Instance, rule: Dispatch, ceiling: float) -> float:
    """Remote nodes of the best placement of one layer, by exhaustive search."""
    rows = np.array(sorted(set(permutations(case.placement[0].tolist()))), dtype=np.int64)
    layout = case.layout
    kept = [row for row in rows if all(len(set(on)) == len(on) for on in np.split(row, layout.first_slot[1:-1]))]
    best = np.inf
    for row in kept:
        if imbalance(row[np.newaxis], case.tokens, layout=layout, rule=rule).mean <= ceiling:
            best = min(best, remote_nodes(row[np.newaxis], case.trace, layout=layout, rule=rule)[0])
    return float(best)


@pytest.mark.parametrize("seed", range(8))
def test_tiny_layers_match_exhaustive_search(seed: int) -> None:
    case = instance(seed, experts=6, slots_per_gpu=3, gpus_per_node=1, layers=1, active=2)
    best = least(case, Dispatch.EQUAL, 1.25)
    found = minimise_traffic(case.tokens, case.trace, layout=case.layout, rule=Dispatch.EQUAL, ceiling=1.25)
    if np.isfinite(best):
        sent = remote_nodes(found, case.trace, layout=case.layout, rule=Dispatch.EQUAL)[0]
        assert sent == pytest.approx(best)
    else:
        assert imbalance(found, case.tokens, layout=case.layout).mean > 1.25


def grouped(count: int) -> TokenTrace:
    """Each token uses two experts of one of four groups; groups are not consecutive numbers."""
    rng = np.random.default_rng(0)
    order = rng.permutation(16).reshape(4, 4)
    rows = [order[rng.integers(4)][rng.permutation(4)[:2]] for _ in range(count)]
    return TokenTrace.of(np.array(rows)[:, np.newaxis], experts_per_layer=16)


def test_experts_of_one_topic_are_placed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement.traffic.search.PROPOSALS", 1600)
    trace, layout = grouped(400), Layout.even(slots=16, gpus=8, nodes=4)
    found = minimise_traffic(trace.loads(), trace, layout=layout, rule=Dispatch.EQUAL, ceiling=1.6)
    assert remote_nodes(found, trace, layout=layout, rule=Dispatch.EQUAL)[0] == pytest.approx(3 / 4)


def test_free_slots_reduce_traffic_more_under_nearest_than_under_equal() -> None:
    case = instance(1, nodes=2, gpus_per_node=2, slots_per_gpu=5, experts=12, count=400)
    sent = {
        rule: remote_nodes(
            minimise_traffic(case.tokens, case.trace, layout=case.layout, rule=rule, ceiling=1.2),
            case.trace,
            layout=case.layout,
            rule=rule,
        ).mean()
        for rule in RULES
    }
    assert sent[Dispatch.NEAREST] < 0.9 * sent[Dispatch.EQUAL]


def test_an_expensive_node_receives_fewer_tokens() -> None:
    case = instance(5, nodes=3, gpus_per_node=2, slots_per_gpu=3, experts=16, count=70, layers=1)
    given_all: dict[str, Any] = {"layout": case.layout, "rule": Dispatch.EQUAL, "ceiling": 1.5}
    plain = minimise_traffic(case.tokens, case.trace, **given_all)
    before, after = [], []
    for node in range(3):
        dear = 1.0 - np.eye(3)
        dear[:, node] *= 20.0
        found = minimise_traffic(case.tokens, case.trace, cost=dear, **given_all)
        before.append(_reached(plain, case, node))
        after.append(_reached(found, case, node))
    assert (np.array(after) <= before).all()
    assert sum(after) < 0.8 * sum(before)


@settings(max_examples=8)
@given(case=instances(), seed=st.integers(0, 1000))
def test_with_costs_the_result_is_no_more_expensive_than_the_start(case: Instance, seed: int) -> None:
    layout, rng = case.layout, np.random.default_rng(seed)
    cost = rng.exponential(size=(layout.nodes, layout.nodes)) * (1 - np.eye(layout.nodes))
    for rule in RULES:
        ceiling = 1.2 * imbalance(case.placement, case.tokens, layout=layout, rule=rule).mean
        given_all: dict[str, Any] = {"layout": layout, "rule": rule, "ceiling": ceiling}
        found, without = (
            minimise_traffic(case.tokens, case.trace, start=case.placement, cost=of, **given_all) for of in (cost, None)
        )
        assert imbalance(found, case.tokens, layout=layout, rule=rule).mean <= ceiling + TINY
        paid, paid_without, paid_before = (
            traffic_cost(made, case.trace, layout=layout, rule=rule, cost=cost).sum()
            for made in (found, without, case.placement)
        )
        assert paid <= min(paid_without, paid_before) + TINY


def _reached(found: Ints, case: Instance, node: int) -> float:
    there = set(found[0][case.layout.node_of_slot == node].tolist())
    return float(np.mean([bool(there & set(token.tolist())) for token in case.trace.experts[:, 0]]))


def test_equal_arguments_give_equal_results() -> None:
    case = instance(2, nodes=2, experts=10)
    arguments: dict[str, Any] = {"layout": case.layout, "rule": Dispatch.NEAREST, "ceiling": 1.1, "seed": 7}
    one, other = (minimise_traffic(case.tokens, case.trace, **arguments) for _ in range(2))
    assert (one == other).all()


def test_under_hash_the_ceiling_holds_and_traffic_does_not_exceed_the_start() -> None:
    case = instance(6, nodes=3, experts=10)
    layout, rule = case.layout, Dispatch.HASH
    even = imbalance(case.placement, case.tokens, layout=layout, rule=rule)
    assert (
        even.per_layer == imbalance(case.placement, case.tokens, layout=layout, rule=Dispatch.EQUAL).per_layer
    ).all()
    found = minimise_traffic(case.tokens, case.trace, layout=layout, rule=rule, ceiling=even.mean, start=case.placement)
    assert imbalance(found, case.tokens, layout=layout, rule=rule).mean <= even.mean + TINY
    sent, before = (remote_nodes(made, case.trace, layout=layout, rule=rule).sum() for made in (found, case.placement))
    assert sent < before


def test_uneven_slots_and_speeds_are_supported() -> None:
    layout = Layout.of(node_of_gpu=[0, 0, 1, 1], slots_of_gpu=[4, 2, 3, 3], speeds=[2.0, 1.0, 1.0, 1.0])
    case = instance(4, experts=9)
    found = minimise_traffic(case.tokens, case.trace, layout=layout, rule=Dispatch.NEAREST, ceiling=1.1)
    check_slots(found, experts=9, layout=layout)


def test_an_expert_too_hot_for_one_node_is_spread() -> None:
    layout = Layout.even(slots=12, gpus=4, nodes=4)
    tokens = np.array([[100.0, 1, 1, 1, 1, 1, 1, 1]])
    trace = TokenTrace.of(np.zeros((10, 1, 1), dtype=int), experts_per_layer=8)
    for rule in RULES:
        found = minimise_traffic(tokens, trace, layout=layout, rule=rule, ceiling=1.1)
        assert imbalance(found, tokens, layout=layout, rule=rule).mean <= 1.1


def test_inconsistent_input_is_refused() -> None:
    case = instance(0)
    good: dict[str, Any] = {"layout": case.layout, "rule": Dispatch.EQUAL}
    with pytest.raises(RuleError, match=r"max_imbalance.*from 1 to"):
        minimise_traffic(case.tokens, case.trace, ceiling=0.9, **good)
    with pytest.raises(RuleError, match="trace"):
        minimise_traffic(case.tokens[:, 1:], case.trace, ceiling=1.1, **good)
    with pytest.raises(RuleError, match="slots"):
        minimise_traffic(
            case.tokens, case.trace, layout=Layout.even(slots=4, gpus=2, nodes=2), rule=Dispatch.EQUAL, ceiling=2
        )
