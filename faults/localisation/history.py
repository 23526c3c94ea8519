"""What is usual: the level of each kind of traffic, its noise, and each edge's own history beside its peers'.

    y_e(t) = level_kind(t) + usual_e + slowdown + noise,   usual_e ~ N(0, spread^2)   until seen otherwise

An edge's own history is a Kalman filter for a constant.  After n windows it leaves the variance 1 / (1/spread^2 +
n/noise^2); before the first, an edge is judged by its peers alone, within their spread.  So a fault that was there
before the first window is as visible as the peers are alike, and there is no moment at which the rule changes.  What
is explained by a fault, or under suspicion while little is known, is not learnt; the rest is learnt with its size
limited.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints
from faults.localisation.board import NU
from faults.localisation.settings import LocaliserSettings

T4 = 0.7407  # median of |t| with 4 degrees of freedom; the unit is the scale of t, not its standard deviation
TWO_T4 = 1.1275  # of the difference of two
SAMPLE = 8192  # edges that a median over a kind looks at
LEAST_SCALE = 1e-3  # nobody measures better
WINSOR = 2.0
HELD = 6.0  # windows that such a mean remembers
FAR = 3.0  # scales, beyond which a young history learns nothing


@dataclass(frozen=True, slots=True)
class History:
    """Per edge and per kind; `noise` and `spread` are scales of Student's t."""

    usual: Floats
    windows: Floats  # that an edge was learnt from
    before: Floats  # what it said in the window before, without its level
    held: Floats  # windows in a row of which nothing was learnt, while young
    held_mean: Floats  # what it said in them, without its level
    noise: Floats
    spread: Floats
    age: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One window against history."""

    residual: Floats
    scale: Floats  # of it: noise and what is not known of the usual
    fresh: Floats  # share of that variance that is new in each window
    tail: Floats  # degrees of freedom
    said: Floats


def start(edges: int, settings: LocaliserSettings) -> History:
    """Nothing known."""
    kinds = len(settings.feels)
    return History(
        usual=np.zeros(edges),
        windows=np.zeros(edges),
        before=np.full(edges, np.nan),
        held=np.zeros(edges),
        held_mean=np.zeros(edges),
        noise=np.zeros(kinds),
        spread=np.full(kinds, settings.spread),
        age=0,
    )


def samples(traffic: Ints, kinds: int) -> tuple[Ints, ...]:
    """The edges of each kind that its medians look at: evenly spaced, so that every part of the fabric has a say."""
    found = (np.flatnonzero(traffic == kind) for kind in range(kinds))
    return tuple(edges[:: max(1, edges.size // SAMPLE)] for edges in found)


def read(
    history: History, slowdown: Floats, traffic: Ints, of_kind: tuple[Ints, ...], settings: LocaliserSettings
) -> tuple[History, Reading]:
    """Take the level off, and bring the scales up to date."""
    level = np.array([_median(slowdown[edges] - history.usual[edges]) for edges in of_kind])
    said = slowdown - level[traffic]
    total = np.array([_median(np.abs(said[edges])) / T4 for edges in of_kind])
    moved = np.array([_median(np.abs(said[edges] - history.before[edges])) / TWO_T4 for edges in of_kind])
    if history.age == 0:
        noise, spread = 0.5 * total, np.sqrt(0.75) * total  # only their sum is known yet
    else:
        rate = 1.0 / min(history.age, 60)
        noise = np.sqrt((1.0 - rate) * history.noise**2 + rate * moved**2)
        rate = 1.0 / min(history.age + 1, 60)
        beside = np.maximum(total**2 - noise**2, LEAST_SCALE**2)
        spread = np.sqrt((1.0 - rate) * history.spread**2 + rate * beside)
    noise = np.maximum(noise, LEAST_SCALE)
    spread = np.maximum(spread, LEAST_SCALE)
    known = replace(history, noise=noise, spread=spread)
    return known, _against(known, said, traffic, settings)


def _against(known: History, said: Floats, traffic: Ints, settings: LocaliserSettings) -> Reading:
    """What was said, or the mean of what was held back, against what is usual."""
    noise = (known.noise**2)[traffic]
    unknown = 1.0 / (1.0 / (known.spread**2)[traffic] + known.windows / noise)
    mean = known.held_mean + (said - known.held_mean) / (known.held + 1.0)
    variance = noise / (known.held + 1.0) + unknown
    fresh = np.where(known.held > 0.0, 0.0, noise / variance)
    return Reading(
        residual=mean - known.usual,
        scale=np.sqrt(variance),
        fresh=fresh,
        tail=1.0 / (1.0 / settings.spread_tail + (1.0 / NU - 1.0 / settings.spread_tail) * noise / variance),
        said=said,
    )


def learn(
    history: History, reading: Reading, traffic: Ints, settings: LocaliserSettings, doubtful: NDArray[np.bool_]
) -> History:
    """Believe a little more in what was not explained."""
    score = reading.residual / reading.scale
    heard = np.isfinite(score)
    young = history.windows < settings.warm_windows
    doubtful = doubtful | (young & (np.abs(score) > FAR))
    learnt = heard & ~doubtful
    windows = np.where(learnt, np.minimum(history.windows + 1.0, settings.memory_windows), history.windows)
    ratio = (history.noise / history.spread)[traffic] ** 2
    step = np.clip(np.where(learnt, score, 0.0), -WINSOR, WINSOR) * reading.scale / (windows + ratio)
    holds = heard & doubtful & young
    kept = np.where(heard, 0.0, history.held)
    return replace(
        history,
        usual=history.usual + step,
        windows=windows,
        before=np.where(heard, reading.said, history.before),
        held=np.where(holds, np.minimum(history.held + 1.0, HELD), kept),
        held_mean=np.where(holds, reading.residual + history.usual, np.where(heard, 0.0, history.held_mean)),
        age=history.age + 1,
    )


def _median(values: Floats) -> float:
    values = values[np.isfinite(values)]
    return float(np.median(values)) if values.size else 0.0
