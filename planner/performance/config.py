"""The configuration of one replica: model, GPU, precisions, parallelism, clock and role.

A replica takes `tensor_parallel x attention_data_parallel x pipeline_parallel` GPUs.  Attention and the dense layers
are split over `tensor_parallel` GPUs and repeated for each rank of `attention_data_parallel` (DP attention of SGLang
and vLLM).  Routed experts are split over the GPUs of both: `expert_parallel` ways by expert, the rest inside each.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from fleet.gpus import GpuSpec, Precision
from fleet.models import ModelArchitecture

WeightPrecision = Literal["bf16", "fp16", "fp8", "fp4", "int8-wo", "int4-wo"]
KvPrecision = Literal["bf16", "fp8"]
Role = Literal["both", "prefill", "decode"]
Engine = Literal["vllm", "sglang", "trtllm"]

SIXTEEN_BIT_BYTES = 2.0
LARGE_MEMORY_GB = 70  # vLLM's defaults for serving: 8192 tokens an iteration on such GPUs, 2048 on smaller ones
CHUNK_TOKENS = {True: 8192, False: 2048}
# Scales included: one byte per 16 values in NVFP4, one half per 128 values in the integer formats.
PARAMETER_BYTES: dict[WeightPrecision, float] = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp4": 0.5625,
    "int8-wo": 1.0156,
    "int4-wo": 0.5156,
}
FOUR_BIT = frozenset({"fp4", "int4-wo"})
KV_BYTES: dict[KvPrecision, float] = {"bf16": 2.0, "fp8": 1.0}
# Where the tensor cores lack the precision, or the format is for weights only, engines unpack to the next one.
ARITHMETIC: dict[WeightPrecision, tuple[Precision, ...]] = {
    "bf16": ("bf16",),
    "fp16": ("fp16",),
    "fp8": ("fp8", "bf16"),
    "fp4": ("fp4", "bf16"),
    "int8-wo": ("bf16", "fp16"),
    "int4-wo": ("bf16", "fp16"),
}


@dataclass(frozen=True)
class ReplicaConfig:
    """One way to run a model.  Equal configurations have equal predictions."""

    model: ModelArchitecture
    gpu: GpuSpec
    precision: WeightPrecision = "bf16"
    kv_precision: KvPrecision = "bf16"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1
    attention_data_parallel: int = 1
    clock: float = 1.0  # of the full clock: compute follows it, bandwidth does not
    role: Role = "both"
    engine: Engine = "vllm"
    expert_imbalance: float = 1.0  # load of the busiest GPU over the mean, among those that share the experts
    redundant_experts: int = 0  # copies in each layer beyond one of each expert
    kv_link_gb_per_s: float | None = None  # between the prefill and the decode replica, per GPU; None: the host's PCIe

    @property
    def gpus(self) -> int:
        return self.stage_gpus * self.pipeline_parallel

    @property
    def stage_gpus(self) -> int:
        """GPUs that work on one layer together."""
        return self.tensor_parallel * self.attention_data_parallel

    @cached_property
    def arithmetic(self) -> Precision | None:
        """The precision of the matrix products; None where the GPU supports none."""
        return next((kind for kind in ARITHMETIC[self.precision] if kind in self.gpu.dense_tflops), None)

    @property
    def base_precision(self) -> WeightPrecision:
        """Precision of all weights except routed experts: published 4-bit mixtures quantise only the experts."""
        return "bf16" if self.model.experts and self.precision in FOUR_BIT else self.precision

    @cached_property
    def base_arithmetic(self) -> Precision | None:
        """The precision of the products outside the routed experts."""
        return next((kind for kind in ARITHMETIC[self.base_precision] if kind in self.gpu.dense_tflops), None)

    @property
    def embedding_parameters(self) -> int:
        """Input embedding and output head, which stay in 16 bit."""
        return self.model.embedding_parameters * (1 if self.model.tied_embeddings else 2)

    @cached_property
    def base_parameters(self) -> int:
        """Everything but embedding, output head and routed experts."""
        return self.model.parameters - self.model.routed_parameters - self.embedding_parameters

    @cached_property
    def base_bytes(self) -> float:
        """Weights outside the routed experts, once."""
        quantised = self.base_parameters * PARAMETER_BYTES[self.base_precision]
        return quantised + self.embedding_parameters * SIXTEEN_BIT_BYTES

    @cached_property
    def expert_bytes(self) -> float:
        """All routed experts, with their redundant copies."""
        return self.model.routed_parameters * PARAMETER_BYTES[self.precision] * self.copies_per_expert

    @property
    def copies_per_expert(self) -> float:
        """Mean over a layer's experts."""
        return 1.0 + self.redundant_experts / self.model.experts if self.model.experts else 1.0

    @cached_property
    def weight_bytes_per_gpu(self) -> float:
        stage = self.base_bytes / self.tensor_parallel + self.expert_bytes / self.stage_gpus
        return stage / self.pipeline_parallel

    def tflops(self, arithmetic: Precision | None) -> float:
        """Dense compute of one GPU at this clock."""
        return 0.0 if arithmetic is None else self.gpu.dense_tflops[arithmetic] * self.clock


def chunk_tokens(config: ReplicaConfig) -> int:
    return CHUNK_TOKENS[config.gpu.memory_gb >= LARGE_MEMORY_GB] * config.attention_data_parallel
