"""The copies that GPUs load in a change of placement, and slot orders that avoid unnecessary loads.

A GPU loads an expert of a layer when it holds it afterwards and not before.  The slot on the GPU does not count,
because engines copy within a GPU at memory speed or not at all.
"""

from collections import Counter

import numpy as np

from placement.arrays import Floats, Ints
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
