"""The engine flags of a replica: those of the configuration whose throughput the plan predicts.

`ReplicaSettings` states the configuration without an engine.  `vllm_flags` and `sglang_flags` write it as launch flags
of the engine versions in `ENGINE_VERSIONS`.  Every flag is one that its engine lists in that version.

vLLM counts sequences and tokens of a step for each data-parallel rank, SGLang for all ranks of DP attention together.
vLLM's memory share includes activations; SGLang's holds only weights and cache.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from pydantic import Field

from fleet.documents import Frozen
from fleet.gpus import GpuSpec
from fleet.models import ModelArchitecture
from planner.options.enumeration import Shape
from planner.performance.config import KvPrecision, Role, WeightPrecision, chunk_tokens
from planner.performance.kv_memory import MEMORY_USABLE, RESERVED_BYTES
from planner.performance.rates import MAX_SEQUENCES


class ServingEngine(StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"


ENGINE_VERSIONS: Final[Mapping[ServingEngine, str]] = {ServingEngine.VLLM: "0.24.0", ServingEngine.SGLANG: "0.5.18"}

SIXTEEN_BIT: Final[Mapping[WeightPrecision, str]] = {"bf16": "bfloat16", "fp16": "float16"}
NIXL: Final = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
PUBLISHED_WEIGHTS: Final = (
    "needs a checkpoint with {precision} weights: the engine takes this precision from its config"
)


class ReplicaSettings(Frozen):
    """How a replica must run, as its predicted throughput assumes.  Sums are over all GPUs of the replica."""

    model: str = Field(description="Of the model catalogue.")
    checkpoint: str = Field(description="Name of the weights on Hugging Face, where the catalogue knows one.")
    role: Role
    precision: WeightPrecision = Field(description="Of the weights.")
    kv_precision: KvPrecision = Field(description="Of the KV cache.")
    tensor_parallel: int = Field(ge=1)
    pipeline_parallel: int = Field(ge=1)
    attention_data_parallel: int = Field(ge=1)
    expert_parallel: int = Field(ge=1)
    redundant_experts: int = Field(ge=0, description="Of a layer.")
    max_context_tokens: int = Field(
        ge=1, description="Input and output tokens of the longest request that the option can serve."
    )
    max_sequences: int = Field(ge=1, description="Requests that run at once.")
    step_tokens: int = Field(ge=1, description="Highest number of tokens of one step.")
    memory_share: float = Field(gt=0, le=1, description="Of each GPU's memory, for weights, cache and activations.")
    cache_and_weights_share: float = Field(gt=0, le=1, description="The same without activations.")


class EngineFlags(Frozen):
    """Launch flags of one engine."""

    version: str = Field(description="The engine version that has these flags.")
    command: tuple[str, ...] = Field(description="Before the flags.")
    flags: tuple[str, ...]
    notes: tuple[str, ...] = Field(default=(), description="What the flags cannot state.")


def replica_settings(
    shape: Shape, *, model: ModelArchitecture, named: str | None, gpu: GpuSpec, max_context_tokens: int
) -> ReplicaSettings:
    """The settings of an option's replica; `named` is the model as the request names it."""
    config = shape.config(model, gpu, expert_imbalance=1.0)
    tokens = chunk_tokens(config)
    return ReplicaSettings(
        model=model.name,
        checkpoint=checkpoint_of(model, named=named),
        role=shape.role,
        precision=shape.precision,
        kv_precision=shape.kv_precision,
        tensor_parallel=shape.layout.tensor_parallel,
        pipeline_parallel=shape.layout.pipeline_parallel,
        attention_data_parallel=shape.layout.attention_data_parallel,
        expert_parallel=shape.layout.expert_parallel,
        redundant_experts=shape.layout.redundant_experts,
        max_context_tokens=max_context_tokens,
        max_sequences=min(MAX_SEQUENCES * shape.layout.attention_data_parallel, tokens),
        step_tokens=tokens,
        memory_share=MEMORY_USABLE,
        cache_and_weights_share=round(MEMORY_USABLE - RESERVED_BYTES / gpu.memory_bytes, 3),
    )


def checkpoint_of(model: ModelArchitecture, *, named: str | None) -> str:
    """The name of the request if that is one of a repository, else the first such alias of the catalogue."""
    names = (named or "", *model.aliases)
    return next((name for name in names if "/" in name), model.name)


