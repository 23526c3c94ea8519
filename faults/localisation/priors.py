"""The price of an explanation: the log odds against it, and the excess scatter of the noise.

Noise that the edges of an entity share makes its sums scatter wider than independent edges would; the scatter of all
entities of a kind below their median, which no fault reaches, is measured in each window, and all evidence is divided
by its square (an empirical null: Efron 2004).  docs/explanation/faults/localisation.md, "Model"
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from faults.diagnosis import Diagnosis, Scope
from faults.fabric import Floats
from faults.localisation.entities import Entities, Kind
from faults.localisation.settings import LocaliserSettings
from faults.localisation.window_arrays import WindowArrays

CLIPPED_T4 = 1.29  # standard deviation of t(4) / scale, clipped at 5
LOWER_TAIL = 0.1587  # the share below one standard deviation
SAMPLE = 2048
FEW = 30  # entities of a kind, for a measured scatter
ODD_BY_CHANCE = 0.00195  # P(t4 > 6)
CONTINUED_NATS = 0.7  # nats: a cable congested in the last window most likely still is
PREVIOUS = 0.5
WATCHED = 5.0  # nats
CONGESTED_SLOWDOWN = 0.35  # log slowdown of a congested cable before any was observed: 1.4 times
SLOWDOWN_RATE = 0.02  # learning rate of that slowdown
MEMORY_H: Final = 24.0
Place = tuple[Scope, int | None, int | None, str | None]


@dataclass(frozen=True, slots=True)
class Prices:
    """The counts behind the prices, updated online."""

    congested: float  # share of cables
    odd: float  # share of edges
    congested_slowdown: float  # mean log slowdown of congested cables
    inflation: Floats  # per Kind
    windows: int

    @property
    def cable(self) -> float:
        return float(np.log((1.0 - self.congested) / self.congested))

    @property
    def odd_edge(self) -> float:
        return float(np.log((1.0 - self.odd) / self.odd))


def window_arrays(
    all_of: Entities, settings: LocaliserSettings, misfit: Floats, prices: Prices, *, previous: Floats, nats: Floats,
    window_s: float, buffers: Floats,
) -> WindowArrays:  # fmt: skip
    """Return one window, ready for the comparison; `buffers`: four rows of all edges."""
    cables = all_of.of_kind[Kind.UP].start
    price = np.empty(len(all_of))
    broken = settings.price(cables, window_s)
    price[:cables] = np.maximum(PREVIOUS, broken - nats[all_of.slot[:cables]])
    price[cables:] = np.where(previous[cables:] > 0.0, CONTINUED_NATS, prices.cable)
    residual, scale, tail, odd = buffers
    return WindowArrays(
        first=all_of.first, edge=all_of.edge, share=all_of.share,
        begin=all_of.begin, entity=all_of.entity, part=all_of.part,
        misfit=misfit, weight=np.ones(len(all_of)), price=price,
        residual=residual, scale=scale, tail=tail, odd=odd, least=np.array([np.log(settings.min_slowdown)]),
    )  # fmt: skip


def inflation(prices: Prices, all_of: Entities, score: Floats) -> Prices:
    new = prices.inflation.copy()
    rate = 1.0 / min(prices.windows + 1, 20)
    for kind in Kind:
        of_kind = score[all_of.of_kind[kind]]
        if of_kind.size >= FEW:
            low, middle = _lower_spread(of_kind[:: max(1, of_kind.size // SAMPLE)])
            new[kind] = max(1.0, (1.0 - rate) * new[kind] + rate * max(1.0, (middle - low) / CLIPPED_T4))
    return replace(prices, inflation=new)


def candidates(  # noqa: PLR0917 - arrays of one window
    all_of: Entities, settings: LocaliserSettings, prices: Prices, score: Floats, previous: Floats, nats: Floats
) -> np.ndarray:
    bar = np.repeat(settings.screen * prices.inflation, [of.stop - of.start for of in all_of.of_kind])
    chosen = (score >= bar) | (previous > 0.0)
    watched = nats > WATCHED
    if watched.any():
        chosen |= watched[all_of.slot]
    return np.flatnonzero(chosen).astype(np.int32)


def counted(prices: Prices, all_of: Entities, x: Floats, odd: float) -> Prices:
    """Count the congestion of this window; `odd`: share of unexplained edges, NaN if none was observed."""
    rate = max(1.0 / (prices.windows + 3.0), 0.05)
    cables = x[all_of.of_kind[Kind.UP].start :]
    congested = float((cables > 0.0).mean()) if cables.size else prices.congested
    odd = odd - 1.5 * ODD_BY_CHANCE if np.isfinite(odd) else prices.odd
    return Prices(
        congested=float(np.clip((1 - rate) * prices.congested + rate * congested, 5e-4, 0.2)),
        odd=float(np.clip((1 - rate) * prices.odd + rate * odd, 1e-5, 0.2)),
        congested_slowdown=float(
            (1 - SLOWDOWN_RATE) * prices.congested_slowdown + SLOWDOWN_RATE * cables[cables > 0.0].mean()
        )
        if (cables > 0.0).any()
        else prices.congested_slowdown,
        inflation=prices.inflation,
        windows=prices.windows + 1,
    )


def _lower_spread(values: Floats) -> tuple[float, float]:
    """Return one standard deviation below the median, for normal values, and the median."""
    low, middle = int(LOWER_TAIL * values.size), values.size // 2
    ordered = np.partition(values, (low, middle))
    return float(ordered[low]), float(ordered[middle])


def shared_nats(all_of: Entities, arrays: WindowArrays, prices: Prices, entity: int, slowdown: float) -> float:
    """Return the most evidence that a slowdown can have, over any time, if the edges of an entity share noise with a
    memory.

    The sum of n edges scatters `inflation` times as wide as independent ones would: the shared part has the variance
    (inflation^2 - 1) s^2 / n, and the slowdown is so many of its standard deviations from zero.
    """
    mine = slice(int(all_of.first[entity]), int(all_of.first[entity + 1]))
    scale = arrays.scale[all_of.edge[mine]]
    share = all_of.share[mine]
    spare = float(prices.inflation[all_of.kind[entity]]) ** 2 - 1.0
    variance = spare * CLIPPED_T4**2 / max(float((share**2 / scale**2).sum()), 1e-12)
    return slowdown**2 / (2.0 * max(variance, 1e-9))


@dataclass(frozen=True, slots=True)
class FaultRate:
    """The fault rate of one job, as a prior for the next fault: it changes the confidence of a diagnosis, and no bar.

    A gamma prior of one fault in `fault_every_h` hours, and the diagnoses since: the rate is (1 + n) / (fault_every_h
    + t), where n and t decay over a day.
    """

    count: float = 0.0  # of reported faults
    hours: float = 0.0
    open: frozenset[Place] = frozenset()  # the active diagnoses

    def after(self, seconds: float) -> "FaultRate":
        hours = seconds / 3600.0
        keep = math.exp(-hours / MEMORY_H)
        return replace(self, count=keep * self.count, hours=keep * self.hours + hours)

    def after_diagnoses(self, diagnoses: Iterable[Diagnosis]) -> "FaultRate":
        """Count the diagnoses at the end of a window; a continued one is no new fault."""
        now = frozenset((one.scope, one.node, one.peer, one.switch) for one in diagnoses)
        return replace(self, count=self.count + len(now - self.open), open=now)

    def every_h(self, prior_h: float) -> float:
        return (prior_h + self.hours) / (1.0 + self.count)
