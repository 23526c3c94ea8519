"""Explains the slow pairs by NICs and links: a sparse fit over one window of a live job.

Each pair is observed by its sockets and, for one-way messages, by its delay; both are log slowdowns.  A fault slows
what it sends with amplitude a, and, because TCP's acknowledgements share the queue, the sockets of the opposite
direction with 0 <= c <= a, which is free.  A residual below -2 sigma is cut: a pair that became faster is no evidence.
A slow NIC slows more than one pair.  Entities are added one at a time, all amplitudes fitted again, and dropped if the
others explain as much.  `log_likelihoods` compares all hypotheses about the ends of one entity; their sums over
evaluations decide the diagnosis.  Objective: docs/explanation/faults/slow.md, "NIC, direction or link"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Direction
from faults.fabric import Floats, Ints

HUBER: Final = 3.0
FASTER_SIGMA: Final = 2.0
MAX: Final = 6  # entities at once
SWEEPS: Final = 4
IRLS: Final = 6
NICS: Final = (Direction.TX, Direction.RX, Direction.BOTH)


@dataclass(frozen=True, slots=True)
class Observed:
    """Log slowdowns of one window with their noise; NaN where unknown."""

    sockets: Floats
    sigma: Floats
    delays: Floats
    doubt: Floats  # the noise of the delays
    kind: Ints  # class per pair: links compete within theirs

    def __len__(self) -> int:
        return len(self.sockets)

    @property
    def turned(self) -> "Observed":
        """Return the transpose: receivers as senders."""
        return Observed(self.sockets.T, self.sigma.T, self.delays.T, self.doubt.T, self.kind.T)

    def only(self, lines: slice, columns: slice) -> "Observed":
        """Return the part of some senders and some receivers."""
        at = (lines, columns)
        return Observed(self.sockets[at], self.sigma[at], self.delays[at], self.doubt[at], self.kind[at])

    def pairs(self) -> int:
        return max(2, int(np.count_nonzero(np.isfinite(self.sockets) | np.isfinite(self.delays))))

    def less(self, entities: Sequence["Entity"]) -> "Observed":
        sockets, delays = self.sockets.copy(), self.delays.copy()
        for entity in entities:
            sockets -= entity.amplitudes(len(self))
            delays -= entity.late(len(self))
        return replace(self, sockets=sockets, delays=delays)

    def loss(self) -> float:
        return float(np.nansum(_loss(self.sockets / self.sigma)) + np.nansum(_loss(self.delays / self.doubt)))


@dataclass(frozen=True, slots=True)
class Entity:
    """A NIC (peer None) or a link from node to peer, with the log slowdowns that it adds in both directions."""

    node: int
    peer: int | None
    way: Direction  # forward for a link
    slowdown: float
    leak: float = 0.0

    @property
    def ends(self) -> frozenset[int]:
        return frozenset({self.node} if self.peer is None else {self.node, self.peer})

    @property
    def place(self) -> tuple[int, int | None]:
        return self.node, self.peer

    def amplitudes(self, nodes: int) -> Floats:
        return self._added(nodes, self.leak)

    def late(self, nodes: int) -> Floats:
        return self._added(nodes, self.leak if self.way in (Direction.BOTH, Direction.FORWARD) else 0.0)

    def where(self, nodes: int) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = self.amplitudes(nodes) > 0
        return mask

    def _added(self, nodes: int, back: float) -> Floats:
        added = np.zeros((nodes, nodes))
        if self.peer is not None:
            added[self.node, self.peer], added[self.peer, self.node] = self.slowdown, back
        elif self.way is Direction.RX:
            added[:, self.node], added[self.node, :] = self.slowdown, back
        else:
            added[self.node, :], added[:, self.node] = self.slowdown, back
        return added


@dataclass(frozen=True, slots=True)
class Gains:
    """The gain of each hypothesis of one kind over none, and its amplitudes: per node, or per pair."""

    gain: Floats
    slowdown: Floats
    leak: Floats

    def entity(self, node: int, peer: int | None, way: Direction) -> Entity:
        at = node if peer is None else (node, peer)
        return Entity(node, peer, way, float(self.slowdown[at]), float(self.leak[at]))


@dataclass(frozen=True, slots=True)
class _Prices:
    nic: float
    link: Floats  # per pair

    def of(self, entity: Entity) -> float:
        return self.nic if entity.peer is None else float(self.link[entity.node, entity.peer])


def explain(observed: Observed, *, false_per_window: float, false_beside: float | None = None) -> tuple[Entity, ...]:
    """Return the entities of the cheapest explanation; after the first, another price may apply."""
    cut = _cut(observed)
    prices = _prices(cut, false_per_window)
    beside = _prices(cut, false_per_window if false_beside is None else false_beside)
    chosen: list[Entity] = []
    if _nothing_in(cut, prices):
        return ()
    while len(chosen) < MAX:
        best = _best(cut.less(chosen), beside if chosen else prices, chosen)
        if best is None:
            break
        chosen = _dropped(_refit([*chosen, best], cut), cut, prices)
        if best.place not in {e.place for e in chosen}:
            break
    return tuple(chosen)


def _nothing_in(cut: Observed, prices: _Prices) -> bool:
    """Return whether the loss of all pairs would not pay for any entity: true of most windows, and quick to test."""
    sockets, delays = (_known(_loss(np.maximum(x, 0.0) / s)) for x, s in _both(cut))
    lost = sockets + delays
    nics = lost.sum(axis=0) + lost.sum(axis=1)
    return bool(nics.max(initial=0.0) < prices.nic and (lost + lost.T < prices.link).all())


def _both(left: Observed) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    return (left.sockets, left.sigma), (left.delays, left.doubt)


def log_likelihoods(observed: Observed, entity: Entity, others: Sequence[Entity]) -> Mapping[Entity, float]:
    """Return the log likelihood of all hypotheses that share an end with an entity, beside the other entities."""
    left = _cut(observed).less(others)
    gains = _gains(left, 0.5 * float(np.log(left.pairs())))
    ends = sorted(entity.ends)
    found = {gains[way].entity(k, None, way): float(gains[way].gain[k]) for way in NICS for k in ends}
    links = gains[Direction.FORWARD]
    for i, j in np.argwhere(links.gain > 0):
        if entity.ends & {int(i), int(j)}:
            found[links.entity(int(i), int(j), Direction.FORWARD)] = float(links.gain[i, j])
    return found


def gains(observed: Observed) -> dict[Direction, Floats]:
    """Return the gain of each hypothesis over none, per node or per pair."""
    cut = _cut(observed)
    return {way: of_way.gain for way, of_way in _gains(cut, 0.5 * float(np.log(cut.pairs()))).items()}


def count_disjoint_pairs(slow: NDArray[np.bool_]) -> int:
    """Return the least number of nodes that can account for the pairs: the number of pairs that share no end."""
    used: set[int] = set()
    count = 0
    for i, j in np.argwhere(slow):
        if not used & {int(i), int(j)}:
            used |= {int(i), int(j)}
            count += 1
    return count


def _cut(observed: Observed) -> Observed:
    known = np.isfinite(observed.sockets) & np.isfinite(observed.sigma)
    finite = np.isfinite(observed.delays) & np.isfinite(observed.doubt)
    return replace(
        observed,
        sockets=np.where(known, np.maximum(observed.sockets, -FASTER_SIGMA * observed.sigma), np.nan),
        delays=np.where(finite, np.maximum(observed.delays, -FASTER_SIGMA * observed.doubt), np.nan),
    )


def _prices(observed: Observed, false_per_window: float) -> _Prices:
    link = np.full(observed.kind.shape, np.inf)
    for number in np.unique(observed.kind[observed.kind >= 0]):
        inside = observed.kind == number
        link[inside] = np.log(max(2, int(np.count_nonzero(inside))) / false_per_window)
    return _Prices(float(np.log(len(observed) / false_per_window)), link)


def _gains(left: Observed, second: float) -> dict[Direction, Gains]:
    turned = left.turned
    out, into = _shift(_without_others(left)), _shift(_without_others(turned))
    back_out = _shift((turned.sockets, turned.sigma), out.slowdown)
    back_into = _shift((left.sockets, left.sigma), into.slowdown)
    return {
        Direction.TX: _with(out, back_out, second),
        Direction.RX: _with(into, back_into, second),
        Direction.BOTH: _with(out, into, second, always=True),
        Direction.FORWARD: _links(left, turned, second),
    }


def _fitted(entity: Entity, left: Observed, second: float) -> Entity:
    """Return the same hypothesis with the best amplitudes for the residual: `_gains` of this one alone."""
    whole, node = slice(None), slice(entity.node, entity.node + 1)
    columns = whole if entity.peer is None else slice(entity.peer, entity.peer + 1)
    ahead, turned = left.only(node, columns), left.turned.only(node, columns)
    if entity.peer is not None:
        gains = _links(ahead, turned, second)
    elif entity.way is Direction.BOTH:
        gains = _with(_shift(_without_others(ahead)), _shift(_without_others(turned)), second, always=True)
    else:
        main, back = (ahead, turned) if entity.way is Direction.TX else (turned, ahead)
        found = _shift(_without_others(main))
        gains = _with(found, _shift((back.sockets, back.sigma), found.slowdown), second)
    return replace(entity, slowdown=float(gains.slowdown.flat[0]), leak=float(gains.leak.flat[0]))


def _with(main: Gains, leak: Gains, second: float, *, always: bool = False) -> Gains:
    worth = leak.gain > second
    gain = main.gain + np.where(worth, leak.gain - second, 0.0)
    if always:
        gain = np.where(worth & (main.gain > 0), gain, 0.0)
    return Gains(np.where(main.gain > 0, gain, 0.0), main.slowdown, np.where(worth, leak.slowdown, 0.0))


def _links(left: Observed, turned: Observed, second: float) -> Gains:
    """Return the gains per pair; sockets and delays of one pair share the amplitude, weighted by their noise."""
    slowdown, gain = _pooled(left, np.full(left.sockets.shape, np.inf))
    leak, back = _pooled(turned, slowdown)
    return _with(Gains(gain, slowdown, leak), Gains(back, leak, leak), second)


def _pooled(left: Observed, most: Floats) -> tuple[Floats, Floats]:
    parts = [(np.isfinite(x) & np.isfinite(sigma), x, sigma) for x, sigma in _both(left)]
    weights = [np.where(known, 1.0 / sigma**2, 0.0) for known, _, sigma in parts]
    known_values = [np.where(known, x, 0.0) for known, x, _ in parts]
    total = np.maximum(weights[0] + weights[1], 1e-12)
    amplitude = np.clip((weights[0] * known_values[0] + weights[1] * known_values[1]) / total, 0.0, most)
    gain = np.zeros_like(amplitude)
    for known, x, sigma in parts:
        gain += np.where(known, _loss(x / sigma) - _loss((x - amplitude) / sigma), 0.0)
    return amplitude, np.maximum(gain, 0.0)


def _known(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, 0.0)


def _without_others(left: Observed) -> tuple[Floats, Floats]:
    return np.hstack([left.sockets, left.delays]), np.hstack([left.sigma, left.doubt])


def _shift(values: tuple[Floats, Floats], most: Floats | None = None) -> Gains:
    """Return, per row, the common amplitude from 0 to `most` with the least Huber loss, and its gain.

    A row with fewer than two known values is no NIC's; nor is one of which a single value shows half of the amplitude.
    """
    left, sigma = values
    known = np.isfinite(left) & np.isfinite(sigma)
    root = np.where(known, 1.0 / np.where(known, sigma, 1.0), 0.0)
    w = root**2
    x = np.where(known, left, 0.0)
    amplitude = (w * x).sum(axis=1) / np.maximum(w.sum(axis=1), 1e-12)
    for _ in range(IRLS):
        z = np.abs(x - amplitude[:, None]) * root
        weight = w * np.minimum(1.0, HUBER / np.maximum(z, 1e-9))
        amplitude = (weight * x).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-12)
    amplitude = np.clip(amplitude, 0.0, np.inf if most is None else most)
    gain = _loss(x * root).sum(axis=1) - _loss((x - amplitude[:, None]) * root).sum(axis=1)
    shared = (known & (x > 0.5 * amplitude[:, None])).sum(axis=1)
    good = (gain > 0) & (shared >= 2)
    return Gains(np.where(good, gain, 0.0), np.where(good, amplitude, 0.0), np.zeros_like(gain))


def _best(left: Observed, prices: _Prices, chosen: Sequence[Entity]) -> Entity | None:
    gains = _gains(left, 0.5 * float(np.log(left.pairs())))
    best: tuple[float, Entity | None] = (0.0, None)
    taken = {e.place for e in chosen}
    for way, of_way in gains.items():
        nic = way is not Direction.FORWARD
        gain = of_way.gain - (prices.nic if nic else prices.link)
        for place in taken:
            if nic is (place[1] is None):
                gain[place[0] if nic else place] = -np.inf
        at = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[at] > best[0]:
            best = float(gain[at]), of_way.entity(int(at[0]), None if nic else int(at[1]), way)
    return best[1]


def _refit(chosen: list[Entity], observed: Observed) -> list[Entity]:
    """Fit all amplitudes together, by sweeps over one at a time."""
    if len(chosen) < 2:
        return chosen
    second = 0.5 * float(np.log(observed.pairs()))
    for _ in range(SWEEPS):
        for at, entity in enumerate(chosen):
            left = observed.less([*chosen[:at], *chosen[at + 1 :]])
            chosen[at] = _fitted(entity, left, second)
    return chosen


def _dropped(chosen: list[Entity], observed: Observed, prices: _Prices) -> list[Entity]:
    """Drop entities that the others have made worth less than their price."""
    kept = list(chosen)
    for entity in chosen:
        rest = [e for e in kept if e is not entity]
        if observed.less(rest).loss() - observed.less(kept).loss() < prices.of(entity):
            kept = rest
    return kept


def _loss(z: Floats) -> Floats:
    size = np.abs(z)
    return np.where(size <= HUBER, 0.5 * size**2, HUBER * size - 0.5 * HUBER**2)
