"""Measured points of each kind of table, and what every fit needs: statistics, and the times of prompts and tokens.

    prompt of p tokens    s0 + s1 * p + s2 * p^2
    one token, n together t0 * (1 + g * (n - 1))

Times are fitted by relative least squares: a short prompt counts as much as a long one.  A negative coefficient is set
to 0 (docs/explanation/power/measured-models.md, 3).
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np

from power.arrays import Floats
from power.measured_models.document import Error, Spread

PointT = TypeVar("PointT")
KeyT = TypeVar("KeyT", bound=Hashable)

MAX_GROWTH = 1.0


@dataclass(frozen=True, slots=True)
class ServingPoint:
    """One configuration of a serving engine, averaged over a run."""

    gpu: str
    model: str
    layout: str
    gpus: int
    batch: float  # mean number of requests in it
    share: float  # power of one board over its rating
    rate_tokens_per_s: float
    token_s: float
    active_billions: float
    total_billions: float

    @property
    def family(self) -> tuple[str, str, int]:
        """Return the key of configurations that differ in batch only."""
        return self.model, self.layout, self.gpus

    @property
    def kin(self) -> str:
        """Return the key of points to hold out together: one model in all its precisions."""
        return self.model.removesuffix("-FP8")


@dataclass(frozen=True, slots=True)
class RequestPoint:
    """One run of a batch of equal requests: a prompt read, then tokens written."""

    gpu: str
    model: str
    gpus: int
    prompt_tokens: int
    batch: int
    output_tokens: int
    peak_share: float | None
    mean_share: float | None
    prompt_s: float
    token_s: float
    whole_s: float
    billions: float  # parameters, as the model's name has them


@dataclass(frozen=True, slots=True)
class LimitPoint:
    """Training under a power limit: time for the same work, and power of one board."""

    gpu: str
    task: str  # held out together
    job: str
    limit_w: float
    time_s: float
    power_w: float


def grouped(points: Iterable[PointT], key: Callable[[PointT], KeyT]) -> dict[KeyT, list[PointT]]:
    found: dict[KeyT, list[PointT]] = defaultdict(list)
    for point in points:
        found[key(point)].append(point)
    return dict(found)


def error_of(predicted: Sequence[float] | Floats, measured: Sequence[float] | Floats) -> Error:
    off = np.asarray(predicted) / np.asarray(measured) - 1
    size = np.abs(off)
    mean, p90, bias = float(size.mean()), float(np.quantile(size, 0.9)), float(off.mean())
    return Error(mean=round(mean, 4), p90=round(p90, 4), bias=round(bias, 4), n=len(off))


def spread_of(values: Sequence[float] | Floats) -> Spread:
    """Return the 5 %, 50 % and 95 % quantiles."""
    low, mid, high = (round(float(value), 2) for value in np.percentile(np.asarray(values), [5, 50, 95]))
    return Spread(low=low, mid=mid, high=high)


def token_times(batches: Sequence[float], seconds: Sequence[float]) -> tuple[float, float, Error]:
    """Return `t0`, `g`, and the error of each batch predicted from the others."""
    features = np.column_stack((np.ones(len(batches)), np.asarray(batches) - 1))
    (alone, slope), error = _fitted(features, np.asarray(seconds, dtype=float))
    growth = min(MAX_GROWTH, slope / alone) if alone > 0 else MAX_GROWTH
    return round(alone or slope, 6), round(growth, 6), error


def prompt_times(tokens: Sequence[float], seconds: Sequence[float]) -> tuple[tuple[float, float, float], Error]:
    """Return `s0`, `s1`, `s2`, and the error of each length predicted from the others."""
    at = np.asarray(tokens, dtype=float)
    (none, each, square), error = _fitted(np.column_stack((np.ones(len(at)), at, at**2)), np.asarray(seconds))
    return (float(f"{none:.4g}"), float(f"{each:.4g}"), float(f"{square:.4g}")), error


def _fitted(features: Floats, seconds: Floats) -> tuple[Floats, Error]:
    predicted = np.empty(len(seconds))
    for at in range(len(seconds)):
        rest = np.arange(len(seconds)) != at
        predicted[at] = features[at] @ _not_negative(features[rest], seconds[rest])
    return _not_negative(features, seconds), error_of(np.maximum(0, predicted), seconds)


def _not_negative(features: Floats, seconds: Floats) -> Floats:
    """Fit least squares of relative errors without negative coefficients: the best over all sets of columns."""
    scaled, columns = features / seconds[:, None], range(features.shape[1])
    best, least = np.zeros(len(columns)), np.inf
    for kept in (list(some) for size in range(1, len(columns) + 1) for some in combinations(columns, size)):
        found = np.linalg.lstsq(scaled[:, kept], np.ones(len(seconds)), rcond=None)[0]
        off = float(np.sum((scaled[:, kept] @ found - 1) ** 2))
        if np.all(found >= 0) and off < least:
            least, best = off, np.zeros(len(columns))
            best[kept] = found
    return best
