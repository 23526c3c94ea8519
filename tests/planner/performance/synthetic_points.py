"""Measured points of a known engine: rows in the layout of aiconfigurator, times from the roofline times a factor."""

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.slo import Slo
from planner.performance.aiconfigurator import COLUMNS, ENGINES, GPU_OF_SYSTEM
from planner.performance.closed_loop import closed_loop
from planner.performance.coefficients import Coefficients, Reached
from planner.performance.config import ReplicaConfig
from planner.performance.hardware_demand import demands
from planner.performance.rates import Estimate, highest_rates

TRUTH = Reached(weights=0.7, cache=0.6, compute=0.6, layer_s=5e-5, request_s=0.05)
SLOWER_ENGINE = 1.25  # time of the slower engine relative to the roofline
SYSTEMS = ("h100_sxm", "h200_sxm", "b200_sxm")
MODELS = ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B", "Qwen/Qwen3-235B-A22B")
SIZES = ((1024, 1024), (8192, 1024), (1024, 128))
CONCURRENCIES = (4, 16, 64)
TENSOR_PARALLEL = 8


def rows(*, noise: float = 0.0, seed: int = 0) -> Iterator[dict[str, str]]:
    """Every combination once, vLLM and SGLang."""
    rng = np.random.default_rng(seed)
    combinations = product(MODELS, SYSTEMS, ("vllm", "sglang"), SIZES, CONCURRENCIES)
    for number, (model, system, engine, (inputs, outputs), concurrency) in enumerate(combinations):
        config = ReplicaConfig(
            builtin_models().get(model),
            builtin_gpus().get(GPU_OF_SYSTEM[system]),
            precision="fp8",
            kv_precision="fp8",
            tensor_parallel=TENSOR_PARALLEL,
            engine=ENGINES[engine],
        )
        times = closed_loop(
            demands(config, sizes=[(inputs, outputs)]), TRUTH, concurrency=np.array([float(concurrency)])
        )
        factor = (SLOWER_ENGINE if engine == "sglang" else 1.0) * np.exp(noise * rng.standard_normal(2))
        yield row(
            id=f"run{number}",
            model_path=model,
            system=system,
            backend=engine,
            isl=inputs,
            osl=outputs,
            batch_size=concurrency,
            silicon_ttft_ms=1000 * times.ttft_s.item() * factor[0],
            silicon_tpot_ms=1000 * times.tpot_s.item() * factor[1],
        )


def row(**given: object) -> dict[str, str]:
    """One aggregated fp8 run on eight GPUs, with changes."""
    usual: Mapping[str, object] = {
        "id": "run",
        "silicon_data_source": "source_file=made-up.csv; measured=2026-03-01T00:00:00Z",
        "backend": "vllm",
        "model_path": MODELS[0],
        "system": "h100_sxm",
        "precision": "fp8",
        "mode": "agg",
        "isl": 1024,
        "osl": 1024,
        "batch_size": 16,
        "tp_size": TENSOR_PARALLEL,
        "attention_dp_size": 1,
        "moe_tp_size": TENSOR_PARALLEL,
        "moe_ep_size": 1,
        "silicon_ttft_ms": 100.0,
        "silicon_tpot_ms": 10.0,
    }
    return {name: str({**usual, **given}.get(name, "")) for name in COLUMNS}


def highest_rate(
    config: ReplicaConfig,
    slo: Slo,
    *,
    input_tokens: int,
    output_tokens: int,
    arrival_cv: float = 1.0,
    coefficients: Coefficients | None = None,
) -> Estimate:
    """The estimate of one request size."""
    (found,) = highest_rates(
        config, slo, sizes=[(input_tokens, output_tokens)], arrival_cv=arrival_cv, coefficients=coefficients
    )
    return found
