"""The linear assignment problem, compiled for many small cases.

Shortest augmenting paths with node potentials (Kuhn 1955; Jonker and Volgenant, Computing 38, 1987): rows enter one by
one; each takes the cheapest alternating path, by reduced costs c_ij - u_i - v_j >= 0, to a free column.  O(n^3) for n
rows.
"""

import numpy as np
from numba import float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints


@jit_inner
def _enter(  # noqa: PLR0917 - compiled code takes no keywords
    row: int, costs: Floats, u: Floats, v: Floats, row_of: Ints, least: Floats, before: Ints, visited: Ints
) -> None:
    """Assign a column to a row, reassigning others along the path; column n stands for the entering row."""
    n = len(costs)
    least[:], visited[:] = np.inf, 0
    row_of[n] = row
    at = n
    while row_of[at] >= 0:
        visited[at] = 1
        here, step, nearest = row_of[at], np.inf, n
        for column in range(n):
            if visited[column] == 0:
                reduced = costs[here, column] - u[here] - v[column]
                if reduced < least[column]:
                    least[column], before[column] = reduced, at
                if least[column] < step:
                    step, nearest = least[column], column
        for column in range(n + 1):
            if visited[column] == 1:
                u[row_of[column]] += step
                v[column] -= step
            else:
                least[column] -= step
        at = nearest
    while at != n:
        row_of[at] = row_of[before[at]]
        at = before[at]


@jit_entry(int64[:, ::1](float64[:, :, ::1]))
def assigned(costs: Floats) -> Ints:
    """[problems, n]: the column of each row, for costs [problems, n, n], all finite."""
    problems, n = costs.shape[0], costs.shape[1]
    column_of, row_of = np.empty((problems, n), np.int64), np.empty(n + 1, np.int64)
    u, v, least = np.empty(n), np.empty(n + 1), np.empty(n + 1)
    before, visited = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    for problem in range(problems):
        u[:], v[:], row_of[:] = 0.0, 0.0, -1
        for row in range(n):
            _enter(row, costs[problem], u, v, row_of, least, before, visited)
        for column in range(n):
            column_of[problem, row_of[column]] = column
    return column_of
