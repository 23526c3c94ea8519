"""Enumerates the ways to run a model on a GPU type: parallelism, precision and clock.

docs/explanation/planner/options.md has the method.  A stage's GPUs are a power of two that divides the instance, so
that replicas fill instances without a remainder (docs/explanation/planner/formulation.md, section 1).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fleet.gpus import GpuSpec
from fleet.models import ModelArchitecture
from planner.performance.config import PARAMETER_BYTES, KvPrecision, ReplicaConfig, Role, WeightPrecision

STAGE_GPUS = (1, 2, 4, 8)  # the model predicts no tensor parallelism wider than a host of eight
STAGES = (2, 4, 8)
HOST_GPUS = 8  # an instance of so many GPUs is a host with fast network cards
FULL_CLOCK = 1.0
MAX_MEMORY_FOR_WEIGHTS = 0.9  # engines keep about a tenth for themselves; the estimate is exact


@dataclass(frozen=True, slots=True)
class Layout:
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    attention_data_parallel: int = 1
    expert_parallel: int = 1
    redundant_experts: int = 0  # slots of a layer beyond one per expert, on all GPUs of a stage

    @property
    def gpus(self) -> int:
        return self.stage_gpus * self.pipeline_parallel

    @property
    def stage_gpus(self) -> int:
        return self.tensor_parallel * self.attention_data_parallel

    @property
    def name(self) -> str:
        """As in option names: degrees of 1 are left out, except `tp`."""
        parts = (
            ("pp", self.pipeline_parallel),
            ("dp", self.attention_data_parallel),
            ("ep", self.expert_parallel),
        )
        copies = [f"red{self.redundant_experts}"] if self.redundant_experts else []
        degrees = (f"{kind}{degree}" for kind, degree in parts if degree > 1)
        return "-".join([f"tp{self.tensor_parallel}", *degrees, *copies])


@dataclass(frozen=True, slots=True)
class Shape:
    """The way to run one replica, for any GPU type and model."""

    layout: Layout = Layout()
    precision: WeightPrecision = "bf16"
    kv_precision: KvPrecision = "bf16"
    clock: float = FULL_CLOCK
    role: Role = "both"

    @property
    def gpus(self) -> int:
        return self.layout.gpus

    def name(self, gpu: GpuSpec) -> str:
        """Unique among the shapes of a GPU type; the GPU's 16 bit, the full clock and both roles are left out."""
        parts = [self.layout.name]
        if self.precision != sixteen_bit(gpu):
            parts.append(self.precision)
        if self.kv_precision != "bf16":
            parts.append("kv8")
        if self.role != "both":
            parts.append(self.role)
        return "-".join(parts) + (f"@{self.clock:g}" if self.clock != FULL_CLOCK else "")

    def config(
        self,
        model: ModelArchitecture,
        gpu: GpuSpec,
        *,
        expert_imbalance: float,
        kv_link_gb_per_s: float | None = None,
    ) -> ReplicaConfig:
        layout = self.layout
        return ReplicaConfig(
            model=model,
            gpu=gpu,
            precision=self.precision,
            kv_precision=self.kv_precision,
            tensor_parallel=layout.tensor_parallel,
            pipeline_parallel=layout.pipeline_parallel,
            expert_parallel=layout.expert_parallel,
            attention_data_parallel=layout.attention_data_parallel,
            clock=self.clock,
            role=self.role,
            expert_imbalance=expert_imbalance if layout.expert_parallel > 1 else 1.0,
            redundant_experts=layout.redundant_experts,
            kv_link_gb_per_s=kv_link_gb_per_s,
        )


@dataclass(frozen=True, slots=True)
class ConfigSpace:
    precisions: tuple[WeightPrecision, ...] | None = None  # None: the GPU's own 16 bit
    kv_precisions: tuple[KvPrecision, ...] = ("bf16",)
    levels: tuple[float, ...] = (FULL_CLOCK,)
    roles: tuple[Role, ...] = ("both",)
    redundant_experts: tuple[int, ...] | None = None  # per GPU; None: each expert once

    def precisions_on(self, gpu: GpuSpec) -> tuple[WeightPrecision, ...]:
        """Those of the request, each once, or the GPU's 16 bit."""
        return (sixteen_bit(gpu),) if self.precisions is None else tuple(dict.fromkeys(self.precisions))


