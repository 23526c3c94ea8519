"""An uncalibrated roofline with steady-state continuous batching: one GPU type, tensor parallelism, 16 bit, means only.

Each step follows LLM-Viewer (arXiv 2402.16363): the slower of moving the bytes and doing the arithmetic.  The
coefficients are round numbers.  Benchmarks use this roofline for rate tables and tests for physical limits; the planner
uses `planner.performance.rates`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from fleet.gpus import GpuSpec, builtin_gpus
from fleet.models import ModelArchitecture, builtin_models
from fleet.slo import Metric, Slo
from planner.performance.rates import Estimate

SIXTEEN_BIT_BYTES = 2  # weights, activations and cache: the one precision this model covers
MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Coefficients beyond the data sheets."""

    bandwidth_reached: float = 0.8  # of the data sheet's; aiconfigurator falls back on the same figure
    compute_reached: float = 0.5  # NanoFlow (arXiv 2408.12757) finds serving engines at 0.5 to 0.72
    memory_usable: float = 0.9  # vLLM's default gpu_memory_utilization
    reserved_bytes_per_gpu: float = 2e9  # activations, CUDA graphs, buffers of the collectives
    layer_overhead_s: float = 30e-6  # some ten kernel launches of 3 us
    all_reduce_latency_s: float = 10e-6
    all_reduces_per_layer: int = 2  # after attention and after the MLP (Megatron-LM, arXiv 1909.08053)
    max_batch: int = 256  # vLLM's default max_num_seqs on most GPUs


@dataclass(frozen=True)
class Replica:
    """One model on one or more GPUs of a kind, in 16 bit."""

    model: ModelArchitecture
    gpu: GpuSpec
    gpus: int
    coefficients: Coefficients = Coefficients()

    @property
    def peak_tflops(self) -> float | None:
        return self.gpu.dense_tflops.get("bf16") or self.gpu.dense_tflops.get("fp16")

    @cached_property
    def flops_per_s(self) -> float:
        return (self.peak_tflops or 0.0) * 1e12 * self.gpus * self.coefficients.compute_reached

    @cached_property
    def bytes_per_s(self) -> float:
        return self.gpu.bandwidth_gb_per_s * 1e9 * self.gpus * self.coefficients.bandwidth_reached

    @cached_property
    def weight_bytes(self) -> float:
        return self.model.weight_bytes(parameter_bytes=SIXTEEN_BIT_BYTES)

    @cached_property
    def usable_bytes(self) -> float:
        """Memory of all its GPUs that weights and cache may fill."""
        per_gpu = self.gpu.memory_bytes * self.coefficients.memory_usable - self.coefficients.reserved_bytes_per_gpu
        return max(0.0, per_gpu) * self.gpus

    def cache_bytes(self, tokens: int) -> float:
        """Cache of one sequence over all GPUs; heads that cannot be split any further are held more than once."""
        shards = 1 if self.model.attention == "mla" else min(self.gpus, self.model.kv_heads)
        return self.model.kv_cache_bytes(tokens=tokens, kv_bytes=SIXTEEN_BIT_BYTES) * self.gpus / shards

    def largest_batch(self, tokens: int) -> int:
        """How many sequences of this final length fit beside the weights."""
        free_bytes = self.usable_bytes - self.weight_bytes
        per_sequence = self.cache_bytes(tokens)
        fitting = free_bytes / per_sequence if per_sequence else float("inf")
        return max(0, int(min(fitting, self.coefficients.max_batch)))

    def step_s(self, batch: int, tokens: int) -> float:
        """One decode step of a batch whose sequences hold this many tokens each."""
        moved_bytes = self._weight_bytes_read(batch) + batch * self.cache_bytes(tokens)
        flops = 2 * self.model.matmul_parameters * batch
        return max(moved_bytes / self.bytes_per_s, flops / self.flops_per_s) + self._overhead_s(batch)

    def prefill_s(self, tokens: int) -> float:
        """The prompt of one request, causal attention included."""
        attention_flops = 2 * self.model.layers * self.model.heads * self.model.head_dim * tokens**2
        flops = 2 * self.model.matmul_parameters * tokens + attention_flops
        return flops / self.flops_per_s + self._overhead_s(tokens)

    def _weight_bytes_read(self, batch: int) -> float:
        """Dense weights, and the experts a batch touches when each token picks its own evenly and independently."""
        model = self.model
        active_experts = model.moe_layers * model.experts_active * model.expert_parameters
        touched = 1 - (1 - model.experts_active / model.experts) ** batch if model.experts else 0.0
        return SIXTEEN_BIT_BYTES * (model.matmul_parameters - active_experts + touched * model.routed_parameters)

    def _overhead_s(self, tokens: int) -> float:
        launches_s = self.model.layers * self.coefficients.layer_overhead_s
        if self.gpus == 1:
            return launches_s
        ring_bytes = 2 * (self.gpus - 1) / self.gpus * tokens * self.model.hidden_size * SIXTEEN_BIT_BYTES
        one_s = ring_bytes / (self.gpu.link_gb_per_s * 1e9) + self.coefficients.all_reduce_latency_s
        return launches_s + self.model.layers * self.coefficients.all_reduces_per_layer * one_s


