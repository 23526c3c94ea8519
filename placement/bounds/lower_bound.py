"""The lower bound of the imbalance: no legal placement of these slots is below it."""

import numpy as np

from placement.arrays import Floats, Ints
from placement.bounds.hall_condition import TwoSlotCase
from placement.dispatch import Dispatch
from placement.layout import Layout
from placement.validation import check_capacity

FEW_SLOTS = 2  # per GPU: replica counts and pairing decide; with more slots the quick bound is nearly reached
STEPS = 600  # of the search for prices, per ceiling
TOLERANCE = 5e-4  # of the even load: the end of the bisection


def lower_bound(tokens: Floats, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL) -> Floats:
    """[layers]: lower bounds of the imbalance, by speed."""
    check_capacity(experts=tokens.shape[1], layout=layout)
    bounds = quick_bound(tokens, layout=layout, rule=rule)
    return two_slot_bound(tokens, layout=layout, proven=bounds) if has_two_slots(layout, rule) else bounds


def quick_bound(tokens: Floats, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL) -> Floats:
    """[layers]: by the hottest copies and their neighbours alone, for any layout and rule."""
    from placement.bounds.max_load import max_load_bounds  # noqa: PLC0415 - compiled code

    shares, slots, gpus = _gpu_classes(layout)
    return max_load_bounds(_parts(tokens), shares, slots, gpus, int(slots.max()), int(rule is not Dispatch.NEAREST))


def has_two_slots(layout: Layout, rule: Dispatch) -> bool:
    """Whether the two-slot bound applies: even split, equal GPUs, at most two slots on each."""
    alike = float(layout.speeds.min()) == float(layout.speeds.max())
    return rule is not Dispatch.NEAREST and alike and int(layout.slots_of_gpu.max()) <= FEW_SLOTS


def two_slot_bound(tokens: Floats, *, layout: Layout, proven: Floats) -> Floats:
    """Raise a proven bound to what replica counts and pairing together allow."""
    weights, singles = _parts(tokens) * layout.gpus, int((layout.slots_of_gpu == 1).sum())
    most = min(layout.gpus, layout.slots - tokens.shape[1] + 1)
    counts = greedy_counts(weights, slots=layout.slots, most=most)
    reached = [paired_max_load(*layer, singles=singles) for layer in zip(weights, counts, strict=True)]
    case = [TwoSlotCase(layer, layout.slots, singles, most) for layer in weights]
    return np.array([_proven(*layer) for layer in zip(case, proven.tolist(), reached, strict=True)])


def _proven(case: TwoSlotCase, low: float, reached: float) -> float:
    """Bisect between the proven bound and the best known load."""
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
    """Classes of equal GPUs: share of the total speed, slots, and number of GPUs."""
    found: dict[tuple[float, int], int] = {}
    for kind in zip(layout.shares.tolist(), layout.slots_of_gpu.tolist(), strict=True):
        found[kind] = found.get(kind, 0) + 1
    return (
        np.array([share for share, _ in found]),
        np.array([slots for _, slots in found], dtype=np.int64),
        np.array(list(found.values()), dtype=np.int64),
    )


def greedy_counts(weights: Floats, *, slots: int, most: int) -> Ints:
    """[layers, experts]: one copy each, then repeatedly one more of the expert whose copies weigh most."""
    counts = np.ones(weights.shape, dtype=np.int64)
    rows, copies = np.arange(len(weights)), weights.copy()
    for _ in range(slots - weights.shape[1]):
        hottest = copies.argmax(axis=1)
        counts[rows, hottest] += 1
        now = counts[rows, hottest]
        copies[rows, hottest] = np.where(now < most, weights[rows, hottest] / now, -1.0)
    return counts


def paired_max_load(weights: Floats, counts: Ints, *, singles: int) -> float:
    """The maximum load of one layer: the heaviest copies alone, the others paired, heaviest with lightest."""
    copies = np.sort(np.repeat(weights / counts, counts))
    paired = copies[: len(copies) - singles]
    together = paired + paired[::-1]
    return float(max(copies[-1], together.max(initial=0.0)))
