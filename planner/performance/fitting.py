"""Fits the coefficients to measured points (docs/explanation/planner/performance.md, sections 5 and 6).

Robust least squares of relative errors (soft L1) with a weak pull to round values fit the roofline's global
coefficients; only this stage needs scipy.  Ridge regressions on the features then fit the rest, reweighted until they
minimise the mean absolute percentage error: a local correction with effects of GPU type and model, and a portable one
of main effects only, shrunk harder, for GPU types without points.

Intervals are split-conformal (Lei et al., JASA 2018): quantiles of the errors on points whose whole curve, or whose GPU
type or model, was left out of the correction.  `validate` measures the errors on held-out points, by three splits:

- `random`: a third of the points.  Neighbours on a curve that differ only in concurrency may stay in the fit.
- `curves`: a third of the curves, whole: the fit has no point of such a configuration at these sizes.
- one GPU type: all its points.  The portable correction predicts them.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.performance.closed_loop import Predicted, Sample, predict
from planner.performance.coefficients import (
    LOCAL_TERMS,
    PORTABLE_TERMS,
    Coefficients,
    Correction,
    Error,
    Interval,
    Intervals,
    Reached,
)
from planner.performance.hardware_demand import Array

Errors = dict[str, Array]  # by metric, logarithm of predicted over measured

FOLDS = 5
SWEEPS = 15  # of reweighting
TTFT_WEIGHT = 0.4  # relative to TPOT in the first stage: TTFT is noisier
SOFT = 0.15  # relative error above which a point's pull is linear
ROUND_VALUE_PULL = 0.6
PULL: Mapping[str, float] = {  # on coefficients that few points determine
    "cache_capacity": 1.0,
    "burst": 1.0,
    "first_steps": 1.0,
    "speculation": 1.0,
    "prefill": 1.0,
}
GUESS = Reached(
    weights=0.8,
    experts=0.7,
    cache=0.7,
    compute=0.5,
    expert_compute=0.4,
    attention_compute=0.3,
    link=0.5,
    layer_s=2e-5,
    moe_layer_s=3e-5,
    collective_s=5e-6,
    sequence_s=2e-6,
    request_s=0.03,
    burst=1.5,
    start=0.05,
)
NAMED_SHRINKAGE: Mapping[str, float] = {"one": 0.05, "gpu:": 0.2, "model:": 0.15}
SHRINKAGE = 0.1
PRIOR_POINTS = 30  # a shrinkage of 1 has the weight of this many points
INTERVAL = 0.9
MIN_POINTS = 100
HELD_BACK = 1 / 3
UNDATED = dt.date(1970, 1, 1)  # of temporary fits

Mask = npt.NDArray[np.bool_]


def fit(sample: Sample, *, fitted: dt.date, source: str, rejected: Mapping[str, int] | None = None) -> Coefficients:
    if len(sample.points) < MIN_POINTS:
        raise ValueError(f"{len(sample.points)} points can be used, expected at least {MIN_POINTS}")
    reached = fit_reached(sample)
    left_over = Residuals.of(sample, reached)
    return Coefficients(
        fitted=fitted,
        source=source,
        points=len(sample.points),
        rejected=dict(rejected or {}),
        software_age=round(max(point.software_age for point in sample.points), 2),
        measured_gpus=tuple(sorted({point.config.gpu.name for point in sample.points})),
        measured_models=tuple(sorted({point.config.model.name for point in sample.points})),
        reached=reached,
        local=left_over.correction(Form.local(sample)),
        portable=left_over.correction(PORTABLE),
        intervals=_intervals(sample, left_over),
    )


def fit_reached(sample: Sample) -> Reached:
    """The first stage, in logarithms, so that every coefficient stays positive."""
    from scipy.optimize import least_squares  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, slow to import

    names = tuple(Reached.model_fields)
    start = np.log([getattr(GUESS, name) for name in names])
    pull = np.array([PULL.get(name, ROUND_VALUE_PULL) for name in names])
    tpot, ttft = np.log(sample.tpot_s), np.log(sample.ttft_s)

    def errors(logs: Array) -> Array:
        physical = sample.physical(_reached(names, np.exp(logs)))
        apart = np.log(physical.tpot_s) - tpot, TTFT_WEIGHT * (np.log(physical.ttft_s) - ttft)
        return np.concatenate([*apart, pull * (logs - start)])

    found = least_squares(errors, start, loss="soft_l1", f_scale=SOFT, max_nfev=30)
    return _reached(names, np.array([float(f"{value:.4g}") for value in np.exp(found.x)]))


def _reached(names: Sequence[str], values: Array) -> Reached:
    return Reached.model_validate({name: float(value) for name, value in zip(names, values, strict=True)})


def named_terms(sample: Sample) -> tuple[str, ...]:
    gpus = sorted({point.config.gpu.name for point in sample.points})
    models = sorted({point.config.model.name for point in sample.points})
    by_model = [term for model in models for term in (f"model:{model}", f"model:{model}*batch")]
    return (*(f"gpu:{gpu}" for gpu in gpus), *by_model)


@dataclass(frozen=True, slots=True)
class Form:
    terms: tuple[str, ...]
    shrinkage: float = 1.0
    balanced: bool = False  # by model, engine and GPU type

    @classmethod
    def local(cls, sample: Sample) -> "Form":
        return cls((*LOCAL_TERMS, *named_terms(sample)))


PORTABLE = Form(PORTABLE_TERMS, shrinkage=3.0, balanced=True)


@dataclass(frozen=True, slots=True)
class Residuals:
    """The residuals of the first stage, and the second stage's fits of them."""

    sample: Sample
    tpot: Array
    ttft: Array

    @classmethod
    def of(cls, sample: Sample, reached: Reached) -> "Residuals":
        """Logarithms of measured over physical time."""
        physical = sample.physical(reached)
        return cls(
            sample,
            tpot=np.log(sample.tpot_s / physical.tpot_s),
            ttft=np.log(sample.ttft_s / physical.ttft_s),
        )

    def correction(self, form: Form) -> Correction:
        everything = np.full(len(self.sample.points), fill_value=True)
        found = {metric: self._fitted(target, form, everything) for metric, target in self._targets()}
        return Correction(**{metric: _rounded(form.terms, weights) for metric, weights in found.items()})

    def left_out(self, form: Form, parts: npt.NDArray[np.int_]) -> Errors:
        """Error of each point under a correction that was fitted without its part."""
        columns = self.sample.terms(form.terms)
        errors = {metric: np.zeros(len(parts)) for metric, _ in self._targets()}
        for part in np.unique(parts):
            training = parts != part
            for metric, target in self._targets():
                weights = self._fitted(target, form, training)
                errors[metric][~training] = columns[~training] @ weights - target[~training]
        return errors

    def _targets(self) -> tuple[tuple[str, Array], ...]:
        return ("tpot", self.tpot), ("ttft", self.ttft)

    def _fitted(self, target: Array, form: Form, training: npt.NDArray[np.bool_]) -> Array:
        given = np.ones(training.sum())
        if form.balanced:
            given = 1 / self.sample.family_sizes[training]
        columns = self.sample.terms(form.terms)[training]
        return _ridge(columns, target[training], penalties=_penalties(form), given=given / given.mean())


