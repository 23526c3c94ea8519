"""The joint fit, compiled: the few entities, with their slowdowns, that explain all edges at the lowest cost.

Additions without a common edge do not change each other's gain, so their order does not matter.  Losses:
`window_arrays`; search: docs/explanation/faults/localisation.md, "Solver"
"""

from typing import NamedTuple

import numpy as np
from numba import float64, int32, types
from numpy.typing import NDArray

from faults.localisation.window_arrays import MAX, WindowArrays
from fleet.numba_cache import jit_entry, jit_inner

_I, _F = int32[::1], float64[::1]
WINDOW_ARRAYS = types.NamedTuple([_I, _I, _F, _I, _I, *(_F for _ in range(9))], WindowArrays)  # type: ignore[no-untyped-call]
STEPS = 4  # of reweighted least squares: after them x moves by less than a hundredth
ADDED = 4  # replacements for one that is taken out
SWEEPS = 3  # of exchanges
NEVER = -1e9
MAX_DEFICIT = 7.0  # nats below its price at the median: no slowdown makes it pay


@jit_inner
def _loss(gap: float, soft: float, scale: float, tail: float, odd: float) -> float:
    wide = soft * soft / (scale * scale)
    loss = 0.5 * (tail + 1.0) * np.log(1.0 + gap * gap / (tail * scale * scale * (1.0 + wide)))
    if wide > 0.0:
        loss += 0.5 * np.log(1.0 + wide)
    least: float = min(loss, odd)
    return least


@jit_inner
def _explained_without(arrays: WindowArrays, x: NDArray[np.float64], edge: int, k: int) -> tuple[float, float]:
    """Return the explanation of an edge without k: predicted slowdown and its misfit."""
    most, soft = 0.0, 0.0
    for at in range(arrays.begin[edge], arrays.begin[edge + 1]):
        other = arrays.entity[at]
        if other != k and x[other] > 0.0:
            amount = arrays.part[at] * x[other]
            if amount > most:
                most, soft = amount, arrays.misfit[other] * amount
    return most, soft


