"""The bound that every placement reports: no legal placement of these slots has a fullest GPU below it."""

import numpy as np

from placement.arrays import Floats, Ints
from placement.bounds.counts import greedy_counts, paired_max_load
from placement.bounds.hall_condition import TwoSlotCase
from placement.dispatch import Dispatch
from placement.layout import Layout
from placement.validation import check_capacity

FEW_SLOTS = 2  # per GPU: replica counts and pairing decide; with more the quick bound is nearly met
STEPS = 600  # of the search for prices, per ceiling
TOLERANCE = 5e-4  # of the even load: where the search for the ceiling stops


def lower_bound(tokens: Floats, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL) -> Floats:
    """[layers]: of the fullest GPU over the even share, by speed, as `placement.imbalance` counts it."""
    check_capacity(experts=tokens.shape[1], layout=layout)
    bounds = quick_bound(tokens, layout=layout, rule=rule)
    return two_slot_bound(tokens, layout=layout, proven=bounds) if has_two_slots(layout, rule) else bounds


def quick_bound(tokens: Floats, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL) -> Floats:
    """By the hottest copies and their company alone, for any layout and rule."""
    from placement.bounds.max_load import max_load_bounds  # noqa: PLC0415 - compiled code

    shares, slots, gpus = _gpu_classes(layout)
    return max_load_bounds(_parts(tokens), shares, slots, gpus, int(slots.max()), int(rule is not Dispatch.NEAREST))


def has_two_slots(layout: Layout, rule: Dispatch) -> bool:
    """Whether the bound by pairing holds: even split, GPUs alike, at most two slots on each."""
    alike = float(layout.speeds.min()) == float(layout.speeds.max())
    return rule is not Dispatch.NEAREST and alike and int(layout.slots_of_gpu.max()) <= FEW_SLOTS


def two_slot_bound(tokens: Floats, *, layout: Layout, proven: Floats) -> Floats:
    """From a bound already proven up to what replica counts and pairing together allow."""
    weights, singles = _parts(tokens) * layout.gpus, int((layout.slots_of_gpu == 1).sum())
    most = min(layout.gpus, layout.slots - tokens.shape[1] + 1)
    counts = greedy_counts(weights, slots=layout.slots, most=most)
    reached = [paired_max_load(*layer, singles=singles) for layer in zip(weights, counts, strict=True)]
    case = [TwoSlotCase(layer, layout.slots, singles, most) for layer in weights]
    return np.array([_proven(*layer) for layer in zip(case, proven.tolist(), reached, strict=True)])


def _proven(case: TwoSlotCase, low: float, reached: float) -> float:
    """Bisect between what is proven and what was reached."""
    from placement.bounds.two_slot import is_infeasible  # noqa: PLC0415 - compiled code

    while reached - low > TOLERANCE:
        ceiling = (low + reached) / 2
        if is_infeasible(case, ceiling, STEPS):
            low = ceiling
        else:
            reached = ceiling
    return low


def _parts(tokens: Floats) -> Floats:
    parts: Floats = np.ascontiguousarray(tokens / tokens.sum(axis=1, keepdims=True), dtype=np.float64)
    return parts


def _gpu_classes(layout: Layout) -> tuple[Floats, Ints, Ints]:
    """GPUs that are alike, as one: their share of all speed, their slots, how many they are."""
    found: dict[tuple[float, int], int] = {}
    for kind in zip(layout.shares.tolist(), layout.slots_of_gpu.tolist(), strict=True):
        found[kind] = found.get(kind, 0) + 1
    return (
        np.array([share for share, _ in found]),
        np.array([slots for _, slots in found], dtype=np.int64),
        np.array(list(found.values()), dtype=np.int64),
    )