def shapes(
    model: ModelArchitecture, gpu: GpuSpec, *, gpus_per_instance: int, config_space: ConfigSpace
) -> Iterator[Shape]:
    """All shapes of a model on instances of this size, narrow stages and full clocks first."""
    for precision in config_space.precisions_on(gpu):
        probe = ReplicaConfig(model=model, gpu=gpu, precision=precision)
        if probe.arithmetic is None or probe.base_arithmetic is None:
            continue
        spilling = gpus_per_instance >= HOST_GPUS and _spills(model, gpu, precision, gpus_per_instance)
        for layout in layouts(
            model,
            gpu,
            gpus_per_instance=gpus_per_instance,
            over_instances=spilling,
            redundant_experts=config_space.redundant_experts,
        ):
            for kv_precision in dict.fromkeys(config_space.kv_precisions):
                plain = Shape(layout, precision, kv_precision)
                for role in config_space.roles:
                    yield from (
                        replace(plain, role=role, clock=level) for level in sorted(set(config_space.levels))[::-1]
                    )


def layouts(
    model: ModelArchitecture,
    gpu: GpuSpec,
    *,
    gpus_per_instance: int,
    over_instances: bool,
    redundant_experts: tuple[int, ...] | None = None,
) -> Iterator[Layout]:
    """Stages of each width, and pipelines of the widest; `over_instances` allows a pipeline over several instances."""
    widths = [width for width in STAGE_GPUS if gpus_per_instance % width == 0 and width <= gpu.link_domain_gpus]
    stages = [stage for width in widths for stage in _stages(model, width, redundant_experts)]
    yield from stages
    widest = max(stage.gpus for stage in stages)
    for stage in stages:
        for count in STAGES if stage.gpus == widest else ():
            row = replace(stage, pipeline_parallel=count)
            inside = gpus_per_instance % row.gpus == 0
            across = over_instances and row.gpus % gpus_per_instance == 0
            if count <= model.layers and (inside or across):
                yield row


def slots_over(experts: int, gpus: int, spare: int) -> int:
    """Slots of one layer if each GPU holds `spare` beyond its even share of the experts."""
    return (-(-experts // gpus) + spare) * gpus


def sixteen_bit(gpu: GpuSpec) -> WeightPrecision:
    """The precision of published 16-bit weights on this GPU."""
    return "bf16" if "bf16" in gpu.dense_tflops else "fp16"


def _stages(model: ModelArchitecture, width: int, redundant_experts: tuple[int, ...] | None) -> Iterator[Layout]:
    splits = model.heads % width == 0
    if splits:
        yield Layout(tensor_parallel=width)
    for redundant in _redundancies(model, width, redundant_experts):
        if splits:
            yield Layout(tensor_parallel=width, expert_parallel=width, redundant_experts=redundant)
        yield Layout(attention_data_parallel=width, expert_parallel=width, redundant_experts=redundant)


def _redundancies(model: ModelArchitecture, width: int, redundant_experts: tuple[int, ...] | None) -> Iterator[int]:
    """Numbers of redundant experts of a stage; empty if the experts cannot be distributed."""
    if width == 1 or model.experts == 0:
        return
    if redundant_experts is None:
        yield from () if model.experts % width else (0,)
        return
    for spare in sorted(set(redundant_experts)):
        slots = slots_over(model.experts, width, spare)
        if slots <= model.experts * width:  # no GPU holds an expert twice
            yield slots - model.experts


def _spills(model: ModelArchitecture, gpu: GpuSpec, precision: WeightPrecision, gpus_per_instance: int) -> bool:
    """Whether one instance does not hold the weights."""
    base: WeightPrecision = ReplicaConfig(model=model, gpu=gpu, precision=precision).base_precision
    weights = model.weight_bytes(parameter_bytes=PARAMETER_BYTES[base], expert_bytes=PARAMETER_BYTES[precision])
    return weights > gpu.memory_bytes * gpus_per_instance * MAX_MEMORY_FOR_WEIGHTS