@dataclass(frozen=True, slots=True)
class Steady:
    """A replica that always holds the same number of requests of one size."""

    rate_rps: float
    ttft_s: float
    tpot_s: float
    e2e_s: float


def steady_state(replica: Replica, *, batch: int, input_tokens: int, output_tokens: int) -> Steady:
    """Every request brings its prefill and takes part in `output_tokens` steps; prompts queue as in M/D/1."""
    step_s = replica.step_s(batch, input_tokens + output_tokens // 2)
    prefill_s = replica.prefill_s(input_tokens)
    cycle_s = output_tokens * step_s + batch * prefill_s
    prefill_busy = batch * prefill_s / cycle_s
    ttft_s = prefill_s + step_s + prefill_s * prefill_busy / (2 * (1 - prefill_busy))
    tpot_s = cycle_s / output_tokens
    return Steady(batch / cycle_s, ttft_s, tpot_s, ttft_s + (output_tokens - 1) * tpot_s)


def highest_rate(replica: Replica, slo: Slo, *, input_tokens: int, output_tokens: int) -> Estimate:
    """The rate at the largest batch that fits and keeps every mean inside the SLO: both only grow with the batch."""
    if reason := misfit(replica, tokens=input_tokens + output_tokens):
        return Estimate(0.0, reason)
    limits_s = {metric: limit_ms / MS_PER_S for metric, _, limit_ms in slo.limits()}

    def state(batch: int) -> Steady:
        return steady_state(replica, batch=batch, input_tokens=input_tokens, output_tokens=output_tokens)

    if reason := _broken_limit(state(1), limits_s):
        return Estimate(0.0, reason)
    holds, fails = 1, replica.largest_batch(input_tokens + output_tokens) + 1
    while fails - holds > 1:
        middle = (holds + fails) // 2
        holds, fails = (holds, middle) if _broken_limit(state(middle), limits_s) else (middle, fails)
    return Estimate(state(holds).rate_rps)


def grid_rates(
    model: str, gpu: str, gpus: int, slo: Slo, *, inputs: Sequence[int], outputs: Sequence[int]
) -> tuple[float, ...]:
    """The highest rate for each pair of an input and an output size, of a model and a GPU of the shipped catalogues."""
    replica = Replica(builtin_models().get(model), builtin_gpus().get(gpu), gpus)
    return tuple(
        highest_rate(replica, slo, input_tokens=input_tokens, output_tokens=output_tokens).max_rps
        for input_tokens, output_tokens in product(inputs, outputs)
    )


def misfit(replica: Replica, *, tokens: int) -> str | None:
    if replica.peak_tflops is None:
        return "no 16-bit arithmetic"
    if replica.gpus > replica.gpu.link_domain_gpus:
        return f"its fast link joins {replica.gpu.link_domain_gpus} GPU(s), and collectives over PCIe are not predicted"
    if replica.model.max_context_tokens is not None and tokens > replica.model.max_context_tokens:
        return f"{tokens:,} tokens exceed the model's context of {replica.model.max_context_tokens:,}"
    if replica.largest_batch(tokens) == 0:
        needed_gb = (replica.weight_bytes + replica.cache_bytes(tokens)) / 1e9
        return f"needs {needed_gb:.1f} GB in 16 bit, {replica.gpus} GPU(s) offer {replica.usable_bytes / 1e9:.1f} GB"
    return None


def _broken_limit(state: Steady, limits_s: dict[Metric, float]) -> str | None:
    predicted_s = {Metric.TTFT: state.ttft_s, Metric.TPOT: state.tpot_s, Metric.E2E: state.e2e_s}
    for metric, limit_s in limits_s.items():
        best_ms, limit_ms = predicted_s[metric] * MS_PER_S, limit_s * MS_PER_S
        if best_ms > limit_ms:
            return f"mean {metric.name} is {best_ms:.1f} ms at best, above {limit_ms:g} ms"
    return None
