"""Errors of a fit on held-out points, by three splits (docs/explanation/planner/performance.md, section 6).

- `random`: a third of the points.  Neighbours on a curve that differ only in concurrency may stay in the fit.
- `curves`: a third of the curves, whole: the fit has no point of such a configuration at these sizes.
- one GPU type: all its points.  The portable correction predicts them.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.performance.coefficients import Coefficients, Error, Interval
from planner.performance.dataset import Predicted, Sample, predict
from planner.performance.fitting import fit
from planner.performance.hardware_demand import Array

HELD_BACK = 1 / 3
UNDATED = dt.date(1970, 1, 1)  # of temporary fits

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Validation:
    split: str
    held_back: Sample
    coefficients: Coefficients
    predicted: Predicted

    @property
    def error(self) -> Error:
        sample, found = self.held_back, self.predicted
        return Error(
            split=self.split,
            points=len(sample.points),
            tpot_mape=round(mape(found.tpot_s, sample.tpot_s), 4),
            ttft_mape=round(mape(found.ttft_s, sample.ttft_s), 4),
            tpot_coverage=round(self._coverage("tpot", found.tpot_s, sample.tpot_s), 4),
            ttft_coverage=round(self._coverage("ttft", found.ttft_s, sample.ttft_s), 4),
        )

    def _coverage(self, metric: str, predicted_s: Array, measured_s: Array) -> float:
        ratio = measured_s / predicted_s
        bands = [self._interval(position, metric) for position in range(len(ratio))]
        inside = [band.low <= value <= band.high for band, value in zip(bands, ratio, strict=True)]
        return float(np.mean(inside))

    def _interval(self, position: int, metric: str) -> Interval:
        config = self.held_back.points[position].config
        found = self.coefficients.interval(gpu=config.gpu.name, model=config.model.name, moe=config.model.experts > 0)
        if found is None:
            raise ValueError("the held-out points are of a kind that the fit does not have")
        interval: Interval = getattr(found, metric)
        return interval


def mape(predicted: Array, measured: Array) -> float:
    """Mean absolute percentage error."""
    return float(np.mean(np.abs(predicted / measured - 1)))


def held_back(sample: Sample, *, seed: int) -> Iterator[tuple[str, Mask]]:
    rng = np.random.default_rng(seed)
    count = len(sample.points)
    yield "random", np.isin(np.arange(count), rng.permutation(count)[: int(count * HELD_BACK)])
    curves = rng.permutation(sample.curves.max() + 1)
    yield "curves", np.isin(sample.curves, curves[: int(len(curves) * HELD_BACK)])
    gpus = np.array([point.config.gpu.name for point in sample.points])
    yield from ((f"without {gpu}", gpus == gpu) for gpu in np.unique(gpus) if np.any(gpus != gpu))


def validate(sample: Sample, *, split: str, held: Mask) -> Validation:
    """Fit the rest and predict the held-out points."""
    coefficients = fit(sample.only(~held), fitted=UNDATED, source=split)
    rest = sample.only(held)
    return Validation(split, rest, coefficients, predict(rest, coefficients))
