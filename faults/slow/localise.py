"""Which NICs and links explain the slow pairs: a sparse fit over one window of a live job.

    s_ij = sum over chosen NICs k of (r_k [i = k] + c_k [j = k]) + sum over chosen links l_ij + noise
    minimise  sum rho((s_ij - fit_ij) / sigma_ij) + sum of prices,     rho: Huber, quadratic to 3 sigma
    price     log(number of candidates of its kind / false_per_window) + 1/2 log(number of pairs) per further amplitude

A NIC has two amplitudes, for its row (what it sends) and its column (what it receives), both free and >= 0: with
TCP the acknowledgements share the slow queue, so a slow Tx slows the column as well, and how much is not assumed.
What is left of a pair that got faster is cut at -2 sigma: it accuses nobody.  A slow NIC slows most of what goes
through it: a row or a column counts only when at least half of its pairs show half of its amplitude, and a NIC needs
two pairs; a slow link whose neighbours on the ring wait for it would otherwise pass for a NIC.
Entities are chosen one at a time, their amplitudes fitted anew together, and dropped again where the others explain as
much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats

HUBER: Final = 3.0
FASTER_SIGMA: Final = 2.0
MOST: Final = 6  # entities at once
SUPPORT: Final = 0.5  # of the pairs of a row or a column
SWEEPS: Final = 8
IRLS: Final = 8


@dataclass(frozen=True, slots=True)
class Entity:
    """A NIC (peer None) or a link from node to peer, with the log slowdown that it adds."""

    node: int
    peer: int | None
    row: float  # of a link: its own
    column: float = 0.0

    @property
    def slowdown(self) -> float:
        """The greater of both."""
        return max(self.row, self.column)

    @property
    def ends(self) -> frozenset[int]:
        """The nodes it touches."""
        return frozenset({self.node} if self.peer is None else {self.node, self.peer})

    def amplitudes(self, nodes: int) -> Floats:
        """What it adds to the log slowdown of each pair."""
        added = np.zeros((nodes, nodes))
        if self.peer is not None:
            added[self.node, self.peer] = self.row
        else:
            added[self.node, :] = self.row
            added[:, self.node] += self.column
        return added

    def where(self, nodes: int) -> NDArray[np.bool_]:
        """The pairs that it slows."""
        mask: NDArray[np.bool_] = self.amplitudes(nodes) > 0
        return mask


def explain(slowdown: Floats, sigma: Floats, *, false_per_window: float) -> tuple[Entity, ...]:
    """The entities of the cheapest explanation found."""
    known = np.isfinite(slowdown) & np.isfinite(sigma)
    s = np.where(known, np.maximum(slowdown, -FASTER_SIGMA * sigma), np.nan)
    prices = _prices(known, false_per_window)
    chosen: list[Entity] = []
    while len(chosen) < MOST:
        best = _best(s - _fit(chosen, len(s)), sigma, prices, chosen)
        if best is None:
            break
        chosen = _dropped(_refit([*chosen, best], s, sigma), s, sigma, prices)
        if best.node not in {e.node for e in chosen}:
            break
    return tuple(chosen)


def _prices(known: NDArray[np.bool_], false_per_window: float) -> tuple[float, float]:
    """Of a NIC and of a link."""
    pairs = max(2, int(np.count_nonzero(known)))
    nic = np.log(len(known) / false_per_window) + 0.5 * np.log(pairs)
    return float(nic), float(np.log(pairs / false_per_window))


def _best(left: Floats, sigma: Floats, prices: tuple[float, float], chosen: Sequence[Entity]) -> Entity | None:
    """The entity that gains most above its price, if any does."""
    rows, row_gain, row_pairs = _shift(left, sigma)
    columns, column_gain, column_pairs = _shift(left.T, sigma.T)
    nic = np.where(row_pairs + column_pairs >= 2, row_gain + column_gain, 0.0) - prices[0]
    nic[[e.node for e in chosen if e.peer is None]] = -np.inf
    link = np.nan_to_num(_loss(left / sigma) - _loss(np.minimum(left, 0.0) / sigma)) - prices[1]
    for e in chosen:
        if e.peer is not None:
            link[e.node, e.peer] = -np.inf
    at = np.unravel_index(int(link.argmax()), link.shape)
    k = int(nic.argmax())
    if max(nic[k], link[at]) <= 0:
        return None
    if nic[k] >= link[at]:
        return Entity(k, None, float(rows[k]), float(columns[k]))
    return Entity(int(at[0]), int(at[1]), float(left[at]))


def _shift(left: Floats, sigma: Floats) -> tuple[Floats, Floats, Floats]:
    """Per row the common amplitude >= 0 that Huber's loss likes best, its gain, and the pairs that share it."""
    known = np.isfinite(left) & np.isfinite(sigma)
    w = np.where(known, 1.0 / np.where(known, sigma, 1.0) ** 2, 0.0)
    x = np.where(known, left, 0.0)
    amplitude = np.array([np.median(row[seen]) if seen.any() else 0.0 for row, seen in zip(x, known, strict=True)])
    for _ in range(IRLS):
        z = np.abs(x - amplitude[:, None]) * np.sqrt(w)
        weight = w * np.minimum(1.0, HUBER / np.maximum(z, 1e-9))
        total = weight.sum(axis=1)
        amplitude = np.where(total > 0, (weight * x).sum(axis=1) / np.maximum(total, 1e-12), 0.0)
    amplitude = np.maximum(amplitude, 0.0)
    root = np.sqrt(w)
    gain = _loss(x * root).sum(axis=1) - _loss((x - amplitude[:, None]) * root).sum(axis=1)
    pairs = (known & (x > 0.5 * amplitude[:, None]) & (amplitude[:, None] > 0)).sum(axis=1).astype(np.float64)
    good = (gain > 0) & (pairs >= SUPPORT * known.sum(axis=1))
    return np.where(good, amplitude, 0.0), np.where(good, gain, 0.0), np.where(good, pairs, 0.0)


