"""Communicating nodes, equal on every rail: data rings, double binary trees, the pipeline, expert all-to-all.

The double tree is that of Sanders, Speck and Traeff (2009) in NCCL's form: an in-order tree over the ranks, and its
mirror (even sizes) or its shift by one (odd sizes), so that no rank is an inner node of both.
"""

from typing import NamedTuple

import numpy as np

from faults.fabric import Ints, Traffic
from faults.simulator.shape import Shape


class Pairs(NamedTuple):
    """Directed pairs of nodes with one kind of traffic."""

    source: Ints
    target: Ints
    traffic: Traffic


def pairs(shape: Shape) -> list[Pairs]:
    grid = np.arange(shape.nodes).reshape(shape.stages, shape.replicas)
    found = [Pairs(grid.ravel(), np.roll(grid, -1, axis=1).ravel(), Traffic.RING)]
    if shape.trees:
        for child, parent in double_tree(shape.replicas):
            low, high = grid[:, child].ravel(), grid[:, parent].ravel()
            found += [Pairs(low, high, Traffic.TREE), Pairs(high, low, Traffic.TREE)]
    if shape.stages > 1:
        before, after = grid[:-1].ravel(), grid[1:].ravel()
        found += [Pairs(before, after, Traffic.SMALL), Pairs(after, before, Traffic.SMALL)]
    if shape.experts:
        found.append(_all_to_all(grid.reshape(-1, shape.experts)))
    return found


def double_tree(size: int) -> list[tuple[Ints, Ints]]:
    """Return (children, parents) of both trees over 0..size-1."""
    child, parent = _tree(size)
    if size % 2 == 0:
        return [(child, parent), (size - 1 - child, size - 1 - parent)]
    return [(child, parent), ((child + 1) % size, (parent + 1) % size)]


def _tree(size: int) -> tuple[Ints, Ints]:
    """Build the tree in order: the parent of r differs from r around its lowest set bit; 0 is the root."""
    rank = np.arange(1, size)
    low = rank & -rank
    parent = (rank ^ low) | (low << 1)
    return rank, np.where(parent < size, parent, rank ^ low)


def _all_to_all(groups: Ints) -> Pairs:
    size = groups.shape[1]
    first, second = (axis.ravel() for axis in np.nonzero(~np.eye(size, dtype=bool)))
    return Pairs(groups[:, first].ravel(), groups[:, second].ravel(), Traffic.SMALL)