@jit_inner
def _middle(values: NDArray[np.float64], count: int) -> float:
    """Return the median, by Shell's sort in place: there are few values, and numba's own takes seconds to compile."""
    step = count // 2
    while step > 0:
        for i in range(step, count):
            value, at = values[i], i
            while at >= step and values[at - step] > value:
                values[at] = values[at - step]
                at -= step
            values[at] = value
        step //= 2
    return float(0.5 * (values[(count - 1) // 2] + values[count // 2]))


@jit_inner
def _start(arrays: WindowArrays, k: int) -> float:
    first, last = arrays.first[k], arrays.first[k + 1]
    wanted = np.empty(last - first)
    count = 0
    for at in range(first, last):
        r = arrays.residual[arrays.edge[at]]
        if r == r and arrays.share[at] >= 0.5:  # noqa: PLR0124 - NaN
            wanted[count] = r / arrays.share[at]
            count += 1
    if count == 0:
        return 0.0
    return _middle(wanted, count)


@jit_inner
def _reweighted_step(arrays: WindowArrays, x: NDArray[np.float64], k: int, amount: float) -> float:
    """Take one step of reweighted least squares from `amount`, on the edges of which k would be the narrowest."""
    up, down = 0.0, 0.0
    for at in range(arrays.first[k], arrays.first[k + 1]):
        edge = arrays.edge[at]
        r = arrays.residual[edge]
        if r != r:  # noqa: PLR0124 - NaN
            continue
        share = arrays.share[at]
        base, _ = _explained_without(arrays, x, edge, k)
        if share * amount < base:
            continue
        s2 = arrays.scale[edge] ** 2 + (arrays.misfit[k] * share * amount) ** 2
        gap = r - share * amount
        w = (arrays.tail[edge] + 1.0) / (s2 * arrays.tail[edge] + gap * gap)
        up += w * share * r
        down += w * share * share
    return min(MAX, up / down) if down > 0.0 else 0.0


@jit_inner
def _gain(arrays: WindowArrays, x: NDArray[np.float64], k: int, amount: float) -> float:
    """Return the gain of the edges in nats at x_k = `amount` against x_k = 0."""
    total = 0.0
    soft_share = arrays.misfit[k]
    for at in range(arrays.first[k], arrays.first[k + 1]):
        edge = arrays.edge[at]
        r = arrays.residual[edge]
        if r != r:  # noqa: PLR0124 - NaN
            continue
        base, soft = _explained_without(arrays, x, edge, k)
        with_k = arrays.share[at] * amount
        if with_k <= base:
            continue
        s, tail, odd = arrays.scale[edge], arrays.tail[edge], arrays.odd[edge]
        total += _loss(r - base, soft, s, tail, odd) - _loss(r - with_k, soft_share * with_k, s, tail, odd)
    won: float = total * arrays.weight[k]
    return won


@jit_inner
def _best_amount(arrays: WindowArrays, x: NDArray[np.float64], k: int, start: float) -> tuple[float, float]:
    """Return (gain, x_k) at the best x_k with all others fixed; gain before the price."""
    amount = min(MAX, max(arrays.least[0], x[k] if x[k] > 0.0 else start))
    top, top_amount = -1e9, 0.0
    for step in range(STEPS + 1):
        gain = _gain(arrays, x, k, amount)
        if step == 0 and x[k] <= 0.0 and gain < arrays.price[k] - MAX_DEFICIT:
            return gain, amount
        if gain > top:
            top, top_amount = gain, amount
        amount = max(arrays.least[0], _reweighted_step(arrays, x, k, amount))
    return top, top_amount


class Candidates(NamedTuple):
    """The candidates of a window, by place in `chosen`."""

    selected: NDArray[np.int32]
    starts: NDArray[np.float64]
    place: NDArray[np.int32]  # per entity: its place, or -1
    gains: NDArray[np.float64]  # gain of adding it, after the price; NEVER: it is in, or banned
    amounts: NDArray[np.float64]
    near: NDArray[np.int32]
    mark: NDArray[np.int32]


@jit_inner
def _near(arrays: WindowArrays, candidates: Candidates, k: int) -> int:
    """Gather the candidates that share an edge with k, and k; return their number."""
    count = 0
    for at in range(arrays.first[k], arrays.first[k + 1]):
        edge = arrays.edge[at]
        for inner in range(arrays.begin[edge], arrays.begin[edge + 1]):
            m = candidates.place[arrays.entity[inner]]
            if m >= 0 and candidates.mark[m] == 0:
                candidates.mark[m] = 1
                candidates.near[count] = m
                count += 1
    for i in range(count):
        candidates.mark[candidates.near[i]] = 0
    return count


@jit_inner
def _refit(  # noqa: PLR0917 - compiled code takes no keywords
    arrays: WindowArrays, x: NDArray[np.float64], candidates: Candidates, count: int, keep: int, banned: int
) -> float:
    """Refit the entities near k, drop those that no longer pay and value the others; return the decrease."""
    decrease = 0.0
    for turn in range(2):
        for i in range(count):
            m = candidates.near[i]
            k = candidates.selected[m]
            if (x[k] > 0.0) != (turn == 0):
                candidates.gains[m] = NEVER
                continue
            before = _gain(arrays, x, k, x[k]) if turn == 0 else 0.0
            gain, amount = _best_amount(arrays, x, k, candidates.starts[m])
            if turn == 1:
                candidates.gains[m] = NEVER if m == banned else gain - arrays.price[k]
                candidates.amounts[m] = amount
            elif gain <= arrays.price[k] and m != keep:
                x[k] = 0.0
                decrease += arrays.price[k] - before
            else:
                x[k] = amount
                decrease += gain - before
    return decrease


@jit_inner
def _grow(  # noqa: PLR0917 - compiled code takes no keywords
    arrays: WindowArrays, x: NDArray[np.float64], candidates: Candidates, count: int, banned: int, limit: int
) -> float:
    """Update the near candidates and add the best one, while one pays; return the decrease of the objective."""
    decrease, keep = 0.0, -1
    for _ in range(limit):
        decrease += _refit(arrays, x, candidates, count, keep, banned)
        keep = int(np.argmax(candidates.gains))
        if candidates.gains[keep] <= 0.0:
            break
        k = candidates.selected[keep]
        x[k] = candidates.amounts[keep]
        decrease += candidates.gains[keep]
        count = _near(arrays, candidates, k)
    return decrease


@jit_inner
def _search(arrays: WindowArrays, x: NDArray[np.float64], candidates: Candidates) -> None:
    """Start from the previous result; then each chosen one is taken out, and stays out if others do better."""
    size = candidates.selected.size
    kept, kept_gains, kept_amounts = np.empty(size), np.empty(size), np.empty(size)
    for _ in range(SWEEPS):
        moved = False
        for m in range(-1, size):
            decrease, count = 0.0, size
            if m >= 0:
                k = candidates.selected[m]
                if x[k] <= 0.0:
                    continue
                for i in range(size):
                    kept[i], kept_gains[i], kept_amounts[i] = (
                        x[candidates.selected[i]],
                        candidates.gains[i],
                        candidates.amounts[i],
                    )
                decrease = arrays.price[k] - _gain(arrays, x, k, x[k])
                x[k] = 0.0
                count = _near(arrays, candidates, k)
            decrease += _grow(arrays, x, candidates, count, m, ADDED if m >= 0 else 4 * size)
            if m >= 0 and decrease <= 1e-6:
                for i in range(size):
                    x[candidates.selected[i]], candidates.gains[i], candidates.amounts[i] = (
                        kept[i],
                        kept_gains[i],
                        kept_amounts[i],
                    )
            elif m >= 0:
                moved = True
        if not moved:
            break


@jit_entry(types.void(WINDOW_ARRAYS, _I, _F, _F, _F))
def solve(
    arrays: WindowArrays,
    selected: NDArray[np.int32],
    starts: NDArray[np.float64],
    x: NDArray[np.float64],
    evidence: NDArray[np.float64],
) -> None:
    """Fill x (per entity; on entry the previous result) and, per candidate, the nats by which it is needed or would
    help, and in `starts` its slowdown.
    """
    place = np.full(x.size, -1, np.int32)
    near, mark = np.empty(selected.size, np.int32), np.zeros(selected.size, np.int32)
    for m in range(selected.size):
        place[selected[m]] = m
        near[m] = m
    candidates = Candidates(selected, starts, place, np.full(selected.size, NEVER), np.zeros(selected.size), near, mark)
    _search(arrays, x, candidates)
    for m in range(selected.size):
        k = selected[m]
        starts[m] = x[k] if x[k] > 0.0 else candidates.amounts[m]
        evidence[m] = _gain(arrays, x, k, starts[m])


@jit_entry(types.void(WINDOW_ARRAYS, _I, _F))
def typical(arrays: WindowArrays, selected: NDArray[np.int32], out: NDArray[np.float64]) -> None:
    for m in range(selected.size):
        out[m] = _start(arrays, selected[m])