def _refit(chosen: list[Entity], s: Floats, sigma: Floats) -> list[Entity]:
    """All amplitudes together, by sweeps over one at a time; the loss is convex."""
    if len(chosen) < 2:
        return chosen
    for _ in range(SWEEPS):
        for at, entity in enumerate(chosen):
            left = s - _fit([*chosen[:at], *chosen[at + 1 :]], len(s))
            chosen[at] = _amplitudes(entity, left, sigma)
    return chosen


def _amplitudes(entity: Entity, left: Floats, sigma: Floats) -> Entity:
    k = entity.node
    if entity.peer is not None:
        return replace(entity, row=max(0.0, float(left[k, entity.peer])))
    row, _, _ = _shift(left[k : k + 1], sigma[k : k + 1])
    column, _, _ = _shift(left[:, k][None, :], sigma[:, k][None, :])
    return replace(entity, row=float(row[0]), column=float(column[0]))


def _dropped(chosen: list[Entity], s: Floats, sigma: Floats, prices: tuple[float, float]) -> list[Entity]:
    """Without those that the others have made worth less than their price."""
    kept = list(chosen)
    for entity in chosen:
        rest = [e for e in kept if e is not entity]
        gain = _total(s - _fit(rest, len(s)), sigma) - _total(s - _fit(kept, len(s)), sigma)
        if gain < prices[0 if entity.peer is None else 1]:
            kept = rest
    return kept


def _fit(chosen: Sequence[Entity], nodes: int) -> Floats:
    fit = np.zeros((nodes, nodes))
    for entity in chosen:
        fit += entity.amplitudes(nodes)
    return fit


def _total(left: Floats, sigma: Floats) -> float:
    return float(np.nansum(_loss(left / sigma)))


def _loss(z: Floats) -> Floats:
    """Huber's rho."""
    size = np.abs(z)
    return np.where(size <= HUBER, 0.5 * size**2, HUBER * size - 0.5 * HUBER**2)
