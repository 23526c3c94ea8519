"""Bucket edges that overstate the load the least.

A bucket stands for its upper edge, so the plan counts a request of n tokens in a bucket up to e as e: (e - n) tokens
too many.  Edges come from a grid of round numbers, about ten to a decade, so that histograms of different days share
them.  Dynamic programming finds the choice of at most k edges that overstates the fewest tokens and whose last edge
covers the longest request, in O(grid^2 x k) steps.  The choice places edges close together where most of the load is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

MANTISSAS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
MAX_INPUT_EDGES = 10  # the grid of Mélange (arXiv 2404.14527): 10 input sizes by 6 output sizes
MAX_OUTPUT_EDGES = 6


def round_sizes(largest: int) -> tuple[int, ...]:
    """The round numbers up to the first that is at least `largest`."""
    sizes = sorted({round(mantissa * 10**power) for power in range(10) for mantissa in MANTISSAS})
    return tuple(size for size, smaller in zip(sizes, (0, *sizes), strict=False) if smaller < largest)


@dataclass(frozen=True, slots=True)
class Cuts:
    """Edges, and the planned tokens over a trace's true tokens; 1 is perfect."""

    edges: tuple[int, ...]
    overstated: float

    @classmethod
    def best(cls, tokens: Sequence[int] | npt.NDArray[np.int64], *, max_edges: int) -> Self:
        """The best edges for these sizes, at most `most` of them; fewer where fewer overstate no more."""
        sizes = np.asarray(tokens).clip(min=1)
        grid = np.array(round_sizes(int(sizes.max())))
        per_cell = np.bincount(np.searchsorted(grid, sizes), minlength=len(grid))
        planned, chosen = _fewest_tokens(
            grid, np.concatenate(([0], np.cumsum(per_cell))), max_edges=min(max_edges, len(grid))
        )
        return cls(edges=tuple(int(grid[position]) for position in chosen), overstated=planned / float(sizes.sum()))


def _fewest_tokens(
    grid: npt.NDArray[np.int64], requests_below: npt.NDArray[np.int64], *, max_edges: int
) -> tuple[float, list[int]]:
    """The minimum sum of edges over all requests, and the positions of the edges; the last one is the grid's last.

    cost[e] is the minimum for the requests up to edge e with the edges used so far, and before[k][e] the edge below it.
    """
    counts = requests_below[1:]
    joined = grid[None, :] * (counts[None, :] - counts[:, None]).astype(float)  # [b, e]: requests in (b, e], as e
    joined[np.tril_indices(len(grid))] = np.inf
    cost = grid * counts.astype(float)
    found = [(float(cost[-1]), [len(grid) - 1])]
    before: list[npt.NDArray[np.int64]] = []
    for _ in range(max_edges - 1):
        options = cost[:, None] + joined
        before.append(options.argmin(axis=0))
        cost = options.min(axis=0)
        found.append((float(cost[-1]), _walk_back(before)))
    return min(found, key=lambda choice: (choice[0], len(choice[1])))


def _walk_back(before: Sequence[npt.NDArray[np.int64]]) -> list[int]:
    positions = [len(before[0]) - 1]
    for step in reversed(before):
        positions.append(int(step[positions[-1]]))
    return positions[::-1]
