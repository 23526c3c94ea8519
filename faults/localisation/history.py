"""The usual: the level of each kind of traffic, its noise, and each edge's own history beside its peers'.

    y_e(t) = level_kind(t) + usual_e + slowdown + noise,   usual_e ~ N(0, spread^2)   a priori

After n windows the variance is 1 / (1/spread^2 + n/noise^2); before the first, an edge is compared with its peers only,
within their spread.  So a fault from the start is as visible as the peers are alike, and the rule never switches.  The
others are learnt with a limited step.  Age counts observed windows.  docs/explanation/faults/localisation.md, "History"
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints
from faults.localisation.settings import LocaliserSettings

Halves = NDArray[np.float32]
T4 = 0.7407  # median of |t| with 4 degrees of freedom; the unit is the scale of t, not its standard deviation
TWO_T4 = 1.1275  # of the difference of two
SAMPLE = 4096  # edges in a median over a kind
MANY = 1000  # edges of a kind that determine one window's own scatter
MIN_SCALE = 1e-3  # lower bound of a measurement
NOISIER = 1.25  # times the usual scatter: a window above uses its own
STALE = 1.35  # times the scatter between windows: then the usual no longer holds
TWICE = 2  # windows
CALM = 1.2
JUMP = 1.5  # times: the largest change of the noise by one window
LONG = 60  # memory of noise and spread, in windows
GUESS = 1  # weight of the first guess of the spread, in windows, with few edges


class Usual(NamedTuple):
    mean: Halves
    windows: Halves  # learnt from
    held: Halves  # windows in a row without learning, while young
    held_mean: Halves  # its values in them, without the level


class Measures(NamedTuple):
    level: Floats
    noise2: Floats  # squared scale
    spread2: Floats
    outlying: Floats  # times noise2, in this window
    spread_tail: float
    odd_price: float
    clip: float  # scales: one wild edge is not many


@dataclass(frozen=True, slots=True)
class History:
    """Baselines per edge and scales per kind; `noise` and `spread` are scales of Student's t."""

    usual: Usual
    before: Halves  # an edge's value in the window before, without its level
    noise: Floats
    spread: Floats
    age: Ints  # per kind: observed windows
    stale: Ints  # per kind: windows in a row that the usual did not fit, at ordinary noise

    def young(self, settings: LocaliserSettings) -> bool:
        """Return whether the peers' spread still dominates."""
        observed = self.age[self.age > 0]
        return not observed.size or int(observed.min()) <= 2 * settings.warm_windows


def start(edges: int, settings: LocaliserSettings, *, kinds: int) -> History:
    return History(
        usual=Usual(*(np.zeros(edges, np.float32) for _ in range(4))),
        before=np.full(edges, np.nan, np.float32),
        noise=np.zeros(kinds),
        spread=np.full(kinds, settings.spread),
        age=np.zeros(kinds, np.int64),
        stale=np.zeros(kinds, np.int64),
    )


def samples(traffic: Ints, kinds: int) -> tuple[Ints, ...]:
    """Return the edges of each kind in its medians: evenly spaced over the fabric."""
    found = (np.flatnonzero(traffic == kind) for kind in range(kinds))
    return tuple(edges[:: max(1, edges.size // SAMPLE)].copy() for edges in found)


class _Sample(NamedTuple):
    """One kind of traffic in one window; None if unknown."""

    level: float
    total: float | None  # scatter beside the peers
    moved: float | None  # since the window before
    own: float | None  # scatter of the window over the usual scatter


def measures(
    history: History,
    slowdown: Floats,
    foreign: NDArray[np.bool_] | None,
    of_kind: tuple[Ints, ...],
    settings: LocaliserSettings,
) -> tuple[History, Floats, Floats]:
    """Return (updated scales, level per kind, scatter of each kind in this window over the baseline)."""
    level, outlying = np.zeros(len(of_kind)), np.ones(len(of_kind))
    noise, spread = history.noise.copy(), history.spread.copy()
    age, stale = history.age.copy(), history.stale.copy()
    for kind, edges in enumerate(of_kind):
        sample = _sample(history, kind, edges, slowdown, foreign)
        level[kind] = sample.level
        if sample.total is None:
            continue
        if sample.own is not None and edges.size >= MANY:
            outlying[kind] = sample.own**2 if sample.own > NOISIER else 1.0
            moved = max(1.0, sample.moved / noise[kind]) if sample.moved is not None else np.inf
            stale[kind] = stale[kind] + 1 if sample.own > STALE * moved else 0
        guess = 0 if edges.size >= MANY else GUESS
        noise[kind], spread[kind] = _scales(noise[kind], spread[kind], int(age[kind]), sample, settings, guess=guess)
        age[kind] += 1
    known = replace(history, noise=noise, spread=spread, age=age, stale=stale)
    if stale.max() >= TWICE:
        known, outlying = _reset(known, settings), np.ones(len(of_kind))
    return known, level, outlying


def _sample(history: History, kind: int, edges: Ints, slowdown: Floats, foreign: NDArray[np.bool_] | None) -> _Sample:
    unusable = ~np.isfinite(slowdown[edges])
    observed = edges[~unusable if foreign is None else ~(unusable | foreign[edges])]
    if not observed.size:
        return _Sample(0.0, None, None, None)
    value, mean = slowdown[observed], history.usual.mean[observed]
    level = float(np.median(value - mean))
    total = float(np.median(np.abs(value - level))) / T4
    noise2, spread2 = history.noise[kind] ** 2, history.spread[kind] ** 2
    if not history.age[kind] or noise2 <= 0.0:
        return _Sample(level, total, None, None)
    step = np.abs(value - level - history.before[observed])
    step = step[np.isfinite(step)]
    scale = np.sqrt(noise2 + 1.0 / (1.0 / spread2 + history.usual.windows[observed].astype(np.float64) / noise2))
    own = float(np.median(np.abs(value - level - mean) / scale)) / T4
    return _Sample(level, total, float(np.median(step)) / TWO_T4 if step.size else None, own)


def _scales(
    noise: float, spread: float, age: int, sample: _Sample, settings: LocaliserSettings, *, guess: int
) -> tuple[float, float]:
    """Return (noise, spread) after one more window; `guess`: weight of the first guess of the spread, in windows."""
    total = float(sample.total or 0.0)
    if not age:  # only their sum is known yet
        return max(MIN_SCALE, 0.5 * total), max(settings.spread, 0.75**0.5 * total)
    if sample.moved is None or (sample.moved > CALM * noise and age > settings.warm_windows):
        return noise, spread  # a window with wide scatter is no measure of the lasting part
    moved = sample.moved if age == 1 else min(sample.moved, JUMP * noise)
    noise2, spread2 = _mean(noise, moved, 1.0 / min(age, LONG)), max(total**2 - sample.moved**2, 0.0)
    spread2 = _mean(spread, spread2**0.5, 1.0 / min(age + guess, LONG))
    return max(MIN_SCALE, noise2**0.5), max(MIN_SCALE, spread2**0.5)


def _mean(before: float, now: float, rate: float) -> float:
    return (1.0 - rate) * before**2 + rate * now**2


def _reset(history: History, settings: LocaliserSettings) -> History:
    """Reset the baselines after a change of paths: the peers dominate again."""
    fresh = start(history.before.size, settings, kinds=history.age.size)
    return replace(history, usual=fresh.usual, age=np.minimum(history.age, 1), stale=fresh.stale)
