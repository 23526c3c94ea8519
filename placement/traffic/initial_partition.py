"""The initial nodes of experts before annealing, and the inputs of annealing.

docs/explanation/placement/traffic.md.  Groups of experts that tokens use together stay together: with group-limited
routing whole groups save most traffic.  Where groups do not divide over nodes, all experts are cut in the order of
their groups where the loads require it.

Under `nearest` an expert everywhere saves what tokens pay for its node alone.  Copies on only some nodes save less
than their part, because tokens of all other nodes go to any of them.  So an expert has as few copies as its load
needs, where most of its tokens go.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placement.arrays import Experts, Flags, Floats, Ints
from placement.dispatch import Dispatch
from placement.layout import Layout

RAISE = 1.05  # of the load limit of a copy, when slots are too few
EVERYWHERE, SPREAD = -1, -2  # instead of a home node
CROSSING = 0.5  # of a token's experts: the estimated cost of moving load from a full node to another
HOT = 0.3  # of a node's part of the load, by experts of several copies: above it the node gets no more if avoidable
FULL = 0.7  # of a node's part of the load: above it the node counts as full
Counts = npt.NDArray[np.int32]
SCALE = 4096.0  # whole numbers per unit of cost
MAX_SUM = 2.0**30


@dataclass(frozen=True, eq=False)
class Start:
    home: Ints  # [experts]: a node, EVERYWHERE or SPREAD
    copies: Ints  # [experts, nodes]: of those that are spread
    least: Ints  # [experts]: slots on one node

    def same_as(self, other: "Start") -> bool:
        """Whether annealing would do the same from both."""
        mine, theirs = (vars(self), vars(other))
        return all(np.array_equal(mine[name], theirs[name]) for name in mine)


def initial_start(
    loads: Floats, trace: Experts, *, groups: int, cost: Floats, layout: Layout, rule: Dispatch, carried: float
) -> Start:
    """For loads that add up to 1; a copy carries up to `carried` of a GPU's part if slots allow.

    `groups` of experts; `cost` by node.
    """
    if rule is Dispatch.NEAREST and layout.nodes > 1:
        return _apart(loads, trace, groups=groups, cost=cost, layout=layout, carried=carried)
    least, too_hot = needed(
        loads, carried=carried, layout=layout, max_copies=int(np.bincount(layout.node_of_gpu).min())
    )
    copies = spread(loads, np.flatnonzero(too_hot), least, carried=carried, layout=layout)
    fixed = copies.sum(axis=1) > 0
    least[fixed] = 0
    home = grouped(np.where(fixed, 0.0, loads), groups=groups, layout=layout)
    home[fixed] = SPREAD
    return Start(home, copies, np.maximum(least, 1))


def _apart(loads: Floats, trace: Experts, *, groups: int, cost: Floats, layout: Layout, carried: float) -> Start:
    """The start in which no expert has two copies on a node, except those with more copies than there are nodes."""
    nodes = layout.nodes
    counts, _ = needed(loads, carried=carried, layout=layout, max_copies=layout.gpus)
    home = grouped(loads, groups=groups, layout=layout)
    share = np.bincount(home, weights=loads, minlength=nodes) * nodes
    saved = saved_everywhere(trace, home, cost)
    saved += CROSSING * trace.shape[1] * loads * np.maximum(0.0, share[home] - FULL)
    roams = (counts <= nodes) & (loads * np.bincount(layout.node_of_gpu).max() <= carried)
    free = layout.slots - int(counts.sum())
    wide = everywhere(np.where(roams, saved, 0.0), counts, slots=free, nodes=nodes)
    counts[wide] = nodes
    counts = _filled_up(counts, loads, layout)
    single = counts == 1
    home = grouped(np.where(single, loads, 0.0), groups=groups, layout=layout)
    copies = np.zeros((len(loads), nodes), dtype=np.int64)
    taken = np.zeros(nodes)
    for expert in np.argsort(-loads, kind="stable"):
        if single[expert] or expert in wide:
            continue
        met = _visits(trace, home, int(expert), nodes)
        copies[expert] = _dealt(int(counts[expert]), np.where(taken < HOT, met, -taken), layout)
        taken += copies[expert] * loads[expert] / counts[expert] * nodes
    home[np.logical_not(single)] = SPREAD
    home[wide] = EVERYWHERE
    return Start(home, copies, np.ones(len(loads), dtype=np.int64))


def _filled_up(counts: Ints, loads: Floats, layout: Layout) -> Ints:
    """[experts]: copies that fill all slots: one more of the hottest that fits on another node."""
    counts = counts.copy()
    for _ in range(layout.slots - int(counts.sum())):
        fits = counts < layout.nodes
        if not fits.any():
            break
        counts[int(np.where(fits, loads / counts, -1.0).argmax())] += 1
    return counts


def _visits(trace: Experts, home: Ints, expert: int, nodes: int) -> Floats:
    """[nodes]: the number of an expert's tokens that visit the node for others, with a bonus for its own home."""
    others = home[trace[(trace == expert).any(axis=1)]]
    return np.array([(others == node).any(axis=1).sum() for node in range(nodes)], dtype=np.float64)


