"""For each number of copies moved, the evenest placement found of one layer: a beam search, level by level.

A state is a placement; its level is the number of copies that it holds and the loaded one does not, GPU by GPU, so that
overwriting a slot twice costs once.  Steps are those that lighten the fullest GPU, since no GPU above the level that is
sought may stay as it is:

- overwrite a spare copy on it, or overwrite a spare copy elsewhere by an expert that it holds (1 copy),
- exchange one of its experts for a lighter one of another GPU (2 copies; fewer where a slot had changed before).

Longer chains are several steps.  Each level keeps the `width` states with the least excess, the sum over GPUs of
max(0, time - target)^2.
"""

from typing import NamedTuple

import numpy as np
from numba import float64, int64, void

from fleet.compiled import entry, part
from placement.arrays import Floats, Ints
from placement.dispatch import EQUAL
from placement.migration.states import NONE, Change, Ground, State, excess, exchanged, overwritten, read


class Pool(NamedTuple):
    """The best states of each level, and the evenest placement of each."""

    scores: Floats  # [levels, width]; infinite where there is none
    keys: Ints  # [levels, width]
    fresh: Ints  # [levels, width]: 1 where no step from there was tried
    rows: Ints  # [levels, width, slots]
    worst: Floats  # [levels]: the greatest of `scores`
    longest: Floats  # [levels]: time of the fullest GPU in the evenest placement
    evenest: Ints  # [levels, slots]


@part
def _put(level: int, score: float, key: int, pool: Pool) -> int:
    """The place for a state with this score, or NONE: its level holds it already, or better ones."""
    place, worst = 0, 0.0
    for i in range(pool.scores.shape[1]):
        if pool.keys[level, i] == key and pool.scores[level, i] < np.inf:
            return NONE
        if pool.scores[level, i] > pool.scores[level, place]:
            place = i
    pool.scores[level, place], pool.keys[level, place], pool.fresh[level, place] = score, key, 1
    for i in range(pool.scores.shape[1]):
        worst = max(worst, pool.scores[level, i])
    pool.worst[level] = worst
    return place


@part
def _keep(  # noqa: PLR0917 - compiled code takes no keywords
    level: int, score: float, key: int, row: Ints, slot: int, expert: int, other: int, second: int, pool: Pool
) -> None:
    """Put the state that the row becomes with one expert in a slot, and another in another, among its level's best."""
    place = _put(level, score, key, pool)
    if place != NONE:
        kept = pool.rows[level, place]
        kept[:] = row
        kept[slot] = expert
        kept[other] = second


@part
def _overwrite(  # noqa: PLR0917 - compiled code takes no keywords
    level: int, score: float, key: int, row: Ints, slot: int, state: State, ground: Ground, change: Change, pool: Pool
) -> None:
    """Let the spare copy in a slot give way to any lighter expert."""
    a, gpu = row[slot], ground.gpu_of_slot[slot]
    tokens, copies = ground.tokens, state.copies
    held, loaded, keys, worst = state.holds[gpu], ground.loaded[gpu], ground.keys[gpu], pool.worst
    share, left, alike = tokens[a] * state.parts[a, 0], level + loaded[a], ground.rule == EQUAL
    for b in range(len(tokens)):
        after = left - loaded[b]
        if held[b] == 1 or after >= len(worst) or (alike and tokens[b] >= share * (copies[b] + 1)):
            continue
        found = overwritten(score, a, gpu, b, state, ground, change)
        if found < worst[after]:
            _keep(after, found, key ^ keys[a] ^ keys[b], row, slot, b, slot, b, pool)


@part
def _copy_elsewhere(  # noqa: PLR0917 - compiled code takes no keywords
    level: int, score: float, key: int, row: Ints, slot: int, state: State, ground: Ground, change: Change, pool: Pool
) -> None:
    """Put a copy of the expert in a slot of the fullest GPU in the place of any spare copy on another GPU."""
    a = row[slot]
    gpu_of_slot, copies, holds = ground.gpu_of_slot, state.copies, state.holds
    loaded, keys, worst = ground.loaded, ground.keys, pool.worst
    for other in range(len(row)):
        gpu, b = gpu_of_slot[other], row[other]
        if copies[b] == 1 or holds[gpu, a] == 1:
            continue
        after = level + loaded[gpu, b] - loaded[gpu, a]
        if after >= len(worst):
            continue
        found = overwritten(score, b, gpu, a, state, ground, change)
        if found < worst[after]:
            _keep(after, found, key ^ keys[gpu, a] ^ keys[gpu, b], row, other, a, other, a, pool)


