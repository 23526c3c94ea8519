"""Measured points as arrays: their demands, features and times, and the predictions of a fit."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.performance.aiconfigurator import MeasuredPoint
from planner.performance.closed_loop import Physical, Split, closed_loop
from planner.performance.coefficients import Coefficients, Reached
from planner.performance.features import config_features, correction_of, load_features, term_value
from planner.performance.hardware_demand import Array, Demands, demands, stacked

TUNED_MEMORY = 0.95  # benchmarks configure a larger share than the default


@dataclass(frozen=True)
class Sample:
    """Points in the order given."""

    points: tuple[MeasuredPoint, ...]

    @cached_property
    def tpot_s(self) -> Array:
        return np.array([point.tpot_s for point in self.points])

    @cached_property
    def ttft_s(self) -> Array:
        return np.array([point.ttft_s for point in self.points])

    @cached_property
    def curves(self) -> npt.NDArray[np.int_]:
        """A number per point, equal for points on one curve."""
        number: dict[tuple[object, ...], int] = {}
        return np.array([number.setdefault(point.curve, len(number)) for point in self.points])

    @cached_property
    def family_sizes(self) -> Array:
        """The number of points with each point's model, engine and GPU type."""
        keys = [(point.config.model.name, point.config.engine, point.config.gpu.name) for point in self.points]
        counts = Counter(keys)
        return np.array([float(counts[key]) for key in keys])

    @cached_property
    def demand(self) -> Demands:
        return stacked(
            [demands(point.config, sizes=[_size(point)], memory_usable=TUNED_MEMORY) for point in self.points]
        )

    @cached_property
    def split(self) -> Split:
        """Points without disaggregation have no prefill replicas, and their own demands in place of theirs."""
        return Split(
            stacked(
                [
                    demands(point.prefill or point.config, sizes=[_size(point)], memory_usable=TUNED_MEMORY)
                    for point in self.points
                ]
            ),
            self._of_each("prefill_replicas"),
            self._of_each("decode_replicas"),
        )

    @cached_property
    def features(self) -> Mapping[str, Array]:
        each = [
            config_features(point.config, software_age=point.software_age, speculative=point.speculative)
            for point in self.points
        ]
        names = {name for found in each for name in found}
        fixed = {name: np.array([found.get(name, 0.0) for found in each]) for name in sorted(names)}
        batch = np.minimum(self._of_each("concurrency") / self.split.decode_replicas, self.demand.sequences)
        apart = (self.split.prefill_replicas > 0).astype(np.float64)
        sizes = {"input_tokens": self._of_each("input_tokens"), "output_tokens": self._of_each("output_tokens")}
        return {**fixed, **load_features(batch=batch, apart=apart, **sizes)}

    def terms(self, names: Sequence[str]) -> Array:
        ones = np.ones(len(self.points))
        return np.stack([ones * term_value(name, self.features) for name in names], axis=1)

    def physical(self, reached: Reached) -> Physical:
        """Times before the correction."""
        return closed_loop(
            self.demand,
            reached,
            concurrency=self._of_each("concurrency"),
            split=self.split,
            speculative=self._of_each("speculative"),
        )

    def only(self, chosen: npt.NDArray[np.bool_]) -> "Sample":
        return Sample(tuple(self.points[int(i)] for i in np.flatnonzero(chosen)))

    def _of_each(self, name: str) -> Array:
        return np.array([float(getattr(point, name)) for point in self.points])


@dataclass(frozen=True, slots=True)
class Predicted:
    tpot_s: Array
    ttft_s: Array


def predict(sample: Sample, coefficients: Coefficients) -> Predicted:
    """Physical times with the correction of each point's GPU type."""
    physical = sample.physical(coefficients.reached)
    local = np.array([point.config.gpu.name in coefficients.measured_gpus for point in sample.points])

    def corrected(physical_s: Array, name: str) -> Array:
        ours = correction_of(getattr(coefficients.local, name), sample.features)
        theirs = correction_of(getattr(coefficients.portable, name), sample.features)
        return np.asarray(physical_s * np.exp(np.where(local, ours, theirs)))

    return Predicted(corrected(physical.tpot_s, "tpot"), corrected(physical.ttft_s, "ttft"))


def _size(point: MeasuredPoint) -> tuple[int, int]:
    return point.input_tokens, point.output_tokens
