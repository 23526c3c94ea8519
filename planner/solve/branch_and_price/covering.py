"""The cheapest whole counts that meet a few covering rows: `min c·n` over `R·n >= 1`, `least <= n <= most`.

Branching uses integer sums of counts first: if the options of one supply have one price per GPU, the GPUs taken of it
decide the cost, and options of different sizes only divide them.

Branch and bound, depth first, on a dense dictionary of the dual simplex method with bounded variables (Chvátal, Linear
Programming, 1983, chapters 8 and 10).  With fourteen columns and ten rows a pivot takes less time than a call into a
general solver, and most searches take a fraction of a millisecond.

Bounds do not depend on the dictionary, which accumulates rounding errors.  At each node the bound is recomputed from
the row multipliers, which prove a bound for any values (Neumaier and Shcherbina, Safe bounds in linear and
mixed-integer programming, 2004).

The import compiles this module, or loads what an earlier process compiled.

A node is three arrays.  `table`: the dictionary, with a row per basic variable, the reduced costs in the last row and
the values of the basis in the last column.  `place`: the variable of each row, of each column, and 1 for a nonbasic
variable at its upper bound.  `bounds`: of counts and then of rows.
"""

from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt
from numba import float64, int64

from fleet.numba_cache import jit_entry, jit_inner

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_DEPTH = 200  # open nodes at once; a larger search sets nodes aside and weakens its bound
MAX_PIVOTS = 400  # in one node, with the same effect
TINY_PIVOT = 1e-9
VIOLATION = 1e-8  # of a row or bound; a smaller violation is rounding
FRACTION = 1e-6  # a count within this distance of a whole number is whole
RESTORED, IMPOSSIBLE, GIVEN_UP = 0, 1, 2


@jit_inner
def _start(cost: Floats, rows: Floats, table: Floats, place: Ints, bounds: Floats) -> None:
    """All counts at their least, all rows in the basis: dual feasible, because no cost is negative."""
    m, k = rows.shape
    for j in range(k):
        table[m, j] = cost[j]
        place[m + j], place[m + k + j] = j, 0
    for i in range(m):
        place[i] = k + i
        table[i, k] = 0.0
        for j in range(k):
            table[i, j] = rows[i, j]
            table[i, k] += rows[i, j] * bounds[0, j]


@jit_inner
def _restore(table: Floats, place: Ints, bounds: Floats) -> int:
    """Dual simplex until every basic variable is inside its bounds."""
    m, k = table.shape[0] - 1, table.shape[1] - 1
    for _ in range(MAX_PIVOTS):
        r, worst, sign = -1, VIOLATION, 1.0
        for i in range(m):
            low, high = bounds[0, place[i]], bounds[1, place[i]]
            if low - table[i, k] > worst:
                r, worst, sign = i, low - table[i, k], 1.0
            if table[i, k] - high > worst:
                r, worst, sign = i, table[i, k] - high, -1.0
        if r < 0:
            return RESTORED
        q, rest = _entering(table, place, bounds, r, sign)
        if q < 0:
            return IMPOSSIBLE if worst > rest + VIOLATION / 2 else GIVEN_UP
        _pivot(table, place, bounds, r, q)
    return GIVEN_UP


@jit_inner
def _entering(table: Floats, place: Ints, bounds: Floats, r: int, sign: float) -> tuple[int, float]:
    """The ratio test, and the most by which the entries too small for a pivot can move the row."""
    m, k = table.shape[0] - 1, table.shape[1] - 1
    q, best, size, rest = -1, np.inf, 0.0, 0.0
    for j in range(k):
        v, a = place[m + j], table[r, j] * sign
        if bounds[1, v] <= bounds[0, v]:
            continue
        if abs(a) <= TINY_PIVOT:
            rest += abs(a) * min(bounds[1, v] - bounds[0, v], 1e9)
        elif (a > 0) == (place[m + k + j] == 0):
            ratio = abs(table[m, j] / a)
            if ratio < best - 1e-12 or (ratio < best + 1e-12 and abs(a) > size):
                q, best, size = j, ratio, abs(a)
    return q, rest


@jit_inner
def _pivot(table: Floats, place: Ints, bounds: Floats, r: int, q: int) -> None:
    """The basic variable of row r leaves at the violated bound; the variable of column q enters."""
    m, k = table.shape[0] - 1, table.shape[1] - 1
    leaving, entering = place[r], place[m + q]
    above = 1 if table[r, k] > bounds[1, leaving] else 0
    inverse = 1.0 / table[r, q]
    step = (bounds[above, leaving] - table[r, k]) * inverse
    for i in range(m):
        table[i, k] += table[i, q] * step
    table[r, k] = bounds[place[m + k + q], entering] + step
    for j in range(k):
        table[r, j] *= -inverse
    table[r, q] = inverse
    for i in range(m + 1):
        factor = table[i, q]
        if i != r and factor != 0.0:
            for j in range(k):
                table[i, j] += factor * table[r, j]
            table[i, q] = factor * inverse
    place[r], place[m + q], place[m + k + q] = entering, leaving, above


@jit_inner
def _safe_bound(cost: Floats, rows: Floats, table: Floats, place: Ints, bounds: Floats) -> float:
    """The bound of the multipliers: `Σ min(y·low, y·high) + Σ min(d·low, d·high)` with `d = c - y·R`, for any y."""
    m, k = rows.shape
    reduced = cost.copy()
    bound = 0.0
    for p in range(k):
        v, y = place[m + p], table[m, p]
        if v >= k and (y > 0.0 or bounds[1, v] < np.inf):
            bound += y * bounds[0 if y > 0.0 else 1, v]
            for j in range(k):
                reduced[j] -= y * rows[v - k, j]
    for j in range(k):
        bound += reduced[j] * bounds[0 if reduced[j] > 0.0 else 1, j]
    return bound


