"""The copies of a layer's experts on nodes, and their packing onto GPUs.  Packing changes no traffic: balance decides.

Each node alone: copies go heaviest first to the GPU with the lowest resulting load (LPT).  Then copies of the most
loaded GPU and another swap while that lowers the maximum.

Under `nearest` (`placement.dispatch`) a copy of an expert with c copies on several nodes, c(n) of them on this one,
receives of the expert's tokens

    1 / GPUs + far / c,  and the lowest-numbered one on the node (GPUs of n - c(n)) / GPUs more

with `far` the part of the GPUs without a copy on their node.  The lowest changes as copies swap, and the loads follow
exactly.
"""

from typing import NamedTuple

import numpy as np
from numba import float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.layout import Layout
from placement.traffic.initial_partition import EVERYWHERE, SPREAD, Nodes, Start

ELSEWHERE_TOO = 1e-6  # one more copy of an expert on several nodes changes others' shares: the last choice
ROUNDS = 400  # swaps of one node, a safeguard: a few dozen are made
NONE = -1
MIN_GAIN = 1e-9  # of the maximum load


class Node(NamedTuple):
    """The GPUs from `first` up to `last` during packing."""

    row: Ints  # [slots]: experts
    load: Floats  # [GPUs]
    kept: Floats  # [GPUs]: scratch
    holds: Ints  # [experts, GPUs]: copies
    speeds: Floats  # [GPUs]
    first_slot: Ints  # [GPUs + 1]
    each: Floats  # [experts]: load of a copy
    lowest: Floats  # [experts]: additional load of the lowest-numbered copy
    first: int
    last: int


@jit_inner
def _lowest_but(node: Node, expert: int, but: int) -> int:
    for gpu in range(node.first, node.last):
        if gpu != but and node.holds[expert, gpu]:
            return gpu
    return node.last


@jit_inner
def _carry(node: Node, expert: int, p: int, q: int) -> None:
    """The loads when one copy of an expert moves from GPU p to q; `holds` is unchanged."""
    node.load[p] -= node.each[expert]
    node.load[q] += node.each[expert]
    if node.lowest[expert] > 0.0:
        other = _lowest_but(node, expert, p)
        node.load[min(p, other)] -= node.lowest[expert]
        node.load[min(q, other)] += node.lowest[expert]


@jit_inner
def _busiest(node: Node) -> int:
    at = node.first
    for gpu in range(node.first + 1, node.last):
        if node.load[gpu] / node.speeds[gpu] > node.load[at] / node.speeds[at]:
            at = gpu
    return at


@jit_inner
def _place(node: Node, taken: Ints, expert: int, weight: float) -> None:
    """Put a copy on the GPU with the lowest resulting load that has a free slot, if possible without this expert."""
    best, least, twice = -1, 0.0, 0
    for gpu in range(node.first, node.last):
        if node.first_slot[gpu] + taken[gpu] >= node.first_slot[gpu + 1]:
            continue
        busy, held = (node.load[gpu] + weight) / node.speeds[gpu], node.holds[expert, gpu]
        if best < 0 or held < twice or (held == twice and busy < least):
            best, least, twice = gpu, busy, held
    node.row[node.first_slot[best] + taken[best]] = expert
    taken[best] += 1
    node.holds[expert, best] += 1
    node.load[best] += weight


@jit_inner
def _untangle_one(node: Node, slot: int, gpu: int) -> bool:
    """Swap one of two copies on a GPU with a copy on a GPU that has none."""
    expert = node.row[slot]
    for other in range(node.first, node.last):
        if node.holds[expert, other] > 0:
            continue
        for there in range(node.first_slot[other], node.first_slot[other + 1]):
            found = node.row[there]
            if node.holds[found, gpu] == 0:
                node.holds[expert, gpu] -= 1
                node.holds[expert, other] += 1
                node.holds[found, other] -= 1
                node.holds[found, gpu] += 1
                node.row[slot], node.row[there] = found, expert
                return True
    return False


