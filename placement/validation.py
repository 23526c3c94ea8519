"""The rules of a legal placement: each expert at least once, never twice on one GPU; and the contiguous placement."""

from collections.abc import Iterator

import numpy as np

from fleet.documents import RuleError, Violation
from placement.arrays import Ints
from placement.layout import Layout


def check_capacity(*, experts: int, layout: Layout) -> None:
    """RuleError where the experts do not fit the slots."""
    RuleError.raise_for(_capacity_violations(experts, layout))


def check_slots(expert_of_slot: Ints, *, experts: int, layout: Layout) -> None:
    """RuleError for a placement [layers, slots] that no engine can load or that wastes memory."""
    RuleError.raise_for(_violations(expert_of_slot, experts, layout))
    RuleError.raise_for(_duplicate_violations(expert_of_slot, layout))


def check_loaded(expert_of_slot: Ints, *, experts: int, layout: Layout) -> None:
    """RuleError for a map that no engine can hold; other planners may place an expert twice on one GPU."""
    RuleError.raise_for(_violations(expert_of_slot, experts, layout))


def contiguous(*, layers: int, experts: int, layout: Layout) -> Ints:
    """The placement that engines start with: 0, 1, ... and again from 0.  May repeat an expert on a GPU."""
    return np.tile(np.arange(layout.slots, dtype=np.int64) % experts, (layers, 1))


def copies(expert_of_slot: Ints, *, experts: int) -> Ints:
    """[layers, experts]: the slots that hold each expert."""
    layers = len(expert_of_slot)
    rows = np.arange(layers)[:, np.newaxis] * experts
    return np.bincount((expert_of_slot + rows).ravel(), minlength=layers * experts).reshape(layers, experts)


def _capacity_violations(experts: int, layout: Layout) -> Iterator[Violation]:
    if layout.slots < experts:
        yield ("slots",), f"must be at least the number of experts ({experts}), got {layout.slots}"
    elif (most := int(layout.slots_of_gpu.max())) > experts:
        yield ("slots",), f"a GPU would hold {most} of {experts} experts, so one of them twice"


def _violations(expert_of_slot: Ints, experts: int, layout: Layout) -> Iterator[Violation]:
    if expert_of_slot.ndim != 2 or expert_of_slot.shape[1] != layout.slots:
        yield ("physical_to_logical_map",), f"must be layers x {layout.slots} slots, got {expert_of_slot.shape}"
        return
    if ((expert_of_slot < 0) | (expert_of_slot >= experts)).any():
        yield ("physical_to_logical_map",), f"must name experts from 0 to {experts - 1}"
        return
    yield from missing_violations(expert_of_slot, experts)


def missing_violations(expert_of_slot: Ints, experts: int) -> Iterator[Violation]:
    missing = copies(expert_of_slot, experts=experts) == 0
    if missing.any():
        layer, expert = (int(place) for place in np.argwhere(missing)[0])
        yield ("physical_to_logical_map", layer), f"must hold every expert, {expert} is in no slot"


def _duplicate_violations(expert_of_slot: Ints, layout: Layout) -> Iterator[Violation]:
    for layer, row in enumerate(expert_of_slot):
        places = row * layout.gpus + layout.gpu_of_slot
        if len(np.unique(places)) < len(places):
            yield ("physical_to_logical_map", layer), "must not hold an expert twice on one GPU"
            return
