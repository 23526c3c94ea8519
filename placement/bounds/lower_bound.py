"""The lower bound of the imbalance: no legal placement of these slots is below it; and how more slots lower it.

Engines need equal slots, so advice adds one slot to every GPU per step.  A slot holds one expert of every layer, so n
more slots cost n x layers x expert_bytes on each GPU.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fleet.documents import RuleError
from placement.arrays import MAX_SLOTS, Floats, Ints
from placement.dispatch import Dispatch
from placement.layout import Layout
from placement.validation import check_capacity

if TYPE_CHECKING:  # compiled code
    from placement.bounds.two_slot import TwoSlotCase

FEW_SLOTS = 2  # per GPU: replica counts and pairing decide; with more slots the quick bound is nearly reached
STEPS = 600  # of the search for prices, per ceiling
TOLERANCE = 5e-4  # of the even load: the end of the bisection
TARGET = 1.01  # of the mean bound, for advice
MAX_STEPS = 8


def lower_bound(tokens: Floats, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL) -> Floats:
    """[layers]: lower bounds of the imbalance, by speed."""
    check_capacity(experts=tokens.shape[1], layout=layout)
    bounds = quick_bound(tokens, layout=layout, rule=rule)
    return two_slot_bound(tokens, layout=layout, proven=bounds) if has_two_slots(layout, rule) else bounds


@dataclass(frozen=True, slots=True)
class Step:
    """The bound for one number of slots."""

    slots: int  # of one layer, on all GPUs
    bound_mean: float  # over layers
    extra_bytes_per_gpu: int  # for all layers, beyond the present slots


def redundancy_advice(
    tokens: Floats,
    *,
    layout: Layout,
    expert_bytes: int,
    rule: Dispatch = Dispatch.EQUAL,
    target: float = TARGET,
    max_steps: int = MAX_STEPS,
) -> Step:
    """The fewest slots whose mean bound meets the target, or the most that steps reach.

    For loads [layers, experts]; `expert_bytes`: the weights of one expert of one layer.
    """
    RuleError.raise_for(() if target >= 1 else [(("target",), f"must be at least 1, got {target:g}")])
    layers, experts = tokens.shape
    step = Step(layout.slots, float(lower_bound(tokens, layout=layout, rule=rule).mean()), 0)
    for more in range(1, max_steps + 1):
        larger = replace(layout, slots_of_gpu=layout.slots_of_gpu + more)
        if step.bound_mean <= target or larger.slots > MAX_SLOTS or int(larger.slots_of_gpu.max()) > experts:
            break
        bound = lower_bound(tokens, layout=larger, rule=rule)
        step = Step(larger.slots, float(bound.mean()), more * layers * expert_bytes)
    return step


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
    cases, counts = two_slot_cases(tokens, layout=layout)
    return np.array([_proven(*layer) for layer in zip(cases, counts, proven.tolist(), strict=True)])


def two_slot_cases(tokens: Floats, *, layout: Layout) -> tuple[list["TwoSlotCase"], Ints]:
    """The case of each layer, and greedy replica counts [layers, experts]."""
    from placement.bounds.two_slot import TwoSlotCase  # noqa: PLC0415 - compiled code

    weights, singles = _parts(tokens) * layout.gpus, int((layout.slots_of_gpu == 1).sum())
    max_copies = min(layout.gpus, layout.slots - tokens.shape[1] + 1)
    cases = [TwoSlotCase(layer, layout.slots, singles, max_copies) for layer in weights]
    return cases, greedy_counts(weights, slots=layout.slots, max_copies=max_copies)


def _proven(case: "TwoSlotCase", counts: Ints, low: float) -> float:
    """Bisect between the proven bound and the load that the counts reach."""
    from placement.bounds.two_slot import is_infeasible  # noqa: PLC0415 - compiled code

    reached = paired_max_load(case.weights, counts, singles=case.singles)
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


def greedy_counts(weights: Floats, *, slots: int, max_copies: int) -> Ints:
    """[layers, experts]: one copy each, then repeatedly one more of the expert whose copies weigh most."""
    counts = np.ones(weights.shape, dtype=np.int64)
    rows, copies = np.arange(len(weights)), weights.copy()
    for _ in range(slots - weights.shape[1]):
        hottest = copies.argmax(axis=1)
        counts[rows, hottest] += 1
        now = counts[rows, hottest]
        copies[rows, hottest] = np.where(now < max_copies, weights[rows, hottest] / now, -1.0)
    return counts


def paired_max_load(weights: Floats, counts: Ints, *, singles: int) -> float:
    """The maximum load of one layer: the heaviest copies alone, the others paired, heaviest with lightest."""
    copies = np.sort(np.repeat(weights / counts, counts))
    paired = copies[: len(copies) - singles]
    together = paired + paired[::-1]
    return float(max(copies[-1], together.max(initial=0.0)))