@part
def _exchange(  # noqa: PLR0917 - compiled code takes no keywords
    level: int, score: float, key: int, row: Ints, slot: int, state: State, ground: Ground, change: Change, pool: Pool
) -> None:
    """Exchange the expert in a slot for any lighter one on another GPU."""
    a, gpu = row[slot], ground.gpu_of_slot[slot]
    tokens, copies, parts, holds, times = ground.tokens, state.copies, state.parts, state.holds, state.times
    gpu_of_slot, loaded, keys, worst, pace = ground.gpu_of_slot, ground.loaded, ground.keys, pool.worst, ground.pace
    target, alike = ground.target, ground.rule == EQUAL
    share = tokens[a] * parts[a, 0]
    rest = score - excess(times[gpu], target)
    for other in range(len(row)):
        there, b = gpu_of_slot[other], row[other]
        less, two = share - tokens[b] * parts[b, 0], alike or (copies[a] == 1 and copies[b] == 1)
        if (two and less <= 0) or holds[there, a] == 1 or holds[gpu, b] == 1:
            continue
        after = level + loaded[gpu, a] - loaded[gpu, b] + loaded[there, b] - loaded[there, a]
        if after >= len(worst):
            continue
        if two:  # no expert has more copies or fewer: two GPUs notice
            found = rest + excess(times[gpu] - less * pace[gpu], target)
            found += excess(times[there] + less * pace[there], target) - excess(times[there], target)
        else:
            found = exchanged(score, a, gpu, b, there, state, ground, change)
        if found < worst[after]:
            name = key ^ keys[gpu, a] ^ keys[gpu, b] ^ keys[there, b] ^ keys[there, a]
            _keep(after, found, name, row, slot, b, other, a, pool)


@part
def _expand(  # noqa: PLR0917 - compiled code takes no keywords
    level: int, at: int, fullest: int, state: State, ground: Ground, change: Change, pool: Pool, row: Ints
) -> None:
    """Try every step that lightens the fullest GPU."""
    key, score = pool.keys[level, at], pool.scores[level, at]
    row[:] = pool.rows[level, at]
    for slot in range(len(row)):
        on_it = ground.gpu_of_slot[slot] == fullest
        if on_it:
            _copy_elsewhere(level, score, key, row, slot, state, ground, change, pool)
        # Where copies' places count, another copy that moves may lighten the one on the fullest GPU.
        if on_it or (ground.rule != EQUAL and state.holds[fullest, row[slot]] == 1):
            if state.copies[row[slot]] > 1:
                _overwrite(level, score, key, row, slot, state, ground, change, pool)
            _exchange(level, score, key, row, slot, state, ground, change, pool)


@part
def _next(pool: Pool, level: int) -> int:
    """The best state of a level from which no step was tried, or NONE."""
    best = NONE
    for i in range(pool.scores.shape[1]):
        if pool.fresh[level, i] == 1 and (best == NONE or pool.scores[level, i] < pool.scores[level, best]):
            best = i
    return best


@part
def _search(row: Ints, ground: Ground, state: State, change: Change, pool: Pool) -> None:
    base = row.copy()
    pool.rows[0, 0] = row
    read(row, ground, state)
    score = 0.0
    for time in state.times:
        score += excess(time, ground.target)
    pool.scores[0, 0], pool.fresh[0, 0], pool.keys[0, 0] = score, 1, 0
    for level in range(len(pool.scores)):
        for _ in range(pool.scores.shape[1]):
            at = _next(pool, level)
            if at == NONE:
                break
            pool.fresh[level, at] = 0
            fullest = read(pool.rows[level, at], ground, state)
            if state.times[fullest] < pool.longest[level]:
                pool.longest[level] = state.times[fullest]
                pool.evenest[level] = pool.rows[level, at]
            if state.times[fullest] <= ground.target:
                return
            _expand(level, at, fullest, state, ground, change, pool, base)


_TABLE, _LINE = int64[:, ::1], int64[::1]


@entry(
    void(
        _TABLE,
        float64[:, ::1],
        float64[:, ::1],
        _LINE,
        _LINE,
        _TABLE,
        int64,
        float64[::1],
        int64,
        float64[:, ::1],
        int64[:, :, ::1],
    )
)
def frontiers(  # noqa: PLR0917 - compiled code takes no keywords
    expert_of_slot: Ints,
    tokens: Floats,
    pace: Floats,
    gpu_of_slot: Ints,
    node_of_gpu: Ints,
    keys: Ints,
    rule: int,
    targets: Floats,
    width: int,
    longest: Floats,
    evenest: Ints,
) -> None:
    """Fill in the time of the fullest GPU [layers, levels] at each number of moves, and the placements."""
    layers, slots = expert_of_slot.shape
    gpus, experts = keys.shape
    levels = longest.shape[1]
    longest[:] = np.inf
    scores, names = np.empty((levels, width)), np.zeros((levels, width), np.int64)
    fresh, rows = np.zeros((levels, width), np.int64), np.empty((levels, width, slots), np.int64)
    worst = np.empty(levels)
    every, loaded = np.arange(gpus), np.empty((gpus, experts), np.int64)
    state = State(
        np.empty((experts, gpus), np.int64),
        np.empty(experts, np.int64),
        np.empty((experts, gpus)),
        np.empty((gpus, experts), np.int64),
        np.empty(gpus),
    )
    change = Change(np.zeros(gpus), np.zeros(4 * gpus + 4, np.int64), np.empty(gpus + 1, np.int64), np.empty(gpus + 1))
    for layer in range(layers):
        loaded[:] = 0
        for slot in range(slots):
            loaded[gpu_of_slot[slot], expert_of_slot[layer, slot]] = 1
        scores[:], worst[:], fresh[:] = np.inf, np.inf, 0
        ground = Ground(loaded, tokens[layer], pace[layer], gpu_of_slot, node_of_gpu, every, keys, rule, targets[layer])
        pool = Pool(scores, names, fresh, rows, worst, longest[layer], evenest[layer])
        _search(expert_of_slot[layer], ground, state, change, pool)
