"""A replica with a constant number of requests of one size, as in public benchmarks, and the measured points of a fit.

Requests alternate between a queue for the prompt's turn and decoding: a closed network of one queueing station and one
delay (docs/explanation/planner/performance.md, section 3).  `Sample` holds measured points as arrays.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.performance.aiconfigurator import MeasuredPoint
from planner.performance.coefficients import (
    Coefficients,
    Reached,
    config_features,
    correction_of,
    load_features,
    term_value,
)
from planner.performance.hardware_demand import Array, Demands, demands, stacked
from planner.performance.step_time import decode_s, prompt_alone_s, prompt_work_s

ITERATIONS = 6  # of the fixed point between batch and times; the batch changes by less than 1 % after four
SHARPNESS = 6.0  # of the soft minimum of concurrency and cache capacity
TUNED_MEMORY = 0.95  # benchmarks configure a larger share than the default


@dataclass(frozen=True, slots=True)
class Split:
    """Prefill on separate replicas: their demands, and the number of each kind."""

    prefill: Demands
    prefill_replicas: Array
    decode_replicas: Array


@dataclass(frozen=True, slots=True)
class Physical:
    """Times before the correction."""

    tpot_s: Array
    ttft_s: Array
    batch: Array  # sequences that decode at once


def closed_loop(
    demand: Demands,
    reached: Reached,
    *,
    concurrency: Array,
    split: Split | None = None,
    speculative: Array | float = 0.0,
) -> Physical:
    per_decode, per_prefill, shared = concurrency, concurrency, np.ones_like(concurrency)
    prompts, work_s = demand, reached.interference * prompt_work_s(demand, reached)
    if split is not None:
        apart = split.prefill_replicas > 0  # 0 marks a replica that prefills and decodes
        per_decode = concurrency / np.where(apart, split.decode_replicas, 1.0)
        per_prefill = concurrency / np.where(apart, split.prefill_replicas, 1.0)
        shared = np.where(apart, 0.0, 1.0)
        prompts = split.prefill
        work_s = np.where(apart, prompt_work_s(prompts, reached), work_s)
    running = soft_min(per_decode, demand.sequences * reached.cache_capacity)
    waiting_for_turn = np.where(shared > 0, running, per_prefill)
    guesses = np.where(np.asarray(speculative) > 0, reached.speculation, 1.0)

    def times(batch: Array) -> tuple[Array, Array, Array]:
        step_s = decode_s(demand, reached, batch) / guesses
        tpot_s = step_s + shared * batch * work_s / demand.output_tokens
        decoding_s = demand.output_tokens * tpot_s
        return step_s, tpot_s, _turn_s(work_s, decoding_s, waiting_for_turn, burst=reached.burst)

    batch = running
    for _ in range(ITERATIONS - 1):
        step_s, tpot_s, turn_s = times(batch)
        decoding_s = demand.output_tokens * tpot_s
        batch = np.maximum(1.0, running * decoding_s / (decoding_s + turn_s))
    step_s, tpot_s, turn_s = times(batch)
    decoding_s = demand.output_tokens * tpot_s
    place_wait_s = np.maximum(0.0, per_decode - running) / running * (decoding_s + turn_s)
    ttft_s = (
        reached.request_s
        + prompt_alone_s(prompts, reached)
        + (turn_s - work_s)
        + reached.start * waiting_for_turn * work_s
        + reached.first_steps * step_s
        + np.where(shared > 0, place_wait_s, reached.transfer_s)
    )
    return Physical(tpot_s, ttft_s, batch)


def soft_min(one: Array, other: Array) -> Array:
    """The smaller of two, smoothed where they are close, because the cache fills unevenly."""
    return np.asarray((one**-SHARPNESS + other**-SHARPNESS) ** (-1 / SHARPNESS))


def _turn_s(work_s: Array, decoding_s: Array, customers: Array, *, burst: float) -> Array:
    """Wait for the turn and the turn itself: W = w (1 + burst (N - 1) W / (W + Z)), at most all requests' work."""
    linear = decoding_s - work_s * (1 + burst * np.maximum(0.0, customers - 1))
    wait_s = (-linear + np.sqrt(linear**2 + 4 * work_s * decoding_s)) / 2
    return np.asarray(np.minimum(wait_s, work_s * customers))


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
    physical = sample.physical(coefficients.reached)
    local = np.array([point.config.gpu.name in coefficients.measured_gpus for point in sample.points])

    def corrected(physical_s: Array, name: str) -> Array:
        ours = correction_of(getattr(coefficients.local, name), sample.features)
        theirs = correction_of(getattr(coefficients.portable, name), sample.features)
        return np.asarray(physical_s * np.exp(np.where(local, ours, theirs)))

    return Predicted(corrected(physical.tpot_s, "tpot"), corrected(physical.ttft_s, "ttft"))


def _size(point: MeasuredPoint) -> tuple[int, int]:
    return point.input_tokens, point.output_tokens
