"""Evidence of one-way probes against NICs and links: a likelihood ratio over the time of onset and the slowdown.

A probe's r (`probe_ratios`) is, with shares W, B and F, at the link's rate, among the job's bytes, or too fast, because
a halted sender or a shaper's burst let the second half catch up.  A share H of the trains from a slow sender queues
again behind the job's bytes at the receiver.  Their wait (exponential, of a train's length) lets the second half catch
up, completely if it exceeds the sender's delay; such a train has the usual time and must not clear the sender or a
link.  Only trains at the rate of a support a: slower trains met bytes, as several in a row do while a host stalls.
Further hypotheses are found without the pairs of the first.  Formulas: docs/explanation/faults/slow.md, "Probes"
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Direction
from faults.fabric import Floats, Ints
from faults.observations import Observation
from faults.slow.probe_ratios import Probes
from faults.slow.sparse_fit import Entity

WIRE, COMPETING, FAST = 0.7, 0.25, 0.05  # shares, of trains of 64 KiB in a busy job (November 2026)
HELD: Final = COMPETING / 2  # of them, at the target
SIGMA: Final = 0.02  # measured 0.002 to 0.01
MAX_FASTER, MAX_SLOWER = 2.5, 4.0  # of r
BIN: Final = 0.02
SMOOTH: Final[Floats] = np.array([1.0, 2.0, 3.0, 2.0, 1.0]) / 9.0
PRIOR: Final = 50.0  # weight of the formula, in probes
KEPT: Final = 4000.0  # probes that determine the healthy density
MAX_NATS: Final = 7.0  # of one probe; a second direction of a NIC needs more than one
AGREES: Final = 4.0  # sigmas above a, beyond which a probe does not support it
MAX_SOCKET_NATS: Final = 6.0  # that sockets add to probes: on a loaded host their noise is not independent
MIN: Final = 0.06  # of r, below which nothing is examined closer
SINCE_S: Final = (1.0, 1.5, 2.0, 2.5, 3.5, 5.0, 6.0, 7.0)  # moments of onset, before now
MAX: Final = 4  # entities at once
CLOSER_S: Final = 2.5  # of the probes that trigger a closer examination
CENTRES: Final[Floats] = np.arange(-MAX_FASTER, MAX_SLOWER, BIN) + BIN / 2
SLOWDOWNS: Final[Floats] = np.arange(np.log(1.1), np.log(30.0), 1.5 * SIGMA)
Table = dict[Direction, tuple[Floats, Floats]]  # per hypothesis its gain, and at which slowdown


@dataclass(frozen=True, slots=True)
class Probed:
    """Likelihood ratios of one evaluation, a line per pair; empty without probes."""

    nodes: int
    own: bool  # against each pair's past; otherwise against the others
    pairs: Ints
    nats: Floats  # line x moment of onset x slowdown: out of a NIC, or on a link
    into: Floats  # the same into a NIC

    def entities(self, false_per_window: float, of_sockets: Mapping[Direction, Floats]) -> tuple[Entity, ...]:
        """Return the entities that probes support, and that probes and sockets together pay for.

        `of_sockets`: the gain of each hypothesis by sockets, per node or per pair; empty without a baseline.
        """
        left, found = self, list[Entity]()
        while len(found) < MAX and len(left.pairs):
            best = left.best(false_per_window, of_sockets)
            if best is None:
                break
            found.append(best)
            left = left.less(best)
        return tuple(found)

    def best(self, false_per_window: float, of_sockets: Mapping[Direction, Floats]) -> Entity | None:
        moments = float(np.log(len(SINCE_S)))
        nic = float(np.log(self.nodes / false_per_window)) + moments
        link = float(np.log(max(2, len(self.pairs)) / false_per_window)) + moments
        prices = {Direction.TX: nic, Direction.RX: nic, Direction.BOTH: 2 * nic, Direction.FORWARD: link}
        best: tuple[float, Entity | None] = (0.0, None)
        for way, (of_probes, slowdown) in self._tables().items():
            gain = of_probes + np.where(of_probes > MAX_NATS, self._beside(way, of_sockets), 0.0)
            at = int(gain.argmax())
            if gain[at] - prices[way] > best[0]:
                node, peer = self.pairs[at] if way is Direction.FORWARD else (at, None)
                best = float(gain[at]) - prices[way], _entity(int(node), peer, way, float(slowdown[at]))
        return best[1]

    def _beside(self, way: Direction, of_sockets: Mapping[Direction, Floats]) -> "Floats | float":
        if way not in of_sockets:
            return 0.0
        gain = of_sockets[way]
        return np.minimum(gain if gain.ndim == 1 else gain[self.pairs[:, 0], self.pairs[:, 1]], MAX_SOCKET_NATS)

    def less(self, entity: Entity) -> "Probed":
        slowed = entity.where(self.nodes)[self.pairs[:, 0], self.pairs[:, 1]]
        return Probed(self.nodes, self.own, self.pairs[~slowed], self.nats[~slowed], self.into[~slowed])

    def likely(self) -> Mapping[Entity, float]:
        found: dict[Entity, float] = {}
        for way, (gains, slowdown) in self._tables().items():
            gain = gains - MAX_NATS if way is Direction.BOTH else gains
            for at in np.flatnonzero(np.isfinite(gain)):
                node, peer = self.pairs[at] if way is Direction.FORWARD else (at, None)
                found[_entity(int(node), peer, way, float(slowdown[at]))] = float(gain[at])
        return found

    def _tables(self) -> Table:
        tx, rx = (self._nics(nats, side) for side, nats in enumerate((self.nats, self.into)))
        gain = np.where(np.isfinite(tx[0]) & np.isfinite(rx[0]), tx[0] + rx[0], -np.inf)
        return {
            Direction.TX: tx,
            Direction.RX: rx,
            Direction.BOTH: (gain, np.minimum(tx[1], rx[1])),
            Direction.FORWARD: _most(self.nats),
        }

    def _nics(self, nats: Floats, side: int) -> tuple[Floats, Floats]:
        """Return the ratios of all nodes' paths out, or in; one path alone is no NIC's."""
        lines = nats.reshape(len(nats), -1)
        of_node = self.pairs[:, side][None, :] == np.arange(self.nodes)[:, None]
        gain, slowdown = _most((of_node @ lines).reshape(self.nodes, *nats.shape[1:]))
        return np.where(of_node.sum(axis=1) >= 2, gain, -np.inf), slowdown


class Health:
    """The healthy probes of this job, and the log likelihood ratios derived from them."""

    def __init__(self) -> None:
        self._counts = np.zeros(CENTRES.size)
        self._known = -1.0
        self._table = np.empty((0, 0, 0))

    def take(self, ratios: Floats) -> None:
        np.add.at(self._counts, _bins(ratios), 1.0)
        if self._counts.sum() > KEPT:
            self._counts /= 2.0

    def table(self) -> Floats:
        """Return direction (out, in) x bin of r x slowdown, recomputed when the data has grown by a tenth."""
        total = float(self._counts.sum())
        if not self._table.size or not self._known <= total <= 1.1 * self._known + 10.0:
            self._table, self._known = _table(self._counts), total
        return self._table

    def tables_with(self, bins: Ints, groups: Ints) -> Floats:
        """Return, per group, the table with the probes of all other groups as healthy.

        Early on, a change common to many nodes is no fault of one.
        """
        of_group = np.zeros((int(groups.max(initial=0)) + 1, CENTRES.size))
        np.add.at(of_group, (groups, bins), 1.0)
        return np.stack([_table(self._counts + others) for others in of_group.sum(axis=0) - of_group])


@dataclass(frozen=True, slots=True)
class View:
    """The probes of one evaluation, relative to the past of each pair or to the others."""

    nodes: int
    own: bool
    pairs: Ints
    r: Floats  # line x probe
    at_s: Floats
    now_s: float
    health: Health

    @property
    def suspicious(self) -> bool:
        """Return whether both last probes of a pair are slow, or most recent ones out of a node or into one."""
        slow = self.r > MIN
        fresh = np.isfinite(self.r) & (self.at_s > self.now_s - CLOSER_S)
        weights = np.where(fresh, np.where(slow, 1.0, -1.0), 0.0).sum(axis=1)
        sides = [np.bincount(self.pairs[:, side], weights=weights) for side in (0, 1)]
        return bool(slow[:, -2:].all(axis=1).any() or any((side > 0.0).any() for side in sides))

    def probed(self) -> Probed:
        observed, bins = np.isfinite(self.r), _bins(self.r)
        since = (self.at_s[..., None] > self.now_s - np.array(SINCE_S)).astype(np.float64).transpose(0, 2, 1)
        out, into = (since @ np.where(observed[..., None], self._nats(bins, observed, side), 0.0) for side in (0, 1))
        return Probed(self.nodes, self.own, self.pairs, out, into)

    def _nats(self, bins: Ints, observed: NDArray[np.bool_], side: int) -> Floats:
        """Return line x probe x slowdown; against the others, without the probes of the same sender or receiver."""
        if self.own:
            return np.asarray(self.health.table()[side][bins])
        ends = np.broadcast_to(self.pairs[:, side, None], bins.shape)
        tables = self.health.tables_with(bins[observed], ends[observed])
        return np.asarray(tables[ends, side, bins])


class ProbeEvidence:
    def __init__(self, nodes: int, *, keep_s: float, baseline_age_s: float) -> None:
        self._nodes, self._health = nodes, Health()
        self._probes = Probes(nodes, keep_s=keep_s, baseline_age_s=baseline_age_s)

    def observe(self, observation: Observation) -> None:
        self._probes.observe(observation)

    def evaluate(self, now_s: float, *, suspected: bool) -> tuple[View, ...]:
        """Evaluate against the past and against the others; empty without probes."""
        self._health.take(self._probes.extend_baseline(now_s, suspected=suspected))
        ratios = self._probes.ratios(now_s - SINCE_S[-1])
        if ratios is None:
            return ()
        views = []
        for own, r in ((True, ratios.own), (False, ratios.peers)):
            observed = np.isfinite(r).any(axis=1)
            if observed.any():
                view = View(
                    self._nodes, own, ratios.pairs[observed], r[observed], ratios.at_s[observed], now_s, self._health
                )
                views.append(view)
        return tuple(views)


def _entity(node: int, peer: int | None, way: Direction, slowdown: float) -> Entity:
    return Entity(node, None if peer is None else int(peer), way, slowdown, slowdown if way is Direction.BOTH else 0.0)


def _most(nats: Floats) -> tuple[Floats, Floats]:
    flat = nats.reshape(len(nats), -1)
    at = flat.argmax(axis=1) if flat.size else np.zeros(len(nats), dtype=np.int64)
    return flat[np.arange(len(flat)), at], SLOWDOWNS[at % SLOWDOWNS.size]


def _table(counts: Floats) -> Floats:
    """Return direction (out, in) x bin of r x slowdown."""
    shown = np.convolve(counts, SMOOTH, mode="same") / BIN
    healthy = (shown + PRIOR * HEALTHY) / (float(counts.sum()) + PRIOR)
    return np.clip(LOG_SLOW - np.log(healthy)[:, None], -MAX_NATS, LIMIT)


def _density(r: Floats) -> Floats:
    found: Floats = WIRE * _normal(r) + np.where(r > 0, COMPETING * np.exp(-np.maximum(r, 0.0)), FAST / MAX_FASTER)
    return found


def _held() -> Floats:
    """Return the change of the density at each r out of a slow NIC, by the wait at the receiver."""
    r, slowest = CENTRES[:, None], np.exp(SLOWDOWNS)
    partly = np.where((r > 0.0) & (r < SLOWDOWNS), np.exp(r + np.minimum(np.exp(r), slowest) - slowest), 0.0)
    found: Floats = HELD * (_normal(r) * np.exp(1.0 - slowest) + partly - _normal(r - SLOWDOWNS))
    return found


def _normal(r: Floats) -> Floats:
    found: Floats = np.exp(-0.5 * (r / SIGMA) ** 2) / (SIGMA * np.sqrt(2.0 * np.pi))
    return found


def _bins(r: Floats) -> NDArray[np.int64]:
    return np.clip((np.nan_to_num(r) + MAX_FASTER) / BIN, 0, CENTRES.size - 1).astype(np.int64)


HEALTHY: Final = _density(CENTRES)
_SLOW = _density(CENTRES[:, None] - SLOWDOWNS)
LOG_SLOW: Final[Floats] = np.log(np.stack([_SLOW + _held(), _SLOW]))
LIMIT: Final[Floats] = np.where(CENTRES[:, None] > SLOWDOWNS + AGREES * SIGMA, 0.0, MAX_NATS)
