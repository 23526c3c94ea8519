"""Probes of each pair of NICs against its usual, and the rate of congestion on their paths.

A probe goes one way over its own paths, so its ends or congestion on those paths slow it, and no acknowledgement or
other message.  Its usual is learnt like an edge's (`history`).  Congestion on probe paths is counted where the traffic
of the pair contradicts: runs that begin, per pair and window, for pairs within a leaf and between leaves.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import NOWHERE, Fabric, Floats, Window
from faults.localisation import history as usual
from faults.localisation.entities import Indices, ends_of_pairs
from faults.localisation.history import History
from faults.localisation.settings import LocaliserSettings

SHORT = 2.0  # times: half of the congestion ends before it is counted, at a mean of 30 s
KEPT = 3  # windows of residuals
UNEVEN = 0.1  # hashing is uneven, and several cables may be congested at once
MEMORY = 0.999  # per window, of what was counted
AWAY_FIRST = 600.0  # pairs and windows in which a run is expected over one path, before any was counted
AWAY_MAX = 1e10  # a week of all pairs of a large job: nothing rarer can be claimed
REFUTED = 1e3  # one counted run refutes the guess of how ports are hashed: so little of it is left
NU = 4.0
WINSOR = 2.0  # scales: the largest step of one window
FAR = 4.5  # scales, above which a young history learns nothing
RUN = 4  # windows: noise alone (t4) is beyond 6 scales in so many once in 10^11, and a hiccup touches three
OUTLIER_SCALES = 6.0  # scales
CONTRADICTS = -3.0  # nats of a window's traffic: slightly slow links have less
MAX_RUN = 250  # windows for which a run is counted
NEAR_FIRST = 1e9  # within a leaf no cable lies on the path, only both ends and the switch


class CongestionCounts(NamedTuple):
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
    history: History
    run: NDArray[np.uint8]  # per pair: windows in a row as an outlier
    congestion: CongestionCounts
    last: tuple[Floats, ...]  # residuals of the windows before, newest first


class Reading(NamedTuple):
    """Probe values of all pairs in one window; NaN without a probe."""

    residual: Floats
    scale: Floats
    tail: Floats


class Probed(NamedTuple):
    """The probes of one window: their values, the updated scales, the level, and the values relative to history."""

    measured: Floats
    known: History
    level: float
    reading: Reading


class Ways(NamedTuple):
    """The pairs of each NIC, and which of them leave their leaf."""

    out_first: Indices
    out: Indices
    into_first: Indices
    into: Indices
    away: NDArray[np.bool_]  # per pair; an unknown leaf is a different one
    first_away: float  # as AWAY_FIRST, with the fastest of several paths

    def most(self, congestion: CongestionCounts) -> Floats:
        """Return, per pair, the largest support in nats that its probes may give to a link."""
        near, away = congestion.nats(self.first_away)
        return np.where(self.away, away, near)


def ways(fabric: Fabric, pair: Indices, pairs: int, *, ports: int) -> Ways:
    source, target = ends_of_pairs(fabric, pair, pairs)
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
    return Probes(
        usual.start(pairs, settings, kinds=1), np.zeros(pairs, np.uint8), CongestionCounts(0.0, 0.0, 0.0, 0.0), ()
    )


def samples(pairs: int) -> Indices:
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
    known, level, outlying = usual.measures(before, measured, None, (sample.astype(np.int64),), settings)
    noise2, spread2 = known.noise[0] ** 2 + usual.MIN_SCALE**2, known.spread[0] ** 2
    variance = noise2 * outlying[0] + 1.0 / (1.0 / spread2 + known.usual.windows.astype(np.float64) / noise2)
    flat = 1.0 / settings.spread_tail
    tail = 1.0 / (flat + (1.0 / NU - flat) * noise2 * outlying[0] / variance)
    return known, float(level[0]), Reading(measured - level[0] - known.usual.mean, np.sqrt(variance), tail)


def learnt(  # noqa: PLR0917 - arrays of one window
    before: Probes, probed: Probed, doubtful: NDArray[np.bool_], traffic: Floats, of: Ways, settings: LocaliserSettings
) -> Probes:
    """Add one window.  `doubtful`: suspected pairs; `traffic`: per pair, nats for a slow link; NaN: none."""
    known, old, (residual, scale, _) = probed.known, probed.known.usual, probed.reading
    z = residual / scale
    observed, outlier = np.isfinite(z), z > OUTLIER_SCALES
    begun = outlier & (before.run + np.uint8(1) == RUN) & (traffic <= CONTRADICTS)
    run = np.where(outlier, np.minimum(before.run + np.uint8(1), MAX_RUN), 0).astype(np.uint8)
    counts = [float(np.count_nonzero(of_way & side)) for side in (~of.away, of.away) for of_way in (begun, observed)]
    young = old.windows < float(settings.warm_windows)
    learning = observed & ~doubtful & ~(young & (np.abs(z) > FAR)) & (known.age[0] > 1)  # the first has no scatter
    windows = np.minimum(old.windows + np.float32(1.0), np.float32(settings.memory_windows))
    ratio = float(known.noise[0] / known.spread[0]) ** 2
    mean = old.mean + np.clip(z, -WINSOR, WINSOR) * scale / (windows.astype(np.float64) + ratio)
    fresh = old._replace(
        mean=np.where(learning, mean, old.mean).astype(np.float32), windows=np.where(learning, windows, old.windows)
    )
    counted = CongestionCounts(*(MEMORY * was + now for was, now in zip(before.congestion, counts, strict=True)))
    history = replace(known, usual=fresh, before=(probed.measured - probed.level).astype(np.float32))
    return Probes(history, run, counted, (residual, *before.last)[:KEPT])
