"""Evidence for single links: what one pair of NICs, one way, says beyond all that is explained elsewhere.

Per window and pair, the likelihood ratio of a slow link against a healthy one, averaged over slowdowns of 1.2 to 4.5
times before the logarithm is taken; the acknowledgements' share of it shows on the edges of the way back.  It has mean
at most 1 when nothing is wrong, so its running product, never let below 1, passes e^c at most once in e^c windows on
average (e-detectors: Shin, Ramdas and Rinaldo 2022).
"""

import numpy as np
from numba import float64, int32, types, uint32, void
from numpy.typing import NDArray

from faults.localisation.board import Board
from faults.localisation.entities import Links, Pairs
from faults.localisation.kernel import BOARD
from fleet.compiled import entry, part

_F, _I = float64[::1], int32[::1]
_LINKS = types.NamedTuple([_F, _F, uint32[::1]], Links)  # type: ignore[no-untyped-call]
_ONE = np.uint32(1)
MISFIT = 0.3
_PAIRS = types.NamedTuple([_I, _I, _I, _F, float64], Pairs)  # type: ignore[no-untyped-call]
SLOWDOWNS = np.log(np.array([1.2, 1.3, 1.45, 1.75, 2.4, 4.5]))
COUNT = 6
LOOK = 2.0  # scales: below, a pair without evidence need not be worked out
SPEAKS = 1.0  # nats in one window
MOST = 200.0
LEAST = 0.7  # nats: less is not remembered
ODD_SCALES = 6.0


@part
def _add(board: Board, edge: int, feels: float, totals: NDArray[np.float64]) -> None:
    """The log likelihood ratios of one edge."""
    nu, unit = board.tail[edge], 1.0 / board.scale[edge]
    left = board.residual[edge] * unit
    half = 0.5 * (nu + 1.0)
    null = 1.0 + left * left / nu
    for i in range(COUNT):
        gap = left - feels * SLOWDOWNS[i] * unit
        totals[i] += half * np.log(null / (1.0 + gap * gap / nu))


@part
def _speaks(board: Board, edge: int, explained: NDArray[np.float64]) -> bool:
    residual = board.residual[edge]
    heard: bool = residual == residual and explained[edge] <= 0.0  # noqa: PLR0124 - NaN
    return heard


@part
def _nats(totals: NDArray[np.float64]) -> tuple[float, int]:
    best = 0
    for i in range(COUNT):
        if totals[i] > totals[best]:
            best = i
    mean = 0.0
    for i in range(COUNT):
        mean += np.exp(totals[i] - totals[best])
    return totals[best] + np.log(mean / COUNT), best


@part
def _look(
    board: Board,
    pair: NDArray[np.int32],
    explained: NDArray[np.float64],
    looked: NDArray[np.bool_],
) -> float:
    """Mark the pairs whose edges ask for a look; the share of edges that nothing explains."""
    heard, strange = 0, 0
    for edge in range(pair.size):
        residual, scale, much = board.residual[edge], board.scale[edge], explained[edge]
        if residual != residual:  # noqa: PLR0124 - NaN
            continue
        heard += 1
        if residual > LOOK * scale:
            if much <= 0.0:
                looked[pair[edge]] = True
            strange += residual - much > ODD_SCALES * np.sqrt(scale * scale + (MISFIT * much) ** 2)
    return strange / heard if heard else np.nan


@entry(void(BOARD, _PAIRS, _I, _F, _F, _F, _LINKS, float64, _LINKS, _F))
def gather(  # noqa: PLR0917 - compiled code takes no keywords
    board: Board,
    pairs: Pairs,
    pair: NDArray[np.int32],  # per edge
    explained: NDArray[np.float64],
    fresh: NDArray[np.float64],  # per edge: share of the variance that is new in each window; 0 while it is young
    slow: NDArray[np.float64],  # per pair: filled with the slowdown that fits best
    old: Links,
    from_s: float,
    new: Links,
    odd: NDArray[np.float64],  # [0]: share of edges that nothing explains
) -> None:
    """One window more."""
    totals, looked = np.empty(COUNT), np.zeros(old.nats.size, np.bool_)
    odd[0] = _look(board, pair, explained, looked)
    for p in range(old.nats.size):
        known = old.nats[p]
        new.hits[p], new.since[p], new.nats[p], slow[p] = old.hits[p] << _ONE, old.since[p], 0.0, 0.0
        if known <= 0.0 and not looked[p]:
            continue
        count, share = 0, 0.0
        totals[:] = 0.0
        for at in range(pairs.first[p], pairs.first[p + 1]):
            edge = pairs.edge[at]
            if _speaks(board, edge, explained):
                count += 1
                share += fresh[edge]
                _add(board, edge, pairs.feels[edge], totals)
        if not count:
            new.nats[p] = known  # not heard, or explained: nothing is learnt
            continue
        back = pairs.back[p]
        if back >= 0:
            for at in range(pairs.first[back], pairs.first[back + 1]):
                if _speaks(board, pairs.edge[at], explained):
                    _add(board, pairs.edge[at], pairs.leak * pairs.feels[pairs.edge[at]], totals)
        nats, best = _nats(totals)
        part_of = share / count if known > 0.0 and nats > 0.0 else 1.0
        total = min(MOST, max(known + part_of * nats, nats))
        new.nats[p] = total if total > LEAST else 0.0
        slow[p] = SLOWDOWNS[best]
        if nats > SPEAKS:
            new.hits[p] |= _ONE
        if known <= 0.0:
            new.since[p] = from_s
