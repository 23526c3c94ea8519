"""The most even placement of one layer for each number of moves: a beam search, level by level.

docs/explanation/placement/migration.md has the steps and the score.  A state is a placement.  Its level is the number
of copies that it holds and the current placement does not, per GPU, so a slot that is overwritten twice costs once.
Where a copy's share depends on the places of the others, steps on GPUs that share an expert with the most loaded one
may relieve it too; they are tried from a few states only.  Longer chains are several steps.

A step is two changes, a copy that arrives and one that leaves.  Each is evaluated once, then all pairs are tried.  A
pair's score adds their effects, exact except for third GPUs that hold copies of both; the score of a state is computed
in full.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from numba import float64, int16, int64, types

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Experts, Floats, Ints
from placement.dispatch import EQUAL, LAYOUT
from placement.layout import LayoutArrays
from placement.migration.layer_state import NONE, Changes, Flags, LayerProblem, State, evaluate_changes, excess, read

GIVE, TAKE, SWAP = 0, 1, 2
FRONTIERS: Any = cast("Any", types).Tuple((float64[:, ::1], int16[:, :, ::1]))
STATES_PER_PIVOT = 12  # of so many states, one also tries GPUs that share an expert with the most loaded


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


@jit_inner
def _list_changes(  # noqa: PLR0917 - compiled code takes no keywords
    row: Experts, fullest: int, first: int, last: int, problem: LayerProblem, state: State, changes: Changes
) -> None:
    """List the changes that steps consist of.

    Numbered: by slot, arriving on the most loaded GPU, or removed there; by slot, removed elsewhere; by expert,
    arriving on the most loaded GPU; by slot there and other GPU, joined by a copy, and moving.
    """
    holds, copies, gpu_of_slot = state.holds, state.copies, problem.gpu_of_slot
    expert_of, leaves, enters = changes.expert, changes.leaves, changes.enters
    slots, gpus, experts, spare = len(row), len(holds), len(copies), False
    for one in range(len(expert_of)):
        expert_of[one] = leaves[one] = enters[one] = NONE
    for at in range(first, last):
        expert, one = row[at], 2 * slots + experts + (at - first) * 2 * gpus
        if copies[expert] > 1:
            expert_of[at], leaves[at], spare = expert, fullest, True
        for gpu in range(gpus):
            if holds[gpu, expert] == 0:
                expert_of[one + gpu], enters[one + gpu] = expert, gpu
                expert_of[one + gpus + gpu], leaves[one + gpus + gpu], enters[one + gpus + gpu] = expert, fullest, gpu
    for at in range(slots):
        expert, gpu = row[at], gpu_of_slot[at]
        if gpu != fullest and copies[expert] > 1:
            expert_of[slots + at], leaves[slots + at] = expert, gpu
        if gpu != fullest and holds[fullest, expert] == 0:
            expert_of[at], leaves[at], enters[at] = expert, gpu, fullest
    for expert in range(experts):
        if spare and holds[fullest, expert] == 0:
            expert_of[2 * slots + expert], enters[2 * slots + expert] = expert, fullest


@jit_inner
def _try(  # noqa: PLR0917 - compiled code takes no keywords
    level: int,
    at: int,
    score: float,
    row: Experts,
    pivot: int,
    fullest: int,
    first: int,
    last: int,
    problem: LayerProblem,
    state: State,
    changes: Changes,
    pool: Pool,
) -> None:
    """Insert the states of all steps, all pairs of an arriving and a leaving copy."""
    effect, times, loaded, keys = changes.effect, state.times, problem.loaded, pool.keys
    gpu_of_slot, worst, target, name = problem.gpu_of_slot, pool.worst, problem.target, pool.names[level, at]
    scores, names, fresh, rows = pool.scores, pool.names, pool.fresh, pool.rows
    slots, gpus, experts, time = len(row), len(times), len(problem.tokens), times[pivot]
    base = score - excess(time, target)
    for slot in range(first, last):
        a = row[slot]
        if state.holds[fullest, a] == 0:
            continue
        for way in range(3):
            one = slot if way == GIVE else 2 * slots + experts + ((slot - first) * 2 + (way == SWAP)) * gpus
            others = 2 * slots if way == GIVE else slots if way == TAKE else 0
            for i in range(experts if way == GIVE else slots):
                there, b = (pivot, i) if way == GIVE else (gpu_of_slot[i], row[i])
                mine = one if way == GIVE else one + there
                more = effect[mine, 0] + effect[others + i, 0]
                if more == np.inf or (more >= 0 and pivot == fullest):  # infinite where one of the two is impossible
                    continue
                after, called = level, name
                if way != TAKE:
                    after += loaded[pivot, a] - loaded[pivot, b]
                    called ^= keys[pivot, a] ^ keys[pivot, b]
                if way != GIVE:
                    after += loaded[there, b] - loaded[there, a]
                    called ^= keys[there, a] ^ keys[there, b]
                if after >= len(worst):
                    continue
                found = base + excess(time + more, target) + effect[mine, 2] + effect[others + i, 2]
                if way != GIVE:
                    busy = times[there]
                    found += excess(busy + effect[mine, 1] + effect[others + i, 1], target) - excess(busy, target)
                if found < worst[after]:
                    place = place_among(after, found, called, scores, names, fresh, worst)
                    if place != NONE:
                        lay(row, rows[after, place], slot, NONE if way == TAKE else b, i, NONE if way == GIVE else a)


@jit_inner
def _shares(row: Experts, first: int, last: int, fullest: int, state: State) -> bool:
    """Whether one of these slots holds an expert of the most loaded GPU."""
    common = 0
    for slot in range(first, last):
        common += state.holds[fullest, row[slot]]
    return common > 0


@jit_inner
def _search(  # noqa: PLR0917 - compiled code takes no keywords
    start: int,
    levels: int,
    row: Experts,
    longest: Floats,
    evenest: Experts,
    first_slot: Ints,
    problem: LayerProblem,
    state: State,
    changes: Changes,
    pool: Pool,
) -> None:
    width = pool.scores.shape[1]
    for level in range(start, levels):
        for nth in range(width):
            at = next_of(pool, level)
            if at == NONE:
                break
            pool.fresh[level, at] = 0
            for slot in range(len(row)):
                row[slot] = pool.rows[level, at, slot]
            fullest = read(row, problem, state)
            score, longer = 0.0, state.times[fullest]
            for time in state.times:
                score += excess(time, problem.target)
            if longer < longest[level]:
                longest[level] = longer
                for slot in range(len(row)):
                    evenest[level, slot] = row[slot]
            if longer <= problem.target:
                return
            for pivot in range(len(state.times)):
                first, last = first_slot[pivot], first_slot[pivot + 1]
                if pivot == fullest or (
                    problem.rule != EQUAL
                    and nth * STATES_PER_PIVOT < width
                    and _shares(row, first, last, fullest, state)
                ):
                    _list_changes(row, pivot, first, last, problem, state, changes)
                    evaluate_changes(pivot, problem, state, changes)
                    _try(level, at, score, row, pivot, fullest, first, last, problem, state, changes, pool)


@jit_inner
def _begin(  # noqa: PLR0917 - compiled code takes no keywords
    loaded: Experts, start: Experts, levels: int, gpu_of_slot: Ints, held: Flags, longest: Floats, pool: Pool
) -> int:
    """Empty the beam except for the start; returns its level."""
    for gpu in range(held.shape[0]):
        for expert in range(held.shape[1]):
            held[gpu, expert] = 0
    first = 0
    for slot in range(len(loaded)):
        held[gpu_of_slot[slot], loaded[slot]] = 1
    for slot in range(len(start)):
        first += 1 - held[gpu_of_slot[slot], start[slot]]
    for level in range(len(longest)):
        longest[level], pool.worst[level] = np.inf, np.inf if level < levels else -1.0
        for i in range(pool.scores.shape[1]):
            pool.scores[level, i], pool.fresh[level, i] = np.inf, 0
    if first < levels:
        for slot in range(len(start)):
            pool.rows[first, 0, slot] = start[slot]
        pool.scores[first, 0], pool.fresh[first, 0], pool.names[first, 0] = 0.0, 1, 0
    return first


@jit_entry(
    FRONTIERS(
        int16[:, ::1],
        int16[:, ::1],
        float64[:, ::1],
        float64[:, ::1],
        LAYOUT,
        int64[:, ::1],
        int64,
        float64[::1],
        int64[::1],
        int64,
    )
)
def frontiers(  # noqa: PLR0917 - compiled code takes no keywords
    loaded: Experts,
    start: Experts,
    tokens: Floats,
    pace: Floats,
    layout: LayoutArrays,
    keys: Ints,
    rule: int,
    targets: Floats,
    depths: Ints,
    width: int,
) -> tuple[Floats, Experts]:
    """The time of the most loaded GPU [layers, levels] at each number of moves, and the placements."""
    gpu_of_slot, node_of_gpu, first_slot, _ = layout
    layers, slots = start.shape
    gpus, experts = keys.shape
    levels, most = depths.max(), 0
    longest, evenest = np.empty((layers, levels)), np.empty((layers, levels, slots), np.int16)
    every_gpu = np.empty(gpus, np.int64)
    for gpu in range(gpus):
        every_gpu[gpu] = gpu
        most = max(most, first_slot[gpu + 1] - first_slot[gpu])
    count = 2 * slots + experts + 2 * most * gpus
    changes = Changes(
        np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64), np.empty((count, 3))
    )
    pool = Pool(
        np.empty((levels, width)),
        np.empty((levels, width), np.int64),
        np.empty((levels, width), np.int64),
        np.empty((levels, width, slots), np.int16),
        np.empty(levels),
        keys,
    )
    state = State(
        np.empty((experts, gpus), np.int64),
        np.empty(experts, np.int64),
        np.empty((experts, gpus)),
        np.empty((gpus, experts), np.int8),
        np.empty(gpus),
        np.empty(gpus + 1, np.int64),
        np.empty(gpus + 1),
    )
    held, row = np.empty((gpus, experts), np.int8), np.empty(slots, np.int16)
    for layer in range(layers):
        first = _begin(loaded[layer], start[layer], depths[layer], gpu_of_slot, held, longest[layer], pool)
        if first < depths[layer]:
            problem = LayerProblem(
                held, tokens[layer], pace[layer], gpu_of_slot, node_of_gpu, every_gpu, rule, targets[layer]
            )
            _search(
                first, depths[layer], row, longest[layer], evenest[layer], first_slot, problem, state, changes, pool
            )
    return longest, evenest
