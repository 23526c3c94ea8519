"""Probes of each pair of NICs against its usual, and the rate of congestion on their paths.

A probe goes one way over its own paths, so its ends or congestion on those paths slow it, and no acknowledgement or
other message.  Its usual is learnt like an edge's (`history`).  Congestion on probe paths is counted where the traffic
of the pair contradicts: runs that begin, per pair and window, for pairs within a leaf and between leaves.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from faults.fabric import NOWHERE, Fabric, Floats, Window
from faults.localisation import history as usual
from faults.localisation.entities import Indices
from faults.localisation.history import History
from faults.localisation.settings import LocaliserSettings

SHORT = 2.0  # times: half of the congestion ends before it is counted, at a mean of 30 s
KEPT = 3  # windows of residuals
UNEVEN = 0.1  # hashing is uneven, and several cables may be congested at once
MEMORY = 0.999  # per window, of what was counted
AWAY_FIRST = 600.0  # pairs and windows in which a run is expected over one path, before any was counted
AWAY_MAX = 1e10  # a week of all pairs of a large job: nothing rarer can be claimed
REFUTED = 1e3  # one counted run refutes the guess of how ports are hashed: so little of it is left
NEAR_FIRST = 1e9  # within a leaf no cable lies on the path, only both ends and the switch


class Strange(NamedTuple):
    """Runs of slow probes that traffic contradicts, and pairs times windows, within leaves and between."""

    near: float
    near_of: float
    away: float
    away_of: float

    def nats(self, first_away: float) -> tuple[float, float]:
        """Return the log odds against a run that begins in a window: (within a leaf, between leaves)."""
        near = SHORT * (self.near + 1.0) / (self.near_of + NEAR_FIRST)
        away = SHORT * (self.away + 1.0) / (self.away_of + first_away / (1.0 + REFUTED * self.away))
        return -float(np.log(near)), -float(np.log(away))


class Probes(NamedTuple):
    """Probe state of all pairs between windows."""

    history: History
    run: NDArray[np.uint8]  # per pair: windows in a row as an outlier
    strange: Strange
    last: tuple[Floats, ...]  # residuals of the windows before, newest first


class Reading(NamedTuple):
    """Probe values of all pairs in one window; NaN without a probe."""

    residual: Floats
    scale: Floats
    tail: Floats


class Probed(Protocol):
    @property
    def measured(self) -> Floats: ...
    @property
    def known(self) -> History: ...
    @property
    def level(self) -> float: ...
    @property
    def reading(self) -> Reading: ...


class Ways(NamedTuple):
    """The pairs of each NIC, and which of them leave their leaf."""

    out_first: Indices
    out: Indices
    into_first: Indices
    into: Indices
    away: NDArray[np.bool_]  # per pair; an unknown leaf is a different one
    first_away: float  # as AWAY_FIRST, with the fastest of several paths

    def most(self, strange: Strange) -> Floats:
        """Return, per pair, the largest support in nats that its probes may give to a link."""
        near, away = strange.nats(self.first_away)
        return np.where(self.away, away, near)


def ways(fabric: Fabric, pair: Indices, pairs: int, *, ports: int) -> Ways:
    source, target = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    source[pair], target[pair] = fabric.source, fabric.target
    begin, end = fabric.leaf[source], fabric.leaf[target]
    first = [np.concatenate([[0], np.cumsum(np.bincount(of, minlength=fabric.node.size))]) for of in (source, target)]
    order = [np.argsort(of, kind="stable") for of in (source, target)]
    return Ways(
        first[0].astype(np.int32), order[0].astype(np.int32), first[1].astype(np.int32), order[1].astype(np.int32),
        (begin != end) | (begin < 0), _first_away(fabric, ports),
    )  # fmt: skip


def _first_away(fabric: Fabric, ports: int) -> float:
    """Congestion slows all probes of a pair if the other paths take the same cable, one in S each."""
    known = fabric.up != NOWHERE
    leaves = np.unique(fabric.leaf[fabric.source[known]]).size
    cables = np.unique(fabric.up[known]).size / max(leaves, 1)
    return float(min(AWAY_FIRST * max(1.0, UNEVEN * max(cables, 1.0) ** (ports - 1)), AWAY_MAX))


def start(pairs: int, settings: LocaliserSettings) -> Probes:
    """Return an empty state."""
    return Probes(usual.start(pairs, settings, kinds=1), np.zeros(pairs, np.uint8), Strange(0.0, 0.0, 0.0, 0.0), ())


def samples(pairs: int) -> Indices:
    """Return the pairs in medians: evenly spaced."""
    return np.arange(0, pairs, max(1, pairs // usual.SAMPLE), dtype=np.int32)


def per_pair(window: Window, edge: Indices) -> Floats | None:
    """Return the probes by the first edge of each pair, without pairs with foreign traffic."""
    if window.probed is None:
        return None
    measured = window.probed[edge]
    return measured if window.foreign is None else np.where(window.foreign[edge], np.nan, measured)


def read(
    before: History, measured: Floats, sample: Indices, settings: LocaliserSettings
) -> tuple[History, float, Reading]:
    """Return (updated scales, level of this window, reading)."""
    from faults.localisation.probe_kernels import measure  # noqa: PLC0415 - compiles

    known, level, outlying = usual.measures(before, measured, None, (sample.astype(np.int64),), settings)
    reading = Reading(*np.empty((3, measured.size)))
    noise2, spread2 = known.noise[0] ** 2 + usual.MIN_SCALE**2, known.spread[0] ** 2
    measure(
        measured - level[0],
        known.usual.mean,
        known.usual.windows,
        noise2,
        spread2,
        outlying[0],
        settings.spread_tail,
        *reading,
    )
    return known, float(level[0]), reading


def learnt(  # noqa: PLR0917 - arrays of one window
    before: Probes, probed: Probed, doubtful: NDArray[np.bool_], traffic: Floats, of: Ways, settings: LocaliserSettings
) -> Probes:
    """Add one window.  `doubtful`: suspected pairs; `traffic`: per pair, nats for a slow link; NaN: none."""
    from faults.localisation.probe_kernels import learn  # noqa: PLC0415 - compiles

    known, old = probed.known, probed.known.usual
    mean, windows, run = np.empty_like(old.mean), np.empty_like(old.windows), np.empty_like(before.run)
    counts = np.zeros(4)
    learn(
        probed.reading.residual, probed.reading.scale, old.mean, old.windows, doubtful, traffic, of.away, before.run,
        float(known.noise[0] / known.spread[0]) ** 2, float(settings.warm_windows), float(settings.memory_windows),
        float(known.age[0] > 1), mean, windows, run, counts,
    )  # fmt: skip
    fresh = old._replace(mean=mean, windows=windows)
    strange = Strange(*(MEMORY * was + now for was, now in zip(before.strange, counts, strict=True)))
    history = usual.replaced(known, fresh, (probed.measured - probed.level).astype(np.float32))
    return Probes(history, run, strange, (probed.reading.residual, *before.last)[:KEPT])