@jit_inner
def _untangle(node: Node) -> bool:
    """Separate experts that are twice on a GPU; False where impossible."""
    for gpu in range(node.first, node.last):
        for slot in range(node.first_slot[gpu], node.first_slot[gpu + 1]):
            if node.holds[node.row[slot], gpu] > 1 and not _untangle_one(node, slot, gpu):
                return False
    return True


@jit_inner
def _swap(node: Node) -> bool:
    """Make the swap that lowers the maximum load most; False where none does."""
    p = _busiest(node)
    best = node.load[p] / node.speeds[p] * (1.0 - MIN_GAIN)
    mine, yours, to = -1, -1, -1
    for gpu in range(node.first, node.last):
        node.kept[gpu] = node.load[gpu]
    for q in range(node.first, node.last):
        for slot in range(node.first_slot[p], node.first_slot[p + 1]):
            x = node.row[slot]
            if q == p or node.holds[x, q]:
                continue
            for there in range(node.first_slot[q], node.first_slot[q + 1]):
                y = node.row[there]
                more = node.each[x] - node.each[y] - node.lowest[y]
                none = node.each[x] + node.lowest[x] <= node.each[y]
                if none or (node.load[q] + more) / node.speeds[q] >= best or node.holds[y, p]:
                    continue
                _carry(node, x, p, q)
                _carry(node, y, q, p)
                busiest = _busiest(node)
                if node.load[busiest] / node.speeds[busiest] < best:
                    best, mine, yours, to = node.load[busiest] / node.speeds[busiest], slot, there, q
                for gpu in range(node.first, node.last):
                    node.load[gpu] = node.kept[gpu]
    if mine < 0:
        return False
    x, y = node.row[mine], node.row[yours]
    _carry(node, x, p, to)
    _carry(node, y, to, p)
    node.holds[x, p], node.holds[x, to], node.holds[y, to], node.holds[y, p] = 0, 1, 0, 1
    node.row[mine], node.row[yours] = y, x
    return True


@jit_inner
def _settle(node: Node, copies: Ints, order: Ints, taken: Ints) -> bool:
    """Place a node's copies [experts] in order; loads, holdings and occupied slots [GPUs] are 0 before.

    False where they do not fit.
    """
    for at in range(len(order)):
        expert = order[at]
        for _ in range(copies[expert]):
            _place(node, taken, expert, node.each[expert] + node.lowest[expert] / copies[expert])
    if not _untangle(node):
        return False
    for gpu in range(node.first, node.last):
        node.load[gpu] = 0.0
        for slot in range(node.first_slot[gpu], node.first_slot[gpu + 1]):
            node.load[gpu] += node.each[node.row[slot]]
    for expert in range(len(copies)):
        if copies[expert] > 0:
            node.load[_lowest_but(node, expert, NONE)] += node.lowest[expert]
    for _ in range(ROUNDS):
        if not _swap(node):
            break
    return True


@jit_entry(
    int64[::1](int64[:, ::1], float64[:, ::1], float64[:, ::1], int64[:, ::1], int64[::1], int64[::1], float64[::1])
)
def pack(  # noqa: PLR0917 - compiled code takes no keywords
    copies: Ints, each: Floats, lowest: Floats, order: Ints, first_gpu: Ints, first_slot: Ints, speeds: Floats
) -> Ints:
    """[slots]: experts of one layer, from all copies [nodes, experts] and their loads; empty if they do not fit.

    `order` [nodes, experts] is the order of placement.
    """
    nodes, experts = copies.shape
    gpus = len(speeds)
    row, holds = np.empty(first_slot[-1], np.int64), np.zeros((experts, gpus), np.int64)
    load, kept, filled = np.zeros(gpus), np.zeros(gpus), np.zeros(gpus, np.int64)
    for at in range(nodes):
        first, last = first_gpu[at], first_gpu[at + 1]
        node = Node(row, load, kept, holds, speeds, first_slot, each[at], lowest[at], first, last)
        if not _settle(node, copies[at], order[at], filled):
            return np.empty(0, np.int64)
    return row