@jit_inner
def _read(table: Floats, place: Ints, bounds: Floats, sums: int, value: Floats) -> int:
    """Read counts and rows of the relaxation; return the sum, else the count, farthest from a whole number, or -1."""
    m, k = table.shape[0] - 1, table.shape[1] - 1
    for p in range(k):
        value[place[m + p]] = bounds[place[m + k + p], place[m + p]]
    for i in range(m):
        value[place[i]] = table[i, k]
    farthest, distance = -1, FRACTION
    for turn in range(2):
        for v in range(k if turn == 0 else 0, k + sums if turn == 0 else k):
            if abs(value[v] - np.rint(value[v])) > distance:
                farthest, distance = v, abs(value[v] - np.rint(value[v]))
        if farthest >= 0:
            break
    return farthest


@jit_inner
def _fix_by_cost(table: Floats, place: Ints, bounds: Floats, slack: float) -> None:
    """Reduced-cost fixing: a nonbasic count takes no more steps than fit below the cutoff."""
    m, k = table.shape[0] - 1, table.shape[1] - 1
    for p in range(k):
        v, reduced = place[m + p], abs(table[m, p])
        if v < k and reduced > 1e-9:
            steps = np.floor(slack * (1 + 1e-9) / reduced + 1e-6)
            if place[m + k + p] == 1:
                bounds[0, v] = max(bounds[0, v], bounds[1, v] - steps)
            else:
                bounds[1, v] = min(bounds[1, v], bounds[0, v] + steps)


@jit_inner
def _part_at(table: Floats, place: Ints, bounds: Floats, at: tuple[int, int], value: float) -> None:
    """Node s becomes two: s and s + 1, the latter on the nearer side of variable v's value."""
    s, v = at
    for i in range(table.shape[1]):
        for p in range(table.shape[2]):
            table[s + 1, i, p] = table[s, i, p]
    for p in range(place.shape[1]):
        place[s + 1, p] = place[s, p]
    for p in range(bounds.shape[2]):
        bounds[s + 1, 0, p], bounds[s + 1, 1, p] = bounds[s, 0, p], bounds[s, 1, p]
    whole = np.floor(value)
    down, up = (s + 1, s) if value - whole < 0.5 else (s, s + 1)
    bounds[down, 1, v], bounds[up, 0, v] = min(whole, bounds[down, 1, v]), max(whole + 1, bounds[up, 0, v])


@jit_inner
def _whole_cost(cost: Floats, value: Floats) -> float:
    total = 0.0
    for j in range(len(cost)):
        total += cost[j] * np.rint(value[j])
    return total


@jit_entry(float64(float64[::1], float64[:, ::1], float64[:, ::1], float64[::1], int64, int64))
def _search(cost: Floats, rows: Floats, limits: Floats, found: Floats, sums: int, max_nodes: int) -> float:  # noqa: PLR0917 - compiled code takes no keywords
    """The proven bound.  `found` has the cutoff after the counts on entry, and the cost of those found on return."""
    m, k = rows.shape
    table, place = np.empty((MAX_DEPTH, m + 1, k + 1)), np.empty((MAX_DEPTH, m + 2 * k), np.int64)
    bounds, floor = np.empty((MAX_DEPTH, 2, k + m)), np.zeros(MAX_DEPTH)  # floor: a known bound
    value = np.empty(k + m)
    bounds[0] = limits
    _start(cost, rows, table[0], place[0], bounds[0])
    proven, nodes, top = np.inf, 0, 0
    while top >= 0:
        s, top, cutoff = top, top - 1, found[k]
        if floor[s] >= cutoff:
            continue
        if nodes >= max_nodes or s + 1 >= MAX_DEPTH:
            proven = min(proven, floor[s])
            continue
        nodes += 1
        end = _restore(table[s], place[s], bounds[s])
        bound = np.inf if end == IMPOSSIBLE else _safe_bound(cost, rows, table[s], place[s], bounds[s])
        floor[s] = max(floor[s], bound)
        if floor[s] >= cutoff:
            continue
        v = _read(table[s], place[s], bounds[s], sums, value)
        if end == RESTORED and v >= 0:
            _fix_by_cost(table[s], place[s], bounds[s], cutoff - floor[s])
            _part_at(table, place, bounds, (s, v), value[v])
            floor[s + 1], top = floor[s], s + 1
            continue
        proven = min(proven, floor[s])  # given up, or whole only within FRACTION
        if end == RESTORED and _whole_cost(cost, value) < cutoff:
            found[k] = _whole_cost(cost, value)
            for j in range(k):
                found[j] = np.rint(value[j])
    return min(float(found[k]), proven)


@dataclass(frozen=True, slots=True)
class Cover:
    """Counts below the cutoff, if any, and a proven bound."""

    counts: Floats | None
    bound: float


def cheapest_cover(
    cost: Floats, rows: Floats, *, sums: Floats, least: Floats, most: Floats, cutoff: float, max_nodes: int
) -> Cover:
    """The cheapest.  `sums` are rows without a limit that are whole for whole counts."""
    if (least > most).any():
        return Cover(None, cutoff)
    lower = np.concatenate([least, np.zeros(len(sums)), np.ones(len(rows))])
    upper = np.concatenate([most, np.full(len(sums) + len(rows), inf)])
    found = np.append(np.zeros(len(cost)), cutoff)
    table = np.ascontiguousarray(np.vstack([sums, rows]))
    bound = _search(cost, table, np.vstack([lower, upper]), found, len(sums), max_nodes)
    return Cover(found[:-1] if found[-1] < cutoff else None, bound)
