"""What probes say of each pair of NICs, against what is usual for it, and how often weather slows them.

A probe goes one way over paths of its own, so what slows it is its ends, or the weather on those paths: no
acknowledgement, no other message.  Its usual is learnt like an edge's (`history`).  How often weather comes over the
probes of a pair is counted where the traffic of that pair contradicts: runs that begin, per pair and window, of pairs
within a leaf and of others apart.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from faults.fabric import NOWHERE, Fabric, Floats, Window
from faults.localisation import history as usual
from faults.localisation.entities import Indices
from faults.localisation.history import History
from faults.localisation.settings import LocaliserSettings

SHORT = 2.0  # times: weather that is over before it is counted is half of it, where the mean is 30 s
KEPT = 3  # windows of residuals
UNEVEN = 0.1  # hashing is not even, and several cables may be crowded at once
MEMORY = 0.999  # per window, of what was counted
AWAY_FIRST = 600.0  # pairs and windows in which a run is expected over one way, before any was counted
AWAY_MAX = 1e10  # a week of all pairs of a large job: nobody will have seen that anything is rarer
REFUTED = 1e3  # one run seen, and how ports are hashed was guessed wrong: so little of the guess is left
NEAR_FIRST = 1e9  # within a leaf no cable lies on the way: nothing but the two ends and what joins them


class Strange(NamedTuple):
    """Runs of slow probes that began where traffic contradicts, and pairs times windows, within leaves and between."""

    near: float
    near_of: float
    away: float
    away_of: float

    def nats(self, first_away: float) -> tuple[float, float]:
        """Log odds against one that begins in a window: (within a leaf, between leaves)."""
        near = SHORT * (self.near + 1.0) / (self.near_of + NEAR_FIRST)
        away = SHORT * (self.away + 1.0) / (self.away_of + first_away / (1.0 + REFUTED * self.away))
        return -float(np.log(near)), -float(np.log(away))


class Probes(NamedTuple):
    """What is remembered of all pairs."""

    history: History
    run: NDArray[np.uint8]  # per pair: windows in a row in which it was strange
    strange: Strange
    last: tuple[Floats, ...]  # residuals of the windows before, newest first


class Reading(NamedTuple):
    """One window of all pairs; NaN: no probe was heard."""

    residual: Floats
    scale: Floats
    tail: Floats


class Probed(Protocol):
    """What was probed in one window, as read."""

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
    away: NDArray[np.bool_]  # per pair; a leaf that is not known is another
    first_away: float  # as AWAY_FIRST, where the quickest of several ways counts

    def most(self, strange: Strange) -> Floats:
        """Per pair, nats: all that its probes may say for a link."""
        near, away = strange.nats(self.first_away)
        return np.where(self.away, away, near)


def ways(fabric: Fabric, pair: Indices, pairs: int, *, ports: int) -> Ways:
    """Of a fabric with these pairs."""
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
    """Weather slows all probes of a pair where it slows one and the others take the same cable, one in S each."""
    known = fabric.up != NOWHERE
    leaves = np.unique(fabric.leaf[fabric.source[known]]).size
    cables = np.unique(fabric.up[known]).size / max(leaves, 1)
    return float(min(AWAY_FIRST * max(1.0, UNEVEN * max(cables, 1.0) ** (ports - 1)), AWAY_MAX))


def start(pairs: int, settings: LocaliserSettings) -> Probes:
    """Nothing known."""
    return Probes(usual.start(pairs, settings, kinds=1), np.zeros(pairs, np.uint8), Strange(0.0, 0.0, 0.0, 0.0), ())


def samples(pairs: int) -> Indices:
    """The pairs that medians look at: evenly spaced."""
    return np.arange(0, pairs, max(1, pairs // usual.SAMPLE), dtype=np.int32)


def per_pair(window: Window, edge: Indices) -> Floats | None:
    """What was probed, by the first edge of each pair; pairs with foreign traffic say nothing."""
    if window.probed is None:
        return None
    measured = window.probed[edge]
    return measured if window.foreign is None else np.where(window.foreign[edge], np.nan, measured)


def read(
    before: History, measured: Floats, sample: Indices, settings: LocaliserSettings
) -> tuple[History, float, Reading]:
    """(scales brought up to date, level of this window, what it says)."""
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
    """One window more.  `doubtful`: pairs under suspicion; `traffic`: per pair, nats for a slow link; NaN: no say."""
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
