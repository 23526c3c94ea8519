"""Replica counts and packing in one search, for layouts with few slots per GPU; `joint_balanced` is the entry.

Equal GPUs with at most two slots are paired (`two_slot_search`); other layouts get a local search (`slot_search`).
"""

import numpy as np

from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.bounds.lower_bound import has_two_slots, quick_bound
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.validation import check_capacity, check_slots

PAIR_STEPS = 50  # moves of a copy from expert to expert, per ceiling
PACK_STEPS = 400  # of one copy or two, per ceiling
UNEVEN_STEPS = 1200  # the same for unequal slots, where more can be gained
TOLERANCE = 5e-4  # of the even share: the end of the bisection
FINE = 1e-6  # the same where few slots make it cheap
FEW = 64  # slots: for larger pairings the slot search gained less than 1e-5


def joint_balanced(tokens: Floats, *, layout: Layout, start: Ints | None = None) -> Ints:
    """[layers, slots] for engines that split an expert's tokens evenly; no layer is worse than `start`."""
    experts = tokens.shape[1]
    check_capacity(experts=experts, layout=layout)
    if start is not None:
        check_slots(start, experts=experts, layout=layout)
    proven = quick_bound(tokens, layout=layout)
    begun = balanced(tokens, layout=layout) if start is None else start
    if has_two_slots(layout, Dispatch.EQUAL):
        begun = _paired(tokens, begun, layout=layout, proven=proven, steps=PAIR_STEPS)
        if layout.slots > FEW:
            return begun
    steps = PACK_STEPS if layout.slots_of_gpu.min() == layout.slots_of_gpu.max() else UNEVEN_STEPS
    return _searched(tokens, begun, layout=layout, proven=proven, steps=steps)


def _searched(tokens: Floats, start: Ints, *, layout: Layout, proven: Floats, steps: int) -> Ints:
    from placement.joint.slot_search import search_slots  # noqa: PLC0415 - compiled code

    parts = np.ascontiguousarray(tokens / tokens.sum(axis=1, keepdims=True))
    begun = np.ascontiguousarray(start, dtype=np.int64)
    tolerance = FINE if layout.slots <= FEW else TOLERANCE
    return search_slots(parts, begun, layout.arrays, proven, steps, tolerance)


def _paired(tokens: Floats, start: Ints, *, layout: Layout, proven: Floats, steps: int) -> Ints:
    """Layers that pairing does not make more even stay unchanged."""
    from placement.joint.two_slot_search import best_pairs  # noqa: PLC0415 - compiled code

    pairs, peaks = best_pairs(tokens, layout=layout, proven=proven, steps=steps)
    gains = peaks < imbalance(start, tokens, layout=layout).per_layer
    return np.where(gains[:, np.newaxis], _slots(pairs, layout=layout), start)


def _slots(pairs: Ints, *, layout: Layout) -> Ints:
    """[layers, slots] from the experts on GPUs sorted by their slots."""
    singles = int((layout.slots_of_gpu == 1).sum())
    first = layout.first_slot[:-1][np.argsort(layout.slots_of_gpu, kind="stable")]
    expert_of_slot = np.empty((len(pairs), layout.slots), dtype=np.int64)
    expert_of_slot[:, first] = pairs[:, :, 0]
    expert_of_slot[:, first[singles:] + 1] = pairs[:, singles:, 1]
    return expert_of_slot
