"""Incremental changes of cost, against a full count."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from placement.arrays import Experts, Floats, Ints
from placement.dispatch import RULES, Dispatch
from placement.layout import Layout
from placement.traffic import annealing
from placement.traffic.initial_partition import (
    EVERYWHERE,
    SPREAD,
    Nodes,
    Start,
    carried,
    used,
    weights,
    with_capacity,
)
from placement.traffic.packing import copies_of, taken
from placement.traffic.token_costs import token_cost
from tests.placement.traffic.instances import instance

SCALE = 2.0**20  # fine enough for costs of any kind


def _walked(cut: annealing.Cut, steps: Ints) -> tuple[Ints, annealing.Hits, annealing.Counts, annealing.Counts]:
    """The table's change of each step (expert, other or -1, node), with all steps applied, and the final tables."""
    annealing.count(cut)
    found = np.zeros(len(steps), np.int64)
    for at in range(len(steps)):
        one, other, to = steps[at, 0], steps[at, 1], steps[at, 2]
        if other >= 0:
            found[at] = annealing.change_of_swap(cut, one, other)
            a, b = cut.home[one], cut.home[other]
            annealing.shift(cut, one, b)
            annealing.shift(cut, other, a)
        else:
            found[at] = annealing.change(cut, one, to)
            annealing.shift(cut, one, to)
    return found, cut.hits, cut.come, cut.alone


def _total(  # noqa: PLR0917
    trace: Experts, home: Ints, share: Floats, cost: Floats, every: Floats, rule: int
) -> float:
    found = 0.0
    wide, covered = np.empty(trace.shape[1], np.int64), np.empty(len(every), np.int64)
    for token in range(len(trace)):
        found += token_cost(trace[token], share, home, cost, every, rule, wide, covered)
    return found


walked: Callable[..., Any] = njit(_walked)
total: Callable[..., Any] = njit(_total)


def start(home: Ints, nodes: int) -> Start:
    """Expert 0 is on two nodes, or on all nodes if there are fewer."""
    copies = np.zeros((len(home), nodes), dtype=np.int64)
    copies[0, :2] = (2, 1)[:nodes]
    return Start(home, copies, np.ones(len(home), dtype=np.int64))


def shares(home: Ints, nodes: int) -> Floats:
    """[experts, nodes]."""
    copies = copies_of(home, start(home, nodes))
    found: Floats = copies / copies.sum(axis=1, keepdims=True)
    return found


@given(seed=st.integers(0, 1000), nodes=st.integers(2, 5), rule=st.sampled_from(Dispatch))
def test_incremental_costs_match_a_full_count(seed: int, nodes: int, rule: Dispatch) -> None:
    rng = np.random.default_rng(seed)
    trace = np.ascontiguousarray(instance(seed, nodes=5, experts=12, layers=1, active=4).trace.experts[:, 0])
    home = rng.integers(nodes, size=12)
    home[0] = SPREAD
    if rule is Dispatch.NEAREST:
        home[1] = EVERYWHERE
    cost = (rng.random((nodes, nodes)) + 0.1) * (1 - np.eye(nodes)) / nodes
    every = cost.sum(axis=0)
    costs, steps, current = [total(trace, home, shares(home, nodes), cost, every, RULES[rule])], [], home.copy()
    for _ in range(12):
        one, other = rng.permutation(np.arange(2, 12))[:2]
        to = int(rng.integers(nodes))
        if rng.random() < 0.5 and current[one] != current[other]:
            steps.append((one, other, 0))
            current[one], current[other] = current[other], current[one]
        elif current[one] != to:
            steps.append((one, -1, to))
            current[one] = to
        else:
            continue
        costs.append(total(trace, current, shares(current, nodes), cost, every, RULES[rule]))
    weight = weights(trace, home, start(home, nodes), cost, scale=SCALE, rule=rule)
    found, *left = walked(annealing.Cut.of(trace, home.copy(), weight), np.array(steps, dtype=np.int64))
    assert found / SCALE == pytest.approx(np.diff(costs), abs=1e-3)
    _, *recounted = walked(annealing.Cut.of(trace, current, weight), np.empty((0, 3), dtype=np.int64))
    for mine, other in zip(left, recounted, strict=True):
        assert (mine == other).all()


@given(seed=st.integers(0, 1000), nodes=st.integers(1, 4), rule=st.sampled_from(Dispatch))
def test_the_state_matches_the_copies(seed: int, nodes: int, rule: Dispatch) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout.even(slots=nodes * 14, gpus=nodes * 2, nodes=nodes)
    loads = rng.dirichlet(np.ones(12))
    home = rng.integers(nodes, size=12)
    home[0] = SPREAD
    if rule is Dispatch.NEAREST:
        home[1] = EVERYWHERE
    of, begun = Nodes.of(layout), start(home, nodes)
    copies = copies_of(home, begun)
    each, lowest = taken(copies, of, rule=rule)
    parts = copies * each + (copies > 0) * lowest
    assert parts.sum(axis=1) == pytest.approx(np.ones(12))
    assert carried(home, begun, loads, of, rule=rule) == pytest.approx(loads @ parts)
    assert (used(home, begun, of) == copies.sum(axis=0)).all()
    settled = with_capacity(begun, loads, of)
    assert settled is not None
    assert (used(settled, begun, of) <= of.slots).all()
