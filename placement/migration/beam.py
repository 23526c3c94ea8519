"""The beam: the best states of each level of the search, and their insertion."""

from typing import NamedTuple

import numpy as np

from fleet.numba_cache import jit_inner
from placement.arrays import Experts, Floats, Ints
from placement.migration.layer_state import NONE


class Pool(NamedTuple):
    scores: Floats  # [levels, width]; infinite where there is none
    names: Ints  # [levels, width]
    fresh: Ints  # [levels, width]: 1 where no step was tried
    rows: Experts  # [levels, width, slots]
    worst: Floats  # [levels]: the greatest of `scores`
    keys: Ints  # [GPUs, experts]: random bits of each copy; their exclusive or identifies a state


@jit_inner
def lay(row: Experts, kept: Experts, slot: int, b: int, other: int, a: int) -> None:  # noqa: PLR0917
    """Copy the row with `b` in the slot and `a` in the other, except for NONE."""
    for at in range(len(row)):
        kept[at] = row[at]
    if b != NONE:
        kept[slot] = b
    if a != NONE:
        kept[other] = a


@jit_inner
def place_among(  # noqa: PLR0917 - compiled code takes no keywords
    level: int, score: float, name: int, scores: Floats, names: Ints, fresh: Ints, worst: Floats
) -> int:
    """The position for a state among its level's best, or NONE if it is present already."""
    place = 0
    for i in range(scores.shape[1]):
        if names[level, i] == name and scores[level, i] < np.inf:
            return NONE
        if scores[level, i] > scores[level, place]:
            place = i
    scores[level, place], names[level, place], fresh[level, place] = score, name, 1
    worst[level] = 0.0
    for i in range(scores.shape[1]):
        worst[level] = max(worst[level], scores[level, i])
    return place


@jit_inner
def next_of(pool: Pool, level: int) -> int:
    """The best state of a level without tried steps, or NONE."""
    best = NONE
    for i in range(pool.scores.shape[1]):
        if pool.fresh[level, i] == 1 and (best == NONE or pool.scores[level, i] < pool.scores[level, best]):
            best = i
    return best
