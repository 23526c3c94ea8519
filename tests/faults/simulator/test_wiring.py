"""The pairs of a job's traffic, and their cables."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.fabric import NOWHERE, Traffic
from faults.simulator.cluster import Shape, build, double_tree, pairs
from fleet.documents import RuleError


@given(st.integers(2, 64))
def test_each_of_the_two_trees_reaches_all_ranks_from_one_root(size: int) -> None:
    for child, parent in double_tree(size):
        above = dict(zip(child.tolist(), parent.tolist(), strict=True))
        assert len(above) == size - 1  # every rank but the root has one parent
        (root,) = set(range(size)) - set(above)
        for rank in range(size):
            steps = 0
            while rank != root:
                rank, steps = above[rank], steps + 1  # noqa: PLW2901 - climbs
                assert steps <= 2 * np.log2(size) + 2
        assert max(Counter(above.values()).values()) <= 2


@given(st.integers(1, 60).map(lambda half: 2 * half))
def test_no_rank_is_an_inner_node_of_both_trees(size: int) -> None:
    (_, first), (_, second) = double_tree(size)
    inner = set(first.tolist()) & set(second.tolist())
    assert len(inner) <= 2  # the roots have one child each, and can be inner ranks of the other tree


def test_a_data_group_is_a_ring_on_every_rail_and_stage() -> None:
    shape = Shape(ranks=512)
    ring = next(run for run in pairs(shape) if run.traffic is Traffic.RING)
    after = dict(zip(ring.source.tolist(), ring.target.tolist(), strict=True))
    node = 3 * shape.replicas
    visited = [node]
    while (node := after[node]) != visited[0]:
        visited.append(node)
    assert sorted(visited) == list(range(3 * shape.replicas, 4 * shape.replicas))


def test_expert_groups_have_all_to_all_traffic() -> None:
    run = pairs(Shape(ranks=1024, experts=8))[-1]
    assert run.source.size == 128 * 7
    assert set(zip(run.source.tolist(), run.target.tolist(), strict=True)) >= {(0, 7), (7, 0)}
    assert (run.source // 8 == run.target // 8).all()


def test_edges_stay_on_their_rail_and_take_cables_only_between_leaves() -> None:
    cluster = build(Shape(ranks=1024), seed=3)
    fabric, shape = cluster.fabric, cluster.shape
    assert (fabric.source % shape.per_node == fabric.target % shape.per_node).all()
    away = fabric.leaf[fabric.source] != fabric.leaf[fabric.target]
    assert ((fabric.up != NOWHERE) == away).all()
    assert (fabric.up[away] // shape.spines == fabric.leaf[fabric.source][away]).all()
    assert (fabric.down[away] // shape.spines == shape.leaves + fabric.leaf[fabric.target][away]).all()
    assert fabric.down.max() < shape.uplinks


def test_flows_are_spread_over_the_spines_evenly_enough() -> None:
    fabric = build(Shape(ranks=8192), seed=1).fabric
    count = np.bincount(fabric.up[fabric.up >= 0] % 16, minlength=16)
    assert abs(count / count.mean() - 1.0).max() < 0.1


def test_the_wiring_depends_on_the_seed_only() -> None:
    one, same, other = (build(Shape(ranks=1024), seed=seed).fabric for seed in (1, 1, 2))
    assert (one.up == same.up).all()
    assert (one.up != other.up).any()


def test_paths_may_be_unknown_to_the_detector() -> None:
    cluster = build(Shape(ranks=1024), seed=1, paths_known=False)
    assert (cluster.fabric.up >= 0).any()
    assert (cluster.known.up == NOWHERE).all()


@pytest.mark.parametrize(("field", "ranks", "experts"), [("ranks", 100, 0), ("experts", 1024, 7)])
def test_an_impossible_wiring_is_refused(field: str, ranks: int, experts: int) -> None:
    with pytest.raises(RuleError, match=field):
        Shape(ranks=ranks, experts=experts)
