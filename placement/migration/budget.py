"""One budget of moves for all layers: from each layer one option, exactly.

Option k of layer l moves m_lk copies and leaves imbalance x_lk.  With f_l(b) the least sum of imbalances of the first l
layers within b copies,

    f_l(b) = min over k of  f_(l-1)(b - m_lk) + x_lk,

the answer is the least b with f_L(b) <= layers * ceiling, or, where there is none, the b with the least f_L(b).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.arrays import Floats, Ints

SLACK = 1e-9  # sums of some hundred imbalances differ by less


@dataclass(frozen=True, eq=False)
class Options:
    """Of one layer: moves rise, imbalances fall."""

    moves: Ints
    imbalances: Floats
    rows: Ints  # [options, slots]: the placements

    @classmethod
    def of(cls, moves: Ints, imbalances: Floats, rows: Ints) -> "Options":
        """Without those that another beats."""
        order = np.lexsort((imbalances, moves))
        ahead = np.concatenate([[np.inf], np.minimum.accumulate(imbalances[order])[:-1]])
        kept = order[imbalances[order] < ahead - SLACK]
        return cls(moves[kept], imbalances[kept], rows[kept])


def chosen(layers: Sequence[Options], *, ceiling: float, max_moves: int | None) -> list[int]:
    """Which option of each layer: least moves for the mean ceiling; else the least mean within the moves allowed."""
    most = sum(int(options.moves[-1]) for options in layers)
    room = most if max_moves is None else min(most, max_moves)
    sums, picks = np.zeros(1), []
    for options in layers:
        sums, pick = _with(options, sums, room)
        picks.append(pick)
    within = sums <= ceiling * len(layers) + SLACK
    budget = int(np.argmax(within)) if within.any() else int(np.argmax(sums <= sums.min() + SLACK))
    answer = []
    for options, pick in zip(reversed(layers), reversed(picks), strict=True):
        answer.append(int(pick[budget]))
        budget -= int(options.moves[answer[-1]])
    return answer[::-1]


def _with(options: Options, sums: Floats, room: int) -> tuple[Floats, Ints]:
    """One layer more: the least sums by copies moved, and the option taken for each."""
    length = min(len(sums) + int(options.moves[-1]), room + 1)
    least, pick = np.full(length, np.inf), np.zeros(length, dtype=np.int64)
    for k, (moves, value) in enumerate(zip(options.moves.tolist(), options.imbalances.tolist(), strict=True)):
        reach = sums[: max(length - moves, 0)] + value
        part = slice(moves, moves + len(reach))
        better = reach < least[part]
        least[part][better], pick[part][better] = reach[better], k
    return least, pick
