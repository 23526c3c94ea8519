"""The rates of each shape on a GPU type, estimated once for all offers, or measured where results exist.

Results match a shape if model, GPU, degrees and precision are equal.  Benchmarks run at full clock, with a 16-bit
cache, both roles and no redundant experts.  A result without a precision counts as 16 bit.  Of several engines or
versions, the one with the most runs counts.  `Estimator` is the interface of the performance model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from fleet.catalogues import folded
from fleet.gpus import GpuSpec
from fleet.models import ModelArchitecture
from fleet.sizes.histogram import Bucket, SizeBuckets
from fleet.slo import Slo, Statistic
from planner.options import disaggregation
from planner.options.enumeration import FULL_CLOCK, ConfigSpace, Shape, shapes
from planner.options.expert_imbalance import ExpertSpread, SpreadTable
from planner.performance.coefficients import builtin_coefficients
from planner.performance.config import ReplicaConfig
from planner.performance.rates import Estimate
from planner.profiles import Configuration, Profiles, merged, throughput_from_points
from planner.request import MAX_REPLICAS_PER_BUCKET, Workload
from planner.throughput import Throughput, ThroughputSource
from power.curves import ReplicaPower, replica_power

SIXTEEN_BIT = frozenset({"", "bf16", "fp16", "bfloat16", "float16"})
NO_INTERVAL = "no similar configuration was measured"

Size = tuple[int, int]  # input and output tokens


@dataclass(frozen=True, slots=True)
class Measurements:
    """The profiles for the shapes of one workload."""

    profiles: Profiles
    buckets: SizeBuckets
    slo: Slo

    def improved(self, computed: Throughput, *, model: ModelArchitecture, gpu: GpuSpec, shape: Shape) -> Throughput:
        """The same table with measured rates where they exist, and limited by them elsewhere."""
        found = self._configuration(model, gpu, shape)
        if found is None:
            return computed
        table = throughput_from_points(self.profiles.of(found), buckets=self.buckets, slo=self.slo)
        return merged(table, buckets=self.buckets, computed=computed)

    def _configuration(self, model: ModelArchitecture, gpu: GpuSpec, shape: Shape) -> Configuration | None:
        plain = shape.role == "both" and shape.clock == FULL_CLOCK and shape.kv_precision == "bf16"
        if not plain or shape.layout.redundant_experts:
            return None
        known = self.profiles.configurations()
        alike = [each for each in known if _is(each, model, gpu, shape)]
        return max(alike, key=lambda each: (known[each], each), default=None)


class Estimator(Protocol):
    def __call__(
        self, config: ReplicaConfig, slo: Slo, *, sizes: Sequence[Size], arrival_cv: float
    ) -> Sequence[Estimate]:
        """The highest rate inside the SLO if all requests have one size, for each size."""
        ...


@dataclass(frozen=True)
class Variant:
    """One shape on one GPU type, with its rate per bucket."""

    gpu: GpuSpec
    shape: Shape
    throughput: Throughput
    reasons: tuple[str | None, ...]  # per bucket, why it serves none
    rates_rps: tuple[float, ...]  # as planned: 0 if the bucket would need too many replicas
    worst_rps: tuple[float, ...]  # the same at the lower end of their intervals
    spread: ExpertSpread | None = None  # None: experts are not distributed

    @property
    def gpus(self) -> int:
        return self.shape.gpus

    @property
    def name(self) -> str:
        return self.shape.name(self.gpu)

    @property
    def serves_anything(self) -> bool:
        return any(self.rates_rps)

    @cached_property
    def power(self) -> ReplicaPower:
        return replica_power(self.gpu, gpus=self.gpus, level=self.shape.clock)

    @property
    def idle_w(self) -> float:
        return self.power.planned_idle_w

    @property
    def busy_w(self) -> float:
        return self.power.planned_busy_w

    @property
    def limit_w(self) -> float:
        """What a power domain counts for it."""
        return self.power.limit_w


@dataclass(frozen=True)
class VariantTable:
    """All variants of one workload, each estimated on first use."""

    workload: Workload
    model: ModelArchitecture
    slo: Slo
    estimator: Estimator
    measurements: Measurements | None = None
    known: dict[tuple[str, Shape, float | None], Variant] = field(default_factory=dict)

    @cached_property
    def spreads(self) -> SpreadTable:
        return SpreadTable(self.workload, self.model)

    @cached_property
    def buckets(self) -> tuple[Bucket, ...]:
        return tuple(self.workload.buckets.buckets())

    def on(self, gpu: GpuSpec, *, gpus_per_instance: int, config_space: ConfigSpace) -> list[Variant]:
        found = shapes(self.model, gpu, gpus_per_instance=gpus_per_instance, config_space=config_space)
        return [self.variant(gpu, shape) for shape in found]

    def variant(self, gpu: GpuSpec, shape: Shape, *, kv_link_gb_per_s: float | None = None) -> Variant:
        """One of them; `kv_link_gb_per_s` if the decode replica receives the cache slower than this one sends it."""
        key = gpu.name, shape, kv_link_gb_per_s
        if key not in self.known:
            self.known[key] = self._estimated(gpu, shape, kv_link_gb_per_s)
        return self.known[key]

    def _estimated(self, gpu: GpuSpec, shape: Shape, kv_link_gb_per_s: float | None) -> Variant:
        spread = self._spread(shape)
        imbalance = 1.0 if spread is None else spread.expert_imbalance
        config = shape.config(self.model, gpu, expert_imbalance=imbalance, kv_link_gb_per_s=kv_link_gb_per_s)
        estimates = self._estimates(config)
        computed = _throughput(estimates, columns=len(self.workload.buckets.output_tokens), config=config)
        throughput = computed
        if self.measurements is not None:
            throughput = self.measurements.improved(computed, model=self.model, gpu=gpu, shape=shape)
        flat = [rate_rps for row in throughput.max_rps for rate_rps in row]
        rates_rps = plannable(flat, self.workload.bucket_rates_rps())
        low = None if throughput is computed or throughput.interval_90 is None else throughput.interval_90[0]
        return Variant(
            gpu=gpu,
            shape=shape,
            throughput=throughput,
            reasons=tuple(estimate.reason for estimate in estimates),
            rates_rps=rates_rps,
            worst_rps=tuple(
                _worst_rps(estimate, rate_rps) if low is None else rate_rps * min(1.0, low)
                for estimate, rate_rps in zip(estimates, rates_rps, strict=True)
            ),
            spread=spread,
        )

    def _spread(self, shape: Shape) -> ExpertSpread | None:
        layout = shape.layout
        if layout.expert_parallel == 1:
            return None
        return self.spreads.of(gpus=layout.stage_gpus, slots=self.model.experts + layout.redundant_experts)

    def _estimates(self, config: ReplicaConfig) -> list[Estimate]:
        sizes = [bucket.edge for bucket in self.buckets]
        if config.role == "both":
            at_edge = self._estimated_sizes(config, self.slo, sizes)
            if not _limits_slow_tokens(self.slo):
                return at_edge
            short = self._estimated_short(config)
            return [min(pair, key=lambda estimate: estimate.max_rps) for pair in zip(at_edge, short, strict=True)]
        limits = [
            disaggregation.prefill_slo(self.slo)
            if config.role == "prefill"
            else disaggregation.decode_slo(self.slo, output_tokens=outputs)
            for _, outputs in sizes
        ]
        found: dict[int, Estimate] = {}
        for slo in dict.fromkeys(limits):
            positions = [position for position, limit in enumerate(limits) if limit == slo]
            if slo is None:
                found |= dict.fromkeys(positions, Estimate(0.0, "the end-to-end limit leaves no time to decode"))
            else:
                estimates = self._estimated_sizes(config, slo, [sizes[position] for position in positions])
                found |= dict(zip(positions, estimates, strict=True))
        return [
            disaggregation.within_link(found[position], config, input_tokens=inputs)
            for position, (inputs, _) in enumerate(sizes)
        ]

    def _estimated_short(self, config: ReplicaConfig) -> list[Estimate]:
        """At half a bucket's output: prefills of other requests delay the tokens of a short output more."""
        sizes = [(bucket.edge[0], max(2, round(bucket.middle[1]))) for bucket in self.buckets]
        return self._estimated_sizes(config, self.slo, sizes)

    def _estimated_sizes(self, config: ReplicaConfig, slo: Slo, sizes: Sequence[Size]) -> list[Estimate]:
        return list(self.estimator(config, slo, sizes=sizes, arrival_cv=self.workload.arrival_cv))


