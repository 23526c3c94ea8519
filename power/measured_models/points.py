"""Measured points of each kind of table, and small statistics that every fit needs."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from power.arrays import Floats
from power.measured_models.document import Error, Spread

PointT = TypeVar("PointT")
KeyT = TypeVar("KeyT", bound=Hashable)


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
    """Return the points by key, in the order of input."""
    found: dict[KeyT, list[PointT]] = defaultdict(list)
    for point in points:
        found[key(point)].append(point)
    return dict(found)


def error_of(predicted: Sequence[float] | Floats, measured: Sequence[float] | Floats) -> Error:
    """Return the error relative to the measurement."""
    off = np.asarray(predicted) / np.asarray(measured) - 1
    size = np.abs(off)
    mean, p90, bias = float(size.mean()), float(np.quantile(size, 0.9)), float(off.mean())
    return Error(mean=round(mean, 4), p90=round(p90, 4), bias=round(bias, 4), n=len(off))


def spread_of(values: Sequence[float] | Floats) -> Spread:
    """Return the 5 %, 50 % and 95 % quantiles."""
    low, mid, high = (round(float(value), 2) for value in np.percentile(np.asarray(values), [5, 50, 95]))
    return Spread(low=low, mid=mid, high=high)
