"""The moves of one layer as steps; after each the layer is a legal placement, no less even than before.

A slot may be overwritten when its expert has another live copy and the new one is not on that GPU yet: the layer stays
complete at every instant (make before break).  Slots in a ring of dependencies, as in an exchange of two single copies,
change together: GPUs receive the copies beside the serving ones and switch at once, which needs room.  Steps that would
make the layer less even join the next ones, while the limit per step allows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.migration.moves import loads_copy

WORSE = 1e-12


@dataclass(frozen=True, slots=True)
class Step:
    """Slots of one layer that change together."""

    slots: tuple[int, ...]
    copies: tuple[int, ...]  # slots that receive an expert from another GPU
    beside: bool  # the new copies need room beside the old ones
    imbalance: float  # of the layer, after the step


def steps_of_layer(
    before: Ints, after: Ints, tokens: Floats, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL, most_copies: int
) -> list[Step]:
    """From row to row [slots] under loads [experts]; a ring longer than `most_copies` is still one step."""
    row, at = before.copy(), _even(before, tokens, layout, rule)
    loads = set(np.flatnonzero(loads_copy(before[np.newaxis], after[np.newaxis], layout=layout)[0]).tolist())
    left = set(np.flatnonzero(before != after).tolist())
    steps = []
    while left:
        joined: list[int] = []
        start, reached = row.copy(), np.inf
        while left and reached > at + WORSE:
            group, value = _best(row, after, left, tokens, layout=layout, rule=rule)
            if joined and len(loads & {*joined, *group}) > most_copies:
                break
            joined += group
            left -= set(group)
            row[list(group)] = after[list(group)]
            reached = value
        copies = tuple(slot for slot in joined if slot in loads)
        steps.append(Step(tuple(joined), copies, needs_room(joined, start), reached))
        at = reached
    return steps


def needs_room(joined: Sequence[int], row: Ints) -> bool:
    """Whether the slots hold all live copies of an expert, so that none may leave before the new one arrives."""
    rest = np.delete(row, joined)
    return not np.isin(row[list(joined)], rest).all()


def _best(
    row: Ints, after: Ints, left: set[int], tokens: Floats, *, layout: Layout, rule: Dispatch
) -> tuple[tuple[int, ...], float]:
    """The group of slots that leaves the layer most even, and its imbalance; slots that may change alone first."""
    alone = [slot for slot in sorted(left) if _may_go(row, after, slot, layout)]
    groups: list[tuple[int, ...]] = [(slot,) for slot in alone] or list(_rings(row, after, left, layout))
    trials = np.repeat(row[np.newaxis], len(groups), axis=0)
    for trial, group in zip(trials, groups, strict=True):
        trial[list(group)] = after[list(group)]
    weights = np.repeat(tokens[np.newaxis], len(groups), axis=0)
    values = imbalance(trials, weights, layout=layout, rule=rule).per_layer
    best = int(values.argmin())
    return groups[best], float(values[best])


def _may_go(row: Ints, after: Ints, slot: int, layout: Layout) -> bool:
    gpu = layout.gpu_of_slot[slot]
    here = row[layout.first_slot[gpu] : layout.first_slot[gpu + 1]]
    return bool((row == row[slot]).sum() > 1 and after[slot] not in here)


def _rings(row: Ints, after: Ints, left: set[int], layout: Layout) -> Iterator[tuple[int, ...]]:
    """For each remaining slot, the slots that must change with it for a complete layer without duplicates."""
    found = set()
    for slot in sorted(left):
        group = _closed([slot], row, after, left, layout)
        if group not in found:
            found.add(group)
            yield group


def _closed(group: list[int], row: Ints, after: Ints, left: set[int], layout: Layout) -> tuple[int, ...]:
    """Add slots until the group may change."""
    while True:
        trial = row.copy()
        trial[group] = after[group]
        more = _missing_or_twin(trial, row, after, left - set(group), layout=layout, group=group)
        if more is None:
            return tuple(sorted(group))
        group = [*group, more]


def _missing_or_twin(
    trial: Ints, row: Ints, after: Ints, others: Iterable[int], *, layout: Layout, group: Sequence[int]
) -> int | None:
    """A slot whose change restores an expert that the group lost, or removes one that it duplicated."""
    rest = sorted(others)
    for slot in group:
        if not (trial == row[slot]).any():
            return next(other for other in rest if after[other] == row[slot])
        gpu = layout.gpu_of_slot[slot]
        near = range(layout.first_slot[gpu], layout.first_slot[gpu + 1])
        if Counter(trial[list(near)].tolist())[int(trial[slot])] > 1:
            return next(other for other in rest if other in near and row[other] == trial[slot])
    return None


def _even(row: Ints, tokens: Floats, layout: Layout, rule: Dispatch) -> float:
    return float(imbalance(row[np.newaxis], tokens[np.newaxis], layout=layout, rule=rule).per_layer[0])
