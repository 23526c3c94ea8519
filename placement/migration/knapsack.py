"""One exact budget of moves for all layers, by dynamic programming over one option per layer.

docs/explanation/placement/migration.md has the recursion.  Steps down all layers' lower convex hulls, steepest first,
give a sufficient budget, which limits the table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placement.arrays import Experts, Floats, Ints

SLACK = 1e-9  # the error of sums of some hundred imbalances


@dataclass(frozen=True, eq=False)
class Options:
    """The options of one layer: moves rise, imbalances fall."""

    moves: Ints
    imbalances: Floats
    rows: Experts  # [options, slots]: the placements

    @classmethod
    def of(cls, moves: Ints, imbalances: Floats, rows: Experts) -> "Options":
        """The options that no other dominates."""
        order = np.lexsort((imbalances, moves))
        ahead = np.concatenate([[np.inf], np.minimum.accumulate(imbalances[order])[:-1]])
        kept = order[imbalances[order] < ahead - SLACK]
        return cls(moves[kept], imbalances[kept], rows[kept])

    def with_more(self, longest: Floats, rows: Experts) -> "Options":
        """With the placements at each number of moves, from 0; infinite where there is none."""
        there = np.flatnonzero(np.isfinite(longest))
        return Options.of(
            np.concatenate([self.moves, there]),
            np.concatenate([self.imbalances, longest[there]]),
            np.concatenate([self.rows, rows[there]]),
        )


def choose(layers: Sequence[Options], *, ceiling: float, max_moves: int | None) -> list[int]:
    """The option of each layer: least moves for the mean ceiling; else the least mean within the allowed moves."""
    goal = ceiling * len(layers) + SLACK
    enough = _enough(layers, goal)
    capacity = enough if max_moves is None else min(enough, max_moves)
    sums, picks = np.zeros(1), []
    for options in layers:
        sums, pick = _with(options, sums, capacity)
        picks.append(pick)
    within = sums <= goal
    budget = int(np.argmax(within)) if within.any() else int(np.argmax(sums <= sums.min() + SLACK))
    chosen = []
    for options, pick in zip(reversed(layers), reversed(picks), strict=True):
        chosen.append(int(pick[budget]))
        budget -= int(options.moves[chosen[-1]])
    return chosen[::-1]


def _enough(layers: Sequence[Options], goal: float) -> int:
    """A number of moves that suffices for the ceiling, or the maximum."""
    moves, total = sum(int(options.moves[0]) for options in layers), sum(float(it.imbalances[0]) for it in layers)
    for _, more, less in sorted(step for options in layers for step in _hull(options)):
        if total <= goal:
            break
        moves, total = moves + more, total - less
    return moves


def _hull(options: Options) -> Iterator[tuple[float, int, float]]:
    """Steps along the lower convex hull: slope (rising), additional moves, imbalance saved."""
    at, last = 0, len(options.moves) - 1
    while at < last:
        more, less = options.moves[at + 1 :] - options.moves[at], options.imbalances[at] - options.imbalances[at + 1 :]
        best = int(np.argmax(less / more))
        yield -float(less[best] / more[best]), int(more[best]), float(less[best])
        at += 1 + best


def _with(options: Options, sums: Floats, capacity: int) -> tuple[Floats, Ints]:
    """Add one layer: the least sums by moved copies, and the selected option for each."""
    length = min(len(sums) + int(options.moves[-1]), capacity + 1)
    least, pick = np.full(length, np.inf), np.zeros(length, dtype=np.int64)
    for k, (moves, value) in enumerate(zip(options.moves.tolist(), options.imbalances.tolist(), strict=True)):
        reach = sums[: max(length - moves, 0)] + value
        part = slice(moves, moves + len(reach))
        better = reach < least[part]
        least[part][better], pick[part][better] = reach[better], k
    return least, pick
