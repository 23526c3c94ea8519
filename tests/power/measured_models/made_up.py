"""Tables with a known truth: rows in each format, drawn from the formulas of the fits."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from power.measured_models.tables import Row

TDP_W, IDLE = 700.0, 0.107
LEVEL, BATCH, SATURATION, ACTIVE, TOTAL, GPUS = -1.3, 0.11, 256.0, 0.1, 0.12, -0.15
TOKEN_S, GROWTH = 0.012, 0.006
FLOOR, EXPONENT, SENSITIVITY = 0.35, 2.0, 0.2773
MODELS = ((8, 8, 1), (14, 14, 1), (32, 32, 2), (70, 70, 4), (22, 235, 8), (17, 109, 4))


def serving_rows(*, noise: float = 0.0, seed: int = 1) -> list[Row]:
    """ML.ENERGY's layout: six models on H100, eight batches each."""
    random = np.random.default_rng(seed)
    found: list[Row] = []
    for (active, total, gpus), batch in product(MODELS, (8, 16, 32, 64, 128, 256, 384, 512)):
        rise = np.exp(LEVEL) * min(batch, SATURATION) ** BATCH * (active / gpus) ** ACTIVE
        share = IDLE + rise * (total / gpus) ** TOTAL * gpus**GPUS
        watts = TDP_W * gpus * share * float(np.exp(noise * random.normal()))
        token_s = TOKEN_S * (1 + GROWTH * (batch - 1))
        found.append(
            {
                "gpu_model": "H100",
                "model_id": f"acme/M-{total}B",
                "num_gpus": str(gpus),
                "avg_power_watts": str(watts),
                "avg_batch_size": str(batch),
                "output_throughput_tokens_per_sec": str(batch / token_s),
                "median_itl_ms": str(1e3 * token_s),
                "activated_params_billions": str(active),
                "total_params_billions": str(total),
                "weight_precision": "bfloat16",
                "task": "chat",
                "tensor_parallel": str(gpus),
            }
        )
    return found


def request_rows(*, hardware: str = "a100-80gb", model: str = "bloom-176b") -> list[Row]:
    """splitwise-sim's layout: prompts of growing length, batches of growing size."""
    runs = [(prompt, 1) for prompt in (128, 256, 512, 1024, 2048, 4096, 8192)] + [(512, batch) for batch in (2, 4, 8)]
    return [_request(hardware, model, prompt, batch) for prompt, batch in runs]


def _request(hardware: str, model: str, prompt: int, batch: int) -> Row:
    tokens = prompt * batch
    prompt_ms, token_ms = 40 + 0.2 * tokens + 2e-5 * tokens**2, 48.0 * (1 + 0.01 * (batch - 1))
    whole_ms = prompt_ms + 127 * token_ms
    mean = (1.02 * prompt_ms + 0.6 * (whole_ms - prompt_ms)) / whole_ms
    figures = (prompt, batch, 128, 1.02, mean, prompt_ms, token_ms, whole_ms, 8)
    names = ("prompt_size", "batch_size", "token_size", "peak_power", "average_power", "prompt_time", "token_time")
    return {
        "model": model,
        "hardware": hardware,
        **dict(zip((*names, "e2e_time", "tensor_parallel"), map(str, figures), strict=True)),
    }


def clocks_of_limits(full_w: float, limits_w: tuple[float, ...]) -> Iterator[tuple[float, float]]:
    """(limit, clock) of a job that would draw `full_w`."""
    for limit_w in limits_w:
        share = min(1.0, limit_w / full_w)
        yield limit_w, ((share - FLOOR) / (1 - FLOOR)) ** (1 / EXPONENT)


def limit_rows() -> list[Row]:
    """Return Zeus's summary: four jobs whose power just reaches the full limit of 300 W."""
    found: list[Row] = []
    for network, epoch_s in (("a", 10.0), ("b", 20.0), ("c", 7.0), ("d", 100.0)):
        for limit_w, clock in clocks_of_limits(300.0, (300, 275, 250, 225, 200, 175, 150)):
            time_s = epoch_s * (1 + SENSITIVITY * (1 / clock - 1))
            found.append(
                {
                    "dataset": "d",
                    "network": network,
                    "batch_size": "32",
                    "optimizer": "adam",
                    "power_limit": str(limit_w),
                    "time_per_epoch": str(time_s),
                    "average_power": str(limit_w),
                }
            )
    return found


def window_rows() -> list[Row]:
    """Zeus's profiler: the first of those jobs on two boards."""
    return [
        {
            "start_time": "0",
            "window_name": f"__Profiling_{row['power_limit']}",
            "elapsed_time": row["time_per_epoch"],
            "gpu0_energy": str(float(row["time_per_epoch"]) * float(row["average_power"])),
            "gpu1_energy": str(float(row["time_per_epoch"]) * float(row["average_power"])),
        }
        for row in limit_rows()[:7]
    ]