def packed(copies: Ints, loads: Floats, *, layout: Layout, rule: Dispatch) -> Ints | None:
    """[slots]: experts of one layer, from copies per node [experts, nodes], filled up; None if impossible."""
    nodes, copies = Nodes.of(layout), copies.copy()
    fill = _filled_apart if rule is Dispatch.NEAREST and layout.nodes > 1 else _filled
    if not all(fill(copies, loads, node, nodes) for node in range(layout.nodes)):
        return None
    each, lowest = taken(copies, nodes, rule=rule)
    each, lowest = (loads[:, np.newaxis] * parts for parts in (each, lowest))
    weight = np.where(copies > 0, each + lowest / np.maximum(copies, 1), -1.0)
    row = pack(
        np.ascontiguousarray(copies.T),
        np.ascontiguousarray(each.T),
        np.ascontiguousarray(lowest.T),
        np.argsort(-weight.T, axis=1, kind="stable"),
        np.concatenate([[0], np.cumsum(nodes.gpus)]),
        layout.first_slot,
        layout.speeds,
    )
    return row if len(row) else None


def copies_of(home: Ints, start: Start) -> Ints:
    """[experts, nodes]: copies."""
    copies = np.where((home == SPREAD)[:, np.newaxis], start.copies, 0)
    copies[home == EVERYWHERE] = 1
    settled = np.flatnonzero(home >= 0)
    copies[settled, home[settled]] = start.least[settled]
    return copies


def _filled_apart(copies: Ints, loads: Floats, node: int, nodes: Nodes) -> bool:
    """Fill the node with experts that it lacks: the hottest with several copies, else the least loaded."""
    for _ in range(int(nodes.slots[node] - copies[:, node].sum())):
        total, away = copies.sum(axis=1), copies[:, node] == 0
        several = away & (total > 1)
        if several.any():
            expert = int(np.where(several, loads / total, -1.0).argmax())
        elif away.any():
            expert = int(np.where(away, loads, np.inf).argmin())
        else:
            return _filled(copies, loads, node, nodes)
        copies[expert, node] = 1
    return int(copies[:, node].sum()) == int(nodes.slots[node])


def _filled(copies: Ints, loads: Floats, node: int, nodes: Nodes) -> bool:
    """Fill the node with copies of its most loaded experts; False where impossible."""
    for _ in range(int(nodes.slots[node] - copies[:, node].sum())):
        here, all_copies = copies[:, node], copies.sum(axis=1)
        each = loads / all_copies
        fits = (here > 0) & (here < nodes.gpus[node])
        if not fits.any():  # every expert here is on every GPU: one from elsewhere
            fits = here == 0
        if not fits.any():
            return False
        own = np.where(here == all_copies, 1.0, ELSEWHERE_TOO)
        copies[int(np.where(fits, each * own, -1.0).argmax()), node] += 1
    return int(copies[:, node].sum()) == int(nodes.slots[node])


def taken(copies: Ints, nodes: Nodes, *, rule: Dispatch) -> tuple[Floats, Floats]:
    """[experts, nodes]: the share of a copy, and the additional share of the node's lowest copy."""
    total = copies.sum(axis=1, keepdims=True)
    gpus = int(nodes.gpus.sum())
    several = (copies.max(axis=1, keepdims=True) < total) & (rule is Dispatch.NEAREST)
    far = 1.0 - ((copies > 0) * nodes.sources).sum(axis=1, keepdims=True)
    each = np.where(several, 1.0 / gpus + far / total, 1.0 / total)
    lowest = np.where(several & (copies > 0), (nodes.gpus - copies) / gpus, 0.0)
    return np.broadcast_to(each, copies.shape), lowest
