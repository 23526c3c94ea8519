"""The copies that GPUs load in a change of placement, and orders of slots and GPUs that avoid unnecessary loads.

A GPU loads an expert of a layer when it holds it afterwards and not before.  The slot on the GPU does not count,
because engines copy within a GPU at memory speed or not at all.

docs/explanation/placement/migration.md has the objective of relabelling, and which GPUs may be exchanged.  Under
SGLang's nearest rule, which prefers a node's first copy by slot, GPUs that share an expert with another of their node
keep their position.
"""

from collections import Counter

import numpy as np

from placement.arrays import Flags, Floats, Ints
from placement.dispatch import Dispatch
from placement.layout import Layout


def loads_copy(before: Ints, after: Ints, *, layout: Layout) -> Ints:
    """[layers, slots]: 1 where the slot's GPU must load its expert of `after`."""
    base = int(max(before.max(), after.max())) + 1
    rows = np.arange(len(before), dtype=np.int64)[:, np.newaxis] * layout.gpus * base
    held, wanted = (rows + layout.gpu_of_slot * base + experts for experts in (before, after))
    missing: Ints = np.isin(wanted, held, invert=True).astype(np.int64)
    return missing


def moved_per_layer(before: Ints, after: Ints, *, layout: Layout) -> Ints:
    """[layers]: copies to load."""
    moved: Ints = loads_copy(before, after, layout=layout).sum(axis=1)
    return moved


def moved_copies(before: Ints, after: Ints, *, layout: Layout) -> int:
    """Copies to load in all layers together."""
    return int(moved_per_layer(before, after, layout=layout).sum())


def in_kept_slots(after: Ints, before: Ints, *, layout: Layout) -> Ints:
    """The same placement with slots ordered per GPU so that every remaining copy keeps its slot."""
    ordered = after.copy()
    for layer, gpu in np.argwhere(_differs(before, after, layout)):
        slots = slice(layout.first_slot[gpu], layout.first_slot[gpu + 1])
        ordered[layer, slots] = _ordered(after[layer, slots].tolist(), before[layer, slots].tolist())
    return ordered


def overlaps(plan: Ints, current: Ints, *, layout: Layout) -> Floats:
    """[layers, GPUs, GPUs]: copies that the plan's first GPU shares with the current second one."""
    experts = int(max(plan.max(), current.max())) + 1
    held = np.zeros((2, len(plan), layout.gpus, experts), dtype=np.float32)
    for side, placed in enumerate((plan, current)):
        held[side, np.arange(len(plan))[:, np.newaxis], layout.gpu_of_slot, placed] = 1.0
    return np.ascontiguousarray(held[0] @ held[1].transpose(0, 2, 1), dtype=np.float64)


def _differs(before: Ints, after: Ints, layout: Layout) -> Ints:
    """[layers, GPUs]: not 0 where the expert of any slot differs."""
    differs: Ints = np.add.reduceat((before != after).astype(np.int64), layout.first_slot[:-1], axis=1)
    return differs


def _ordered(wanted: list[int], held: list[int]) -> list[int]:
    stays = Counter(wanted) & Counter(held)  # the number on both: other planners' placements may hold one twice
    coming = iter((Counter(wanted) - stays).elements())
    ordered = []
    for expert in held:
        stay = stays[expert] > 0
        stays[expert] -= stay
        ordered.append(expert if stay else next(coming))
    return ordered


def relabelled(plan: Ints, current: Ints, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL) -> Ints:
    """The renumbered plan."""
    shared = overlaps(plan, current, layout=layout)
    if rule is Dispatch.NEAREST:
        renamed = _by_node(shared, _sharing(plan, layout), layout)
    else:
        kinds = [(float(speed), int(slots)) for speed, slots in zip(layout.speeds, layout.slots_of_gpu, strict=True)]
        renamed = _assigned(shared, np.array([[one == other for other in kinds] for one in kinds]))
    return in_kept_slots(_renamed(plan, renamed, layout), current, layout=layout)


def _assigned(kept: Floats, allowed: Flags) -> Ints:
    """[layers, n]: the column of each row; maximises `kept` [layers, n, n]; `allowed` broadcasts to it."""
    from placement.migration.assignment import assigned  # noqa: PLC0415 - compiles on import

    forbidden = kept.max() * kept.shape[1] + 1.0
    return assigned(np.ascontiguousarray(np.where(allowed, kept.max() - kept, forbidden)))


def _by_node(shared: Floats, fixed: Flags, layout: Layout) -> Ints:
    """[layers, GPUs]: the new number of each GPU of the plan."""
    layers = np.arange(len(shared))
    members = [np.flatnonzero(layout.node_of_gpu == node) for node in range(layout.nodes)]
    shapes = [(layout.speeds[gpus].tolist(), layout.slots_of_gpu[gpus].tolist()) for gpus in members]
    alike = np.array([[one == other for other in shapes] for one in shapes])
    kept = np.zeros((len(shared), layout.nodes, layout.nodes))
    within: dict[tuple[int, int], Ints] = {}
    for node, other in np.argwhere(alike).tolist():
        rows, columns = members[node], members[other]
        part = shared[:, rows[:, np.newaxis], columns]
        within[node, other] = _assigned(part, _exchangeable(rows, fixed, layout))
        kept[:, node, other] = np.take_along_axis(part, within[node, other][:, :, np.newaxis], axis=2).sum(axis=(1, 2))
    node_of = _assigned(kept, alike)
    renamed = np.empty((len(shared), layout.gpus), dtype=np.int64)
    for (node, other), inner in within.items():
        chosen = layers[node_of[:, node] == other]
        renamed[chosen[:, np.newaxis], members[node]] = members[other][inner[chosen]]
    return renamed


def _exchangeable(rows: Ints, fixed: Flags, layout: Layout) -> Flags:
    """[layers, n, n]: the positions within its node that each GPU may take."""
    speeds, slots = layout.speeds[rows], layout.slots_of_gpu[rows]
    alike = (speeds[:, np.newaxis] == speeds) & (slots[:, np.newaxis] == slots)
    held = fixed[:, rows, np.newaxis] | fixed[:, np.newaxis, rows]
    allowed: Flags = np.where(held, np.eye(len(rows), dtype=bool), alike)
    return allowed


def _sharing(plan: Ints, layout: Layout) -> Flags:
    """[layers, GPUs]: whether another GPU of the node holds an expert that it holds too."""
    shared = overlaps(plan, plan, layout=layout)
    near = layout.node_of_gpu[:, np.newaxis] == layout.node_of_gpu
    np.fill_diagonal(near, val=False)
    sharing: Flags = ((shared > 0) & near).any(axis=2)
    return sharing


def _renamed(plan: Ints, renamed: Ints, layout: Layout) -> Ints:
    """The plan with each GPU's copies on its new number."""
    result = np.empty_like(plan)
    within = np.arange(layout.slots) - layout.first_slot[layout.gpu_of_slot]
    slots = layout.first_slot[renamed[:, layout.gpu_of_slot]] + within
    np.put_along_axis(result, slots, plan, axis=1)
    return result
