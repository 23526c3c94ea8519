"""Noise scales of a job, estimated online: jitter, wander and drift of nodes' means, permanent differences of nodes.

Jitter by differences of successive windows; the rest by the Allan variance D_l of means of blocks of 60 s, at l = 1, 5
and 30 blocks apart (formulas: docs/explanation/faults/stragglers.md, "Noise scales").  D_5 - D_1 and D_30 - D_5 give
wander and drift, and n (D_1 - wander^2 (v - r_1)) is the jitter for dependent windows.  The prior has the weight of its
block error.  Jitter is the 1.5 sigma quantile of absolute values, not their median: one node of a replica is its
median, so with eight nodes a median is 4 % too small, with four 8 %; this quantile is right to 1 %.
"""

from dataclasses import dataclass, replace
from math import exp, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats
from faults.stragglers.peers import MAD, MIN, median, of_rank
from faults.stragglers.settings import StragglerSettings

BLOCK_S: Final = 60.0
APART: Final = 5  # blocks: the memory of sway
LONG: Final = 30  # blocks: by then only drift still grows
MEMORY_WINDOWS: Final = 120
ERROR: Final = (
    2.33  # relative standard error of a variance by the median of absolute values, times the root of their number
)
SIGMAS: Final = 1.5
WITHIN: Final = 0.8664  # of a normal distribution
MANY: Final = 100  # nodes, for which one block determines the scale
OVERLAP: Final = 3.0  # estimates a minute apart share most of their blocks


@dataclass(frozen=True, slots=True)
class Scales:
    noise: float  # of a window
    spread: float
    wander: float
    drift2: float  # variance per second of a random walk
    age: int  # windows
    moved: float  # noise by successive windows
    rough: float  # noise by blocks, if larger
    rise: float  # D_5 - D_1
    long_rise: float  # D_30 - D_5
    blocks: int  # of the first
    long_blocks: int
    before: Floats  # per node
    sums: Floats
    observed: Floats
    past: Floats  # block means, the last one first
    block_s: float


def start(nodes: int, settings: StragglerSettings) -> Scales:
    zero, nan = np.zeros(nodes), np.full(nodes, np.nan)
    return Scales(
        0.0, settings.spread, settings.wander, 0.0, 0, 0.0, 0.0, 0.0, 0.0, 0, 0, nan, zero, zero,
        np.full((LONG, nodes), np.nan), 0.0,
    )  # fmt: skip


def by_window(known: Scales, late: Floats, settings: StragglerSettings) -> Scales:
    """Update jitter and spread.  `late`: log, without level and replica; NaN if not observed."""
    moved = _scale(late - known.before) / sqrt(2.0)
    total = _scale(late - median(late))
    before = np.where(np.isfinite(late), late, known.before)
    if known.age == 0:
        return replace(known, noise=max(total, MIN), moved=total, before=before, age=1)
    rate = 1.0 / min(known.age, MEMORY_WINDOWS)
    moved = sqrt((1.0 - rate) * known.moved**2 + rate * moved**2) if moved > 0.0 else known.moved
    noise = max(moved, known.rough, MIN)
    residual = max(total**2 - noise**2, MIN**2)
    spread = sqrt((1.0 - rate) * known.spread**2 + rate * residual)
    return replace(
        known, noise=noise, moved=moved, spread=max(spread, settings.spread / 2.0), before=before, age=known.age + 1
    )


def by_block(
    known: Scales, late: Floats, observed: NDArray[np.bool_], window_s: float, settings: StragglerSettings
) -> Scales:
    """Update the wander of nodes after each minute.  `late`: without pauses."""
    known = replace(
        known,
        sums=known.sums + np.where(observed, late, 0.0),
        observed=known.observed + observed,
        block_s=known.block_s + window_s,
    )
    if known.block_s + window_s / 2.0 < BLOCK_S:
        return known
    windows = known.block_s / window_s
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(known.observed > windows / 2.0, known.sums / known.observed, np.nan)
    found = _wandering(known, mean, windows, settings)
    zero = np.zeros(mean.size)
    return replace(found, past=np.vstack([mean, known.past[:-1]]), sums=zero, observed=zero, block_s=0.0)


def _wandering(known: Scales, mean: Floats, windows: float, settings: StragglerSettings) -> Scales:
    many = int(np.isfinite(mean - known.past[APART - 1]).sum())
    if many < settings.few:
        return known
    near, far = _allan(mean - known.past[0]), _allan(mean - known.past[APART - 1])
    ratio = known.block_s / settings.wander_memory_s
    whole, (first, fifth, last) = _correlations(ratio)
    error = ERROR * sqrt(2.0 / many) * near
    guess = settings.wander**2
    worth = OVERLAP * (error / (guess * (first - fifth))) ** 2  # blocks
    most = int(settings.memory_s / known.block_s)
    blocks = min(known.blocks + 1, most)
    before = known.rise if known.blocks else guess * (first - fifth)
    rise = before + (far - near - before) / (worth + blocks)
    known = _drifting(known, mean, far, error, most, fifth=fifth - last, settings=settings)
    by_drift = known.drift2 * (APART - 1) * known.block_s / 2.0
    wander2 = max((rise - by_drift) / (first - fifth), guess / 16.0)
    rough2 = windows * max(near - wander2 * (whole - first), 0.0)
    share = 1.0 / blocks if known.rough else 1.0
    rough = sqrt(known.rough**2 + share * (rough2 - known.rough**2)) if many > MANY else known.rough
    return replace(known, rise=rise, wander=sqrt(wander2), blocks=blocks, rough=rough)


def _drifting(
    known: Scales, mean: Floats, far: float, error: float, most: int, *, fifth: float, settings: StragglerSettings
) -> Scales:
    if int(np.isfinite(mean - known.past[-1]).sum()) < settings.few:
        return known
    blocks = min(known.long_blocks + 1, most)
    long_rise = known.long_rise + (_allan(mean - known.past[-1]) - far - known.long_rise) / blocks
    sure = long_rise - known.wander**2 * fifth - 2.0 * error * sqrt(OVERLAP / blocks)
    drift2 = max(2.0 * sure / ((LONG - APART) * known.block_s), 0.0)
    return replace(known, long_rise=long_rise, long_blocks=blocks, drift2=drift2)


def _correlations(ratio: float) -> tuple[float, tuple[float, float, float]]:
    """Return (v, (r_1, r_5, r_30)) of blocks that last `ratio` of the memory."""
    whole = 2.0 / ratio**2 * (ratio - 1.0 + exp(-ratio))
    first = ((1.0 - exp(-ratio)) / ratio) ** 2
    return whole, (first, first * exp(-(APART - 1) * ratio), first * exp(-(LONG - 1) * ratio))


def _allan(difference: Floats) -> float:
    return (MAD * median(np.abs(difference))) ** 2 / 2.0


def _scale(values: Floats) -> float:
    return of_rank(np.abs(values), WITHIN) / SIGMAS