def _limits_slow_tokens(slo: Slo) -> bool:
    return any(statistic is not Statistic.MEAN for statistic, _ in slo.tpot_ms.items())


def plannable(rates_rps: Iterable[float], demand_rps: Iterable[float]) -> tuple[float, ...]:
    """The rates, with 0 where a bucket would need more than `MAX_REPLICAS_PER_BUCKET` replicas."""
    return tuple(
        rate if rate > demand / MAX_REPLICAS_PER_BUCKET else 0.0
        for rate, demand in zip(rates_rps, demand_rps, strict=True)
    )


def _worst_rps(estimate: Estimate, rate_rps: float) -> float:
    return rate_rps if estimate.interval_90 is None else min(rate_rps, estimate.interval_90[0])


def _throughput(estimates: Sequence[Estimate], *, columns: int, config: ReplicaConfig) -> Throughput:
    rates_rps = [estimate.max_rps for estimate in estimates]
    interval = _widest(estimates)
    return Throughput(
        max_rps=tuple(tuple(rates_rps[first : first + columns]) for first in range(0, len(rates_rps), columns)),
        provenance=ThroughputSource.CALIBRATED,
        interval_90=interval,
        interval_note=NO_INTERVAL if interval is None else _note(config),
    )


def _note(config: ReplicaConfig) -> str:
    fit, model, gpu = builtin_coefficients(), config.model, config.gpu.name
    measured = "was" if gpu in fit.measured_gpus else "was not"
    kind = "mixtures of experts" if model.experts else "dense models"
    interval = fit.interval(gpu=gpu, model=model.name, moe=model.experts > 0)
    points = interval.tpot.points if interval is not None else 0
    return (
        f"the widest of its buckets; errors on {points} points of {kind}, fitted {fit.fitted}; "
        f"{gpu} {measured} among them"
    )


def _widest(estimates: Sequence[Estimate]) -> tuple[float, float] | None:
    """Multiples of the rate that contain the interval of every bucket."""
    served = [estimate for estimate in estimates if estimate.max_rps > 0]
    ends = [
        (estimate.interval_90[0] / estimate.max_rps, estimate.interval_90[1] / estimate.max_rps)
        for estimate in served
        if estimate.interval_90 is not None
    ]
    if not ends or len(ends) < len(served):
        return None
    return min(low for low, _ in ends), max(high for _, high in ends)


def _is(configuration: Configuration, model: ModelArchitecture, gpu: GpuSpec, shape: Shape) -> bool:
    layout = shape.layout
    degrees = (
        configuration.tensor_parallel,
        configuration.pipeline_parallel,
        configuration.data_parallel,
        configuration.expert_parallel,
    )
    return (
        folded(configuration.model) in model.folded_names
        and folded(configuration.gpu) in gpu.folded_names
        and degrees
        == (layout.tensor_parallel, layout.pipeline_parallel, layout.attention_data_parallel, layout.expert_parallel)
        and _precision(configuration.precision) == _precision(shape.precision)
    )


def _precision(name: str) -> str:
    return "16 bit" if name.casefold() in SIXTEEN_BIT else name.casefold()
