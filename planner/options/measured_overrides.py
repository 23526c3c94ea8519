"""Measured rates replace computed ones where benchmark results of a configuration exist.

Results match a shape if model, GPU, degrees and precision are equal.  Benchmarks run at full clock, with a
16-bit cache, both roles and no redundant experts.  A result without a precision counts as 16 bit.  Of several engines
or versions, the one with the most runs counts.
"""

from dataclasses import dataclass

from fleet.catalogues import folded
from fleet.gpus import GpuSpec
from fleet.models import ModelArchitecture
from fleet.sizes.histogram import SizeBuckets
from fleet.slo import Slo
from planner.options.enumeration import FULL_CLOCK, Shape
from planner.profiles import Configuration, Profiles, merged, throughput_from_points
from planner.throughput import Throughput

SIXTEEN_BIT = frozenset({"", "bf16", "fp16", "bfloat16", "float16"})


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
        return merged(
            table,
            buckets=self.buckets,
            fallback=computed.max_rps,
            fallback_interval=computed.interval_90,
            computed=computed.provenance,
        ).throughput

    def _configuration(self, model: ModelArchitecture, gpu: GpuSpec, shape: Shape) -> Configuration | None:
        plain = shape.role == "both" and shape.clock == FULL_CLOCK and shape.kv_precision == "bf16"
        if not plain or shape.layout.redundant_experts:
            return None
        known = self.profiles.configurations()
        alike = [each for each in known if _is(each, model, gpu, shape)]
        return max(alike, key=lambda each: (known[each], each), default=None)


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
