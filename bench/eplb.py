"""EPLB, the published baseline of expert placement, written again from its description.

Source: `deepseek-ai/EPLB`, `eplb.py` (read November 2026).  Three greedy steps, in 32-bit floats like the original, so
that ties break the same way:

1. Groups to nodes: the heaviest group first to the lightest node that has room; each node takes the same number.
2. Replicas, node by node: one more, repeatedly, of the expert with the highest load per replica.
3. Replicas to GPUs of the node: again the heaviest first to the lightest GPU that has room.

The hierarchical policy needs groups that divide evenly over nodes.  Otherwise, or with one group and one node, all GPUs
form one node: the global policy.  Neither avoids two replicas of an expert on one GPU.
"""

import numpy as np
import numpy.typing as npt

from placement.arrays import Floats, Ints

_Singles = npt.NDArray[np.float32]


def eplb(tokens: Floats, *, slots: int, groups: int, nodes: int, gpus: int) -> Ints:
    """The published placement [layers, slots] for loads [layers, experts]: hierarchical where that is possible."""
    if groups % nodes:
        groups = nodes = 1
    weights = tokens.astype(np.float32)
    layers, experts = weights.shape
    expert_of_place = _by_node(weights, groups=groups, nodes=nodes)
    of_node = np.take_along_axis(weights, expert_of_place, axis=1).reshape(layers * nodes, experts // nodes)
    place_of_copy, counts = _replicated(of_node, slots=slots // nodes)
    each: _Singles = np.divide(of_node, counts, dtype=np.float32)
    of_copy: _Singles = np.take_along_axis(each, place_of_copy, axis=1)
    slot_of_copy = _packed(of_copy, packs=gpus // nodes)
    place_of_slot = np.empty_like(place_of_copy)
    np.put_along_axis(place_of_slot, slot_of_copy, place_of_copy, axis=1)
    first_place = np.arange(0, experts, experts // nodes)[np.newaxis, :, np.newaxis]
    places = (place_of_slot.reshape(layers, nodes, -1) + first_place).reshape(layers, slots)
    return np.take_along_axis(expert_of_place, places, axis=1)


def eplb_global(tokens: Floats, *, slots: int, gpus: int) -> Ints:
    """The global policy, whatever the groups."""
    return eplb(tokens, slots=slots, groups=1, nodes=1, gpus=gpus)


def _by_node(weights: _Singles, *, groups: int, nodes: int) -> Ints:
    """[layers, experts]: the experts, group by group, in the order of the nodes that take their groups."""
    layers, experts = weights.shape
    size = experts // groups
    of_group: _Singles = weights.reshape(layers, groups, size).sum(axis=2)
    place_of_group = _packed(of_group, packs=nodes)
    place = (place_of_group[:, :, np.newaxis] * size + np.arange(size)).reshape(layers, experts)
    expert_of_place = np.empty((layers, experts), dtype=np.int64)
    np.put_along_axis(expert_of_place, place, np.arange(experts)[np.newaxis], axis=1)
    return expert_of_place


def _replicated(weights: _Singles, *, slots: int) -> tuple[Ints, Ints]:
    """Of each row's experts: which one each copy is of, and how many copies each has."""
    rows, experts = weights.shape
    of_copy = np.tile(np.arange(slots), (rows, 1))
    counts = np.ones((rows, experts), dtype=np.int64)
    each, row = weights.copy(), np.arange(rows)
    for copy in range(experts, slots):
        hottest = each.argmax(axis=1)
        of_copy[:, copy] = hottest
        counts[row, hottest] += 1
        each[row, hottest] = weights[row, hottest] / counts[row, hottest].astype(np.float32)
    return of_copy, counts


def _packed(weights: _Singles, *, packs: int) -> Ints:
    """Where each row's items go, packs of equal size one behind the other."""
    rows, items = weights.shape
    size = items // packs
    if size == 1:
        return np.tile(np.arange(items), (rows, 1))
    place = np.empty((rows, items), dtype=np.int64)
    carried = np.zeros((rows, packs), dtype=np.float32)
    held = np.zeros((rows, packs), dtype=np.int64)
    row = np.arange(rows)
    for item in np.argsort(-weights, axis=1, kind="stable").T:
        pack = np.where(held < size, carried, np.float32(np.inf)).argmin(axis=1)
        place[row, item] = pack * size + held[row, pack]
        carried[row, pack] += weights[row, item]
        held[row, pack] += 1
    return place