def engine_flags(settings: ReplicaSettings, engine: ServingEngine) -> EngineFlags:
    return EngineFlags(
        version=ENGINE_VERSIONS[engine],
        command=launch_command(settings, engine),
        flags=tuple(WRITERS[engine](settings)),
        notes=tuple(_notes(settings, engine)),
    )


def launch_command(settings: ReplicaSettings, engine: ServingEngine) -> tuple[str, ...]:
    """`vllm serve` takes the model as an argument, SGLang with a flag."""
    if engine is ServingEngine.VLLM:
        return ("vllm", "serve", settings.checkpoint)
    return ("python3", "-m", "sglang.launch_server")


def vllm_flags(settings: ReplicaSettings) -> Iterator[str]:
    """Without the model, which is an argument of `vllm serve`."""
    ranks = settings.attention_data_parallel
    yield from ("--tensor-parallel-size", str(settings.tensor_parallel))
    if settings.pipeline_parallel > 1:
        yield from ("--pipeline-parallel-size", str(settings.pipeline_parallel))
    if ranks > 1:
        yield from ("--data-parallel-size", str(ranks))
    if settings.expert_parallel > 1:
        yield "--enable-expert-parallel"
    if settings.redundant_experts:
        yield "--enable-eplb"
        yield from ("--eplb-config", _json({"num_redundant_experts": settings.redundant_experts}))
    if settings.precision in SIXTEEN_BIT:
        yield from ("--dtype", SIXTEEN_BIT[settings.precision])
    elif settings.precision == "fp8":
        yield from ("--quantization", "fp8")
    if settings.kv_precision == "fp8":
        yield from ("--kv-cache-dtype", "fp8")
    yield from ("--max-model-len", str(settings.max_context_tokens))
    yield from ("--max-num-seqs", str(settings.max_sequences // ranks))
    yield from ("--max-num-batched-tokens", str(settings.step_tokens // ranks))
    yield from ("--gpu-memory-utilization", f"{settings.memory_share:g}")
    if settings.role != "both":
        yield from ("--kv-transfer-config", _json(NIXL))


def sglang_flags(settings: ReplicaSettings) -> Iterator[str]:
    ranks = settings.attention_data_parallel
    yield from ("--model-path", settings.checkpoint)
    yield from ("--tp-size", str(settings.tensor_parallel * ranks))  # of all attention ranks together
    if settings.pipeline_parallel > 1:
        yield from ("--pp-size", str(settings.pipeline_parallel))
    if ranks > 1:
        yield from ("--dp-size", str(ranks), "--enable-dp-attention")
    if settings.expert_parallel > 1:
        yield from ("--ep-size", str(settings.expert_parallel))
    if settings.redundant_experts:
        yield from ("--ep-num-redundant-experts", str(settings.redundant_experts))
    if settings.precision == "fp16":
        yield from ("--dtype", SIXTEEN_BIT[settings.precision])
    elif settings.precision == "fp8":
        yield from ("--quantization", "fp8")
    if settings.kv_precision == "fp8":
        yield from ("--kv-cache-dtype", "fp8_e4m3")
    yield from ("--context-length", str(settings.max_context_tokens))
    yield from ("--max-running-requests", str(settings.max_sequences))
    yield from ("--chunked-prefill-size", str(settings.step_tokens))
    yield from ("--mem-fraction-static", f"{settings.cache_and_weights_share:g}")
    if settings.role != "both":
        yield from ("--disaggregation-mode", settings.role, "--disaggregation-transfer-backend", "nixl")


WRITERS: Final[Mapping[ServingEngine, Callable[[ReplicaSettings], Iterator[str]]]] = {
    ServingEngine.VLLM: vllm_flags,
    ServingEngine.SGLANG: sglang_flags,
}


def _notes(settings: ReplicaSettings, engine: ServingEngine) -> Iterator[str]:
    if settings.precision not in {*SIXTEEN_BIT, "fp8"}:
        yield PUBLISHED_WEIGHTS.format(precision=settings.precision)
    if settings.redundant_experts and engine is ServingEngine.SGLANG:
        yield "the placement of the experts is a file: see `fleetwright place export --engine sglang`"


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"))