def _ridge(columns: Array, target: Array, *, penalties: Array, given: Array) -> Array:
    """Minimise the mean absolute percentage error: a weight is the point's given weight over its error."""
    penalty = np.diag(penalties**2 * len(target) / PRIOR_POINTS)
    weight: Array = given
    found: Array = np.zeros(columns.shape[1])
    for _ in range(SWEEPS):
        scaled = columns * weight[:, None]
        found = np.asarray(np.linalg.solve(scaled.T @ columns + penalty, scaled.T @ target))
        error = columns @ found - target
        weight = given * 0.1 / np.maximum(np.abs(error), 0.02) * np.clip(np.exp(error), 0.36, 2.56)
    return found


def _penalties(form: Form) -> Array:
    def one(name: str) -> float:
        return next((value for start, value in NAMED_SHRINKAGE.items() if name.startswith(start)), SHRINKAGE)

    return form.shrinkage * np.array([one(name) for name in form.terms])


def _rounded(names: Sequence[str], weights: Array) -> dict[str, float]:
    rounded = {name: round(float(weight), 4) for name, weight in zip(names, weights, strict=True)}
    return {name: weight for name, weight in rounded.items() if weight}


def _intervals(sample: Sample, left_over: Residuals) -> dict[str, Intervals]:
    """Kinds with points: from folds of whole curves.  Kinds without: from leaving out GPU types."""
    gpus = np.unique([point.config.gpu.name for point in sample.points], return_inverse=True)[1]
    training = left_over.left_out(Form.local(sample), sample.curves % FOLDS)
    unseen = left_over.left_out(PORTABLE, gpus)
    moe = np.array([point.config.model.experts > 0 for point in sample.points])
    found = {}
    for kind, chosen in (("dense", ~moe), ("moe", moe)):
        if chosen.any():
            found[kind] = _interval_pair(training, chosen)
            found[f"{kind}-unseen"] = _interval_pair(unseen, chosen)
    return found


def _interval_pair(errors: Errors, chosen: npt.NDArray[np.bool_]) -> Intervals:
    return Intervals(tpot=_interval(errors["tpot"][chosen]), ttft=_interval(errors["ttft"][chosen]))


def _interval(errors: Array) -> Interval:
    tail = (1 - INTERVAL) / 2 * (1 - 1 / len(errors))  # the finite sample's share
    low, high = np.quantile(-errors, (tail, 1 - tail))
    return Interval(low=round(float(np.exp(low)), 3), high=round(float(np.exp(high)), 3), points=len(errors))


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
    coefficients = fit(sample.only(~held), fitted=UNDATED, source=split)
    rest = sample.only(held)
    return Validation(split, rest, coefficients, predict(rest, coefficients))
