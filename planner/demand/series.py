"""Samples of counters, gauges and histograms of one window, and the increases that can be trusted.

A counter that falls was reset: the increase over that scrape is unknown and left out.  Nothing is extrapolated: an
increase is that between two scrapes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Labels = Mapping[str, str]
Samples = tuple[tuple[float, float], ...]  # (Unix time in seconds, value), rising in time

SAME_SCRAPE_S = 1e-3


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    labels: Labels  # without the name
    samples: Samples


@dataclass(frozen=True, slots=True)
class Increase:
    """A counter between the first and the last scrape of a window."""

    amount: float = 0.0
    resets: int = 0

    def __add__(self, other: "Increase") -> "Increase":
        return Increase(self.amount + other.amount, self.resets + other.resets)


def increase(samples: Samples, *, start_s: float, end_s: float) -> Increase:
    amount, resets = 0.0, 0
    for (_, before), (_, after) in pairwise(window_of(samples, start_s=start_s, end_s=end_s)):
        amount += max(0.0, after - before)
        resets += after < before
    return Increase(amount, resets)


def window_of(samples: Samples, *, start_s: float, end_s: float) -> Samples:
    """The samples of (start, end], and the newest before them, from which their increase counts."""
    inside = tuple(sample for sample in samples if start_s < sample[0] <= end_s)
    before = [sample for sample in samples if sample[0] <= start_s]
    return (*before[-1:], *inside)


def newest(samples: Samples, *, end_s: float) -> tuple[float, float] | None:
    return next((sample for sample in reversed(samples) if sample[0] <= end_s), None)


@dataclass(frozen=True, slots=True)
class HistogramIncreases:
    """One row per scrape: requests per bucket, the last of which is above all edges, and their sum."""

    edges: tuple[float, ...]
    counts: Floats
    sums: Floats
    resets: int

    @property
    def requests(self) -> float:
        return float(self.counts.sum())


def histogram_increases(
    buckets: Iterable[Series], sums: Iterable[Series], *, start_s: float, end_s: float
) -> HistogramIncreases | None:
    """The increases of one replica's histogram; None without two scrapes."""
    by_edge: dict[float, dict[float, float]] = {}
    for series in buckets:
        at_edge = by_edge.setdefault(_edge(series.labels.get("le", "")), {})
        for at_s, value in window_of(series.samples, start_s=start_s, end_s=end_s):
            at_edge[at_s] = at_edge.get(at_s, 0.0) + value
    totals: dict[float, float] = {}
    for series in sums:
        for at_s, value in window_of(series.samples, start_s=start_s, end_s=end_s):
            totals[at_s] = totals.get(at_s, 0.0) + value
    edges = tuple(sorted(by_edge))
    if len(edges) < 2 or edges[-1] != inf:
        return None
    scrapes = sorted(set(totals).intersection(*(set(found) for found in by_edge.values())))
    if len(scrapes) < 2:
        return None
    cumulative = np.array([[by_edge[edge][at_s] for edge in edges] for at_s in scrapes])
    counts = np.diff(np.diff(cumulative, axis=1, prepend=0.0), axis=0)
    added = np.diff(np.array([totals[at_s] for at_s in scrapes]))
    valid = (np.diff(cumulative[:, -1]) >= 0) & (added >= 0) & (counts >= 0).all(axis=1)
    return HistogramIncreases(edges[:-1], counts[valid], added[valid], int((~valid).sum()))


def joined(parts: Iterable[HistogramIncreases]) -> HistogramIncreases | None:
    """The rows of several replicas.  None without any; ValueError where their buckets differ."""
    found = list(parts)
    if not found:
        return None
    edges = found[0].edges
    if any(part.edges != edges for part in found):
        raise ValueError("replicas export different buckets")
    return HistogramIncreases(
        edges,
        np.concatenate([part.counts for part in found]),
        np.concatenate([part.sums for part in found]),
        sum(part.resets for part in found),
    )


def _edge(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
