"""A performance model in three lines, for tests of the code around it."""

from collections.abc import Sequence

from fleet.slo import Metric, Slo
from planner.performance.config import PARAMETER_BYTES, ReplicaConfig
from planner.performance.rates import Estimate

PROMPT_TOKENS_PER_S_AND_TFLOPS = 20.0
DECODED_TOKENS_PER_S_AND_GB_PER_S = 0.5


def simple(
    config: ReplicaConfig,
    slo: Slo,
    *,
    sizes: Sequence[tuple[int, int]],
    arrival_cv: float,  # noqa: ARG001 - nothing queues here
) -> list[Estimate]:
    """Compute limits prompts, bandwidth limits decoding, memory limits weights; doubling the stages loses a tenth."""
    weights = config.model.weight_bytes(parameter_bytes=PARAMETER_BYTES[config.precision])
    if weights > 0.9 * config.gpu.memory_bytes * config.gpus:
        return [Estimate(0.0, f"needs {weights / 1e9:.1f} GB")] * len(sizes)
    return [_one(config, slo, *size) for size in sizes]


def _one(config: ReplicaConfig, slo: Slo, input_tokens: int, output_tokens: int) -> Estimate:
    width = config.gpus * 0.9 ** (config.stage_gpus.bit_length() - 1)
    reads_per_s = PROMPT_TOKENS_PER_S_AND_TFLOPS * config.tflops(config.arithmetic) * width
    writes_per_s = DECODED_TOKENS_PER_S_AND_GB_PER_S * config.gpu.bandwidth_gb_per_s * width
    reading_s = 0.0 if config.role == "decode" else input_tokens / reads_per_s
    writing_s = 0.0 if config.role == "prefill" else output_tokens / writes_per_s
    tpot_ms, ttft_ms = 1000 / writes_per_s, 1000 * reading_s
    limits = {metric: limit_ms for metric, _, limit_ms in slo.limits()}
    if config.role != "prefill" and tpot_ms > limits.get(Metric.TPOT, tpot_ms):
        return Estimate(0.0, f"mean TPOT is {tpot_ms:.1f} ms at best")
    if config.role != "decode" and ttft_ms > limits.get(Metric.TTFT, ttft_ms):
        return Estimate(0.0, f"mean TTFT is {ttft_ms:.1f} ms at best")
    rate_rps = 1 / (reading_s + writing_s) / PARAMETER_BYTES[config.precision]
    return Estimate(rate_rps, interval_90=(0.8 * rate_rps, 1.2 * rate_rps))