def _dealt(count: int, wanted: Floats, layout: Layout) -> Ints:
    """[nodes]: copies, one on each node before any has two, most wanted nodes first."""
    capacity = np.bincount(layout.node_of_gpu, minlength=layout.nodes)
    copies = np.zeros(layout.nodes, dtype=np.int64)
    for _ in range(count):
        open_to = copies < capacity
        least = copies[open_to].min()
        copies[int(np.where(open_to & (copies == least), wanted, -np.inf).argmax())] += 1
    return copies


def groups_of(trace: Experts, *, experts: int) -> int:
    """The number of equal groups that limit routing, from the experts [tokens, k] of one layer; 1 without a limit."""
    found, tightest = 1, 1.0
    for groups in range(2, experts // 2 + 1):
        if experts % groups:
            continue
        used = np.zeros((len(trace), groups), dtype=np.bool_)
        np.put_along_axis(used, trace.astype(np.int64) // (experts // groups), values=True, axis=1)
        part = int(used.sum(axis=1).max()) / min(trace.shape[1], groups)
        if part < tightest:
            found, tightest = groups, part
    return found


def needed(loads: Floats, *, carried: float, layout: Layout, max_copies: int) -> tuple[Ints, Flags]:
    """[experts]: up to `max_copies` copies that keep each within `carried` of a GPU's part; whether even those fail."""
    gpus = layout.gpus
    counts = np.arange(1, max_copies + 1)
    while True:
        enough = loads[:, np.newaxis] / counts <= carried / gpus
        least = np.where(enough.any(axis=1), counts[enough.argmax(axis=1)], max_copies).astype(np.int64)
        if least.sum() <= layout.slots:
            too_hot: Flags = np.logical_not(enough.any(axis=1))
            return least, too_hot
        carried *= RAISE


def spread(loads: Floats, experts: Ints, least: Ints, *, carried: float, layout: Layout) -> Ints:
    """[experts, nodes]: copies of experts too hot for any node, dealt evenly as far as slots allow."""
    gpus_of_node = np.bincount(layout.node_of_gpu)
    copies = np.zeros((len(loads), layout.nodes), dtype=np.int64)
    free = layout.slots - int(least.sum())
    for expert in experts[np.argsort(-loads[experts], kind="stable")]:
        wanted = min(int(np.ceil(loads[expert] * layout.gpus / carried)), layout.gpus)
        count = min(wanted, int(least[expert]) + free)
        free -= count - int(least[expert])
        for _ in range(count):
            capacity = copies[expert] < gpus_of_node
            node = int(
                np.argmin(np.where(capacity, copies[expert] * layout.slots + copies.sum(axis=0), np.iinfo(int).max))
            )
            copies[expert, node] += 1
    return copies


def grouped(loads: Floats, *, groups: int, layout: Layout) -> Ints:
    """[experts]: a node each."""
    experts, nodes = len(loads), layout.nodes
    if groups > 1 and groups % nodes == 0:
        node_of_group = _by_load(loads.reshape(groups, -1).sum(axis=1), groups // nodes, layout)
        node_of: Ints = np.repeat(node_of_group, experts // groups)
        return node_of
    if groups > 1:
        bounds = np.cumsum(np.bincount(layout.node_of_gpu, weights=layout.shares))
        middle = (np.cumsum(loads) - loads / 2) / loads.sum()
        cut: Ints = np.minimum(np.searchsorted(bounds, middle), nodes - 1).astype(np.int64)
        return cut
    return _by_load(loads, -(-experts // nodes), layout)


def _by_load(loads: Floats, max_items: int, layout: Layout) -> Ints:
    """[items]: heaviest first to the least busy node that holds fewer than `max_items`."""
    shares = np.bincount(layout.node_of_gpu, weights=layout.shares)
    load, count, node_of = np.zeros(layout.nodes), np.zeros(layout.nodes), np.zeros(len(loads), dtype=np.int64)
    for item in np.argsort(-loads, kind="stable"):
        node = int(np.argmin(np.where(count < max_items, (load + loads[item]) / shares, np.inf)))
        node_of[item] = node
        load[node] += loads[item]
        count[node] += 1
    return node_of


def saved_everywhere(trace: Experts, home: Ints, cost: Floats) -> Floats:
    """[experts]: what one token of the trace pays for its node and no other expert, on average; `cost` by node."""
    tokens, nodes = len(trace), len(cost)
    node = home[trace]
    hits = np.bincount((np.arange(tokens)[:, np.newaxis] * nodes + node).ravel(), minlength=tokens * nodes)
    alone = np.take_along_axis(hits.reshape(tokens, nodes), node, axis=1) == 1
    return np.bincount(trace[alone], weights=cost[node[alone]], minlength=len(home)) / tokens


def everywhere(saved: Floats, least: Ints, *, slots: int, nodes: int) -> Ints:
    """The experts to put on every node, for `slots` more than all need; those that save most per slot."""
    extra = np.maximum(nodes - least, 0)
    chosen = []
    for expert in np.argsort(-saved / np.maximum(extra, 0.5), kind="stable"):
        if extra[expert] <= slots and saved[expert] > 0:
            chosen.append(int(expert))
            slots -= int(extra[expert])
    return np.array(sorted(chosen), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Nodes:
    slots: Ints  # [nodes]
    gpus: Ints  # [nodes]
    shares: Floats  # [nodes]: of the total speed
    sources: Floats  # [nodes]: of all tokens

    @classmethod
    def of(cls, layout: Layout) -> "Nodes":
        """The sums over each node's GPUs."""
        gpus = np.bincount(layout.node_of_gpu, minlength=layout.nodes).astype(np.int64)
        slots = np.bincount(layout.node_of_gpu, weights=layout.slots_of_gpu, minlength=layout.nodes).astype(np.int64)
        shares = np.bincount(layout.node_of_gpu, weights=layout.shares, minlength=layout.nodes).astype(np.float64)
        return cls(slots, gpus, shares, gpus / layout.gpus)


def with_capacity(start: Start, loads: Floats, nodes: Nodes) -> Ints | None:
    """[experts]: homes within all nodes' slots, after moves of the least loaded experts; None where impossible."""
    home = start.home.copy()
    for _ in range(len(home)):
        free = nodes.slots - used(home, start, nodes)
        node = int(free.argmin())
        if free[node] >= 0:
            return home
        movable = (home == node) & (start.least <= free.max())
        if not movable.any():
            return None
        home[int(np.where(movable, loads, np.inf).argmin())] = int(free.argmax())
    return None


def used(home: Ints, start: Start, nodes: Nodes) -> Ints:
    """[nodes]: slots."""
    at_home = home >= 0
    taken = np.bincount(home[at_home], weights=start.least[at_home], minlength=len(nodes.slots)).astype(np.int64)
    everywhere = int((home == EVERYWHERE).sum())
    found: Ints = taken + everywhere + start.copies[home == SPREAD].sum(axis=0)
    return found


def carried(home: Ints, start: Start, loads: Floats, nodes: Nodes, *, rule: Dispatch) -> Floats:
    """[nodes]: load."""
    at_home, spread = home >= 0, home == SPREAD
    found = np.bincount(home[at_home], weights=loads[at_home], minlength=len(nodes.slots)).astype(np.float64)
    found += nodes.sources * loads[home == EVERYWHERE].sum()
    copies = start.copies[spread]
    near = (copies > 0) & (rule is Dispatch.NEAREST)
    far = 1.0 - (near * nodes.sources).sum(axis=1, keepdims=True)
    parts = near * nodes.sources + far * copies / copies.sum(axis=1, keepdims=True)
    found += (loads[spread, np.newaxis] * parts).sum(axis=0)
    return found


def weights(trace: Experts, home: Ints, start: Start, cost: Floats, *, scale: float, rule: Dispatch) -> Counts:
    """[tokens, nodes], W of `annealing`: `cost` [sources, nodes] weighted by source, times `scale`, whole."""
    spread = (home == SPREAD)[trace]
    rows = np.flatnonzero(spread.any(axis=1))
    found = np.tile(cost.sum(axis=0), (len(trace), 1))
    if len(rows):
        share = start.copies / np.maximum(start.copies.sum(axis=1, keepdims=True), 1)
        stays = (share > 0) & (rule is Dispatch.NEAREST)
        misses = np.where(stays[:, :, np.newaxis], 1.0, 1.0 - share[:, np.newaxis, :])  # by source and node
        missed = np.ones((len(rows), *cost.shape))
        for nth in range(trace.shape[1]):
            wide = np.flatnonzero(spread[rows, nth])
            missed[wide] *= misses[trace[rows[wide], nth]]
        found[rows] = (missed * cost).sum(axis=1)
    return np.rint(scale * found).astype(np.int32)
