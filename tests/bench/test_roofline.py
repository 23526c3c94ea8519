"""The roofline model: properties that hold for any coefficients, and refusals."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.roofline import Coefficients, Replica, highest_rate, steady_state
from fleet.gpus import GpuSpec, builtin_gpus
from fleet.models import ModelArchitecture, builtin_models
from fleet.slo import Slo

TOKENS = st.integers(1, 8000)
PERFECT = Coefficients(
    bandwidth_reached=1.0, compute_reached=1.0, layer_overhead_s=0.0, all_reduce_latency_s=0.0, all_reduces_per_layer=0
)


def gpu(name: str) -> GpuSpec:
    return builtin_gpus().get(name)


def model(name: str) -> ModelArchitecture:
    return builtin_models().get(name)


def slo(**limits_ms: float) -> Slo:
    return Slo.model_validate({f"{metric}_ms": {"mean": limit_ms} for metric, limit_ms in limits_ms.items()})


def rate(replica: Replica, objective: Slo, *, input_tokens: int = 1000, output_tokens: int = 250) -> float:
    return highest_rate(replica, objective, input_tokens=input_tokens, output_tokens=output_tokens).max_rps


class TestRoofline:
    def test_a_decode_step_moves_all_weights_of_a_dense_model(self) -> None:
        """Llama-3.1-8B: 7.5e9 parameters beside the input embedding, two bytes each, over 3.35e12 bytes a second."""
        replica = Replica(model("Llama-3.1-8B"), gpu("H100-SXM"), 1, PERFECT)
        assert replica.step_s(1, 0) == pytest.approx(2 * 7.5e9 / 3.35e12, rel=0.01)

    def test_a_long_prompt_takes_two_operations_per_parameter_and_token(self) -> None:
        replica = Replica(model("Llama-3.1-8B"), gpu("H100-SXM"), 1, PERFECT)
        attention_flops = 2 * 32 * 4096 * 1000**2
        assert replica.prefill_s(1000) == pytest.approx((2 * 7.5e9 * 1000 + attention_flops) / 989e12, rel=0.01)

    def test_a_mixture_of_experts_reads_few_experts_for_one_token_and_all_for_many(self) -> None:
        mixture = model("Mixtral-8x7B")
        replica = Replica(mixture, gpu("H200-SXM"), 1, PERFECT)
        one, many = (replica.step_s(batch, 0) * 4.8e12 for batch in (1, 100))
        assert one == pytest.approx(2 * mixture.matmul_parameters)
        assert many == pytest.approx(2 * (mixture.parameters - mixture.embedding_parameters), rel=1e-6)

    def test_latent_attention_is_cached_whole_on_every_gpu(self) -> None:
        latent = model("DeepSeek-V2")
        alone, eight = (Replica(latent, gpu("H200-SXM"), gpus).cache_bytes(1000) for gpus in (1, 8))
        assert eight == pytest.approx(8 * alone)

    def test_grouped_kv_heads_are_split_down_to_one_per_gpu(self) -> None:
        grouped = model("Llama-3.1-8B")  # eight key/value heads
        assert grouped.kv_heads == 8
        one, eight = (Replica(grouped, gpu("H100-SXM"), gpus).cache_bytes(1000) for gpus in (1, 8))
        assert eight == pytest.approx(one)

    def test_throughput_stays_below_the_peak_compute_bound(self) -> None:
        """Prompt and output tokens together cannot exceed the peak compute rate (NanoFlow, arXiv 2408.12757)."""
        replica = Replica(model("Llama-3.1-8B"), gpu("B200"), 1)
        tokens_per_s = rate(replica, slo(tpot=1000)) * (1000 + 250)
        assert tokens_per_s < 2250e12 / (2 * replica.model.matmul_parameters)


class TestHighestRate:
    @given(TOKENS, TOKENS, st.floats(5, 500), st.floats(1.0, 3.0))
    def test_a_looser_slo_never_lowers_the_rate(
        self, input_tokens: int, output_tokens: int, tpot_ms: float, factor: float
    ) -> None:
        replica = Replica(model("Llama-3.1-8B"), gpu("H100-SXM"), 1)
        tight, loose = (
            rate(
                replica, slo(tpot=limit_ms, ttft=20 * limit_ms), input_tokens=input_tokens, output_tokens=output_tokens
            )
            for limit_ms in (tpot_ms, tpot_ms * factor)
        )
        assert loose >= tight * (1 - 1e-9)

    @given(TOKENS, TOKENS, st.integers(1, 255))
    def test_a_larger_batch_raises_rate_and_latencies(self, input_tokens: int, output_tokens: int, batch: int) -> None:
        replica = Replica(model("Mixtral-8x7B"), gpu("H200-SXM"), 2)
        smaller, larger = (
            steady_state(replica, batch=size, input_tokens=input_tokens, output_tokens=output_tokens)
            for size in (batch, batch + 1)
        )
        for before, after in (
            (smaller.rate_rps, larger.rate_rps),
            (smaller.ttft_s, larger.ttft_s),
            (smaller.tpot_s, larger.tpot_s),
            (smaller.e2e_s, larger.e2e_s),
        ):
            assert after >= before * (1 - 1e-9)

    @given(TOKENS, TOKENS, st.floats(5, 200), st.floats(50, 5000), st.floats(1000, 100_000))
    def test_the_rate_is_the_highest_of_all_batches_within_the_limits(
        self, input_tokens: int, output_tokens: int, tpot_ms: float, ttft_ms: float, e2e_ms: float
    ) -> None:
        replica = Replica(model("Llama-3.1-8B"), gpu("A100-80GB-SXM"), 1)
        objective = slo(tpot=tpot_ms, ttft=ttft_ms, e2e=e2e_ms)
        found = rate(replica, objective, input_tokens=input_tokens, output_tokens=output_tokens)
        states = [
            steady_state(replica, batch=batch, input_tokens=input_tokens, output_tokens=output_tokens)
            for batch in range(1, replica.largest_batch(input_tokens + output_tokens) + 1)
        ]
        within = [
            state.rate_rps
            for state in states
            if state.tpot_s * 1000 <= tpot_ms and state.ttft_s * 1000 <= ttft_ms and state.e2e_s * 1000 <= e2e_ms
        ]
        assert found == pytest.approx(max(within, default=0.0))


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "gpu_name", "gpus", "objective", "reason"),
        [
            ("Llama-3.1-70B", "H100-SXM", 1, slo(tpot=100), "needs 142.8 GB in 16 bit, 1 GPU(s) offer "),
            ("Llama-3.1-8B", "L4", 1, slo(tpot=40), "mean TPOT is "),  # 15 GB at 300 GB/s take 50 ms at best
            ("Llama-3.1-8B", "H100-SXM", 1, slo(ttft=1), "mean TTFT is "),
            ("Llama-3.1-8B", "H100-SXM", 1, slo(e2e=100), "mean E2E is "),
            ("Llama-3.1-8B", "L40S", 2, slo(tpot=100), "its fast link joins 1 GPU(s)"),
            ("Llama-2-7B", "H100-SXM", 1, slo(tpot=100), "5,250 tokens exceed the model's context of 4,096"),
        ],
    )
    def test_an_infeasible_replica_has_a_reason(
        self, name: str, gpu_name: str, gpus: int, objective: Slo, reason: str
    ) -> None:
        estimate = highest_rate(
            Replica(model(name), gpu(gpu_name), gpus), objective, input_tokens=5000, output_tokens=250
        )
        assert estimate.max_rps == 0
        assert estimate.reason is not None
        assert estimate.reason.startswith(reason)

    def test_a_gpu_without_16_bit_arithmetic_is_refused(self) -> None:
        old = replace_tflops(gpu("T4"))
        estimate = highest_rate(Replica(model("Phi-3-mini"), old, 1), slo(tpot=1000), input_tokens=10, output_tokens=10)
        assert estimate.reason == "no 16-bit arithmetic"


def replace_tflops(spec: GpuSpec) -> GpuSpec:
    return GpuSpec.model_validate(spec.model_dump() | {"dense_tflops": {"fp32": 8.1}})


def test_the_engines_batch_limit_applies_where_memory_would_allow_more() -> None:
    small = Replica(model("Llama-3.1-8B"), gpu("B200"), 1, replace(Coefficients(), max_batch=4))
    assert small.largest_batch(100) == 4
