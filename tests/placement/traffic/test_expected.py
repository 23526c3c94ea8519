"""Expected remote nodes, against every combination of copies."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.layout import Layout
from placement.token_trace import TokenTrace
from placement.traffic import remote_nodes, traffic_cost
from tests.placement.traffic.instances import Instance, instance, instances

RULES = (Dispatch.EQUAL, Dispatch.NEAREST)


def enumerated(row: Ints, token: Ints, layout: Layout, rule: Dispatch, cost: Floats) -> float:
    """The cost of one token, over every source GPU and every choice of copies."""
    total = 0.0
    for source in layout.node_of_gpu:
        choices = []
        for expert in token:
            nodes = layout.node_of_slot[np.flatnonzero(row == expert)]
            near = rule is Dispatch.NEAREST and source in nodes
            choices.append([source] if near else list(nodes))
        combinations = list(product(*choices))
        total += sum(cost[source, list(set(nodes))].sum() for nodes in combinations) / len(combinations)
    return total / layout.gpus


def expected(case: Instance, rule: Dispatch, cost: Floats) -> Floats:
    return np.array(
        [
            np.mean([enumerated(row, token, case.layout, rule, cost) for token in case.trace.experts[:, layer]])
            for layer, row in enumerate(case.placement)
        ]
    )


@given(case=instances())
def test_remote_nodes_are_the_mean_over_all_choices(case: Instance) -> None:
    cost = 1.0 - np.eye(case.layout.nodes)
    for rule in RULES:
        found = remote_nodes(case.placement, case.trace, layout=case.layout, rule=rule)
        assert found == pytest.approx(expected(case, rule, cost))


def hashed(row: Ints, token: Ints, layout: Layout, cost: Floats) -> float:
    """The cost of one token: the mean over many hash numbers."""
    copies = [layout.node_of_slot[np.flatnonzero(row == expert)] for expert in token]
    period = math.lcm(*(len(nodes) for nodes in copies))
    reached = [{int(nodes[r % len(nodes)]) for nodes in copies} for r in range(2 * period)]
    sent = [cost[source, list(nodes)].sum() for source in layout.node_of_gpu for nodes in reached]
    return float(np.mean(sent))


@given(case=instances(), seed=st.integers(0, 1000))
def test_under_hash_one_number_selects_all_copies_of_a_token(case: Instance, seed: int) -> None:
    nodes = case.layout.nodes
    cost = np.random.default_rng(seed).exponential(size=(nodes, nodes))
    found = traffic_cost(case.placement, case.trace, layout=case.layout, rule=Dispatch.HASH, cost=cost)
    for layer, row in enumerate(case.placement):
        tokens = case.trace.experts[:, layer]
        assert found[layer] == pytest.approx(np.mean([hashed(row, token, case.layout, cost) for token in tokens]))


def test_under_hash_pairs_of_copies_on_one_gpu_are_selected_together() -> None:
    layout = Layout.even(slots=8, gpus=4, nodes=4)
    trace = TokenTrace.of([[[0, 1]]], experts_per_layer=2)
    row = np.array([[0, 1, 0, 1, 0, 1, 0, 1]])
    assert remote_nodes(row, trace, layout=layout, rule=Dispatch.HASH) == pytest.approx([3 / 4])
    assert remote_nodes(row, trace, layout=layout, rule=Dispatch.EQUAL) == pytest.approx(
        [4 * (1 - (3 / 4) ** 2) * 3 / 4]
    )


@pytest.mark.parametrize("rule", RULES)
def test_the_cost_of_each_pair_of_nodes_is_counted(rule: Dispatch) -> None:
    case = instance(3, nodes=3)
    cost = np.array([[0.0, 1.0, 4.0], [2.0, 0.0, 0.5], [3.0, 0.25, 0.0]])
    found = traffic_cost(case.placement, case.trace, layout=case.layout, rule=rule, cost=cost)
    assert found == pytest.approx(expected(case, rule, cost))


def test_nodes_are_weighted_by_their_gpus() -> None:
    layout = Layout.of(node_of_gpu=[0, 0, 0, 1], slots_of_gpu=[1, 1, 1, 1])
    trace = TokenTrace.of([[[3]], [[0]]], experts_per_layer=4)
    found = remote_nodes(np.array([[0, 1, 2, 3]]), trace, layout=layout, rule=Dispatch.EQUAL)
    assert found == pytest.approx([(3 / 4 + 1 / 4) / 2])


def test_a_copy_on_every_node_costs_nothing_under_nearest() -> None:
    layout = Layout.even(slots=4, gpus=2, nodes=2)
    trace = TokenTrace.of([[[0]]], experts_per_layer=3)
    row = np.array([[0, 1, 0, 2]])
    assert remote_nodes(row, trace, layout=layout, rule=Dispatch.NEAREST) == pytest.approx([0.0])
    assert remote_nodes(row, trace, layout=layout, rule=Dispatch.EQUAL) == pytest.approx([0.5])


def test_invalid_layers_and_costs_are_refused() -> None:
    case = instance(0)
    with pytest.raises(RuleError, match="layers"):
        remote_nodes(case.placement[:1], case.trace, layout=case.layout, rule=Dispatch.EQUAL)
    for cost in (np.ones((3, 3)), np.array([[0.0, -1.0], [1.0, 0.0]]), np.full((2, 2), np.nan)):
        with pytest.raises(RuleError, match="cost"):
            traffic_cost(case.placement, case.trace, layout=case.layout, rule=Dispatch.EQUAL, cost=cost)
