"""The features of the correction: small, centred numbers that describe a replica's configuration and its load.

A term of the correction is a product of features, written `sglang*batch`.  Lengths, batch and sizes enter as
logarithms, so the correction is a power law.  A GPU type enters by its bandwidth, and by name only in the local
correction.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from planner.performance.coefficients import Terms
from planner.performance.config import ReplicaConfig
from planner.performance.hardware_demand import Array

MEASURED_BATCH = (1.0, 4096.0)
MEASURED_INPUT = (128.0, 16_384.0)  # tokens
MEASURED_OUTPUT = (100.0, 8192.0)
LOAD = frozenset({"batch", "input", "output", "apart"})

Features = Mapping[str, Array]


def config_features(config: ReplicaConfig, *, software_age: float, speculative: bool = False) -> dict[str, float]:
    """The features that are independent of the load; absent ones are 0."""
    model, gpu = config.model, config.gpu
    cached_layers = sum(part.layers for part in model.kv_cache)
    found = {
        "one": 1.0,
        "moe": float(model.experts > 0),
        "latent": float(model.attention == "mla"),
        "linear": float(cached_layers < model.layers),
        "experts_split": float(config.expert_parallel > 1),
        "attention_dp": float(config.attention_data_parallel > 1),
        "speculative": float(speculative),
        "gpus": np.log2(config.stage_gpus) / 3,
        "bandwidth": np.log2(gpu.bandwidth_gb_per_s / 4800),
        "width": np.log2(model.hidden_size / 6144),
        "software": software_age,
        "sglang": float(config.engine == "sglang"),
        "trtllm": float(config.engine == "trtllm"),
        "bits16": float(config.precision in {"bf16", "fp16"}),
        "fp4": float(config.arithmetic == "fp4"),
        "unpacked": float(_is_unpacked(config)),
        f"gpu:{gpu.name}": 1.0,
        f"model:{model.name}": 1.0,
    }
    return {name: value for name, value in found.items() if value}


def _is_unpacked(config: ReplicaConfig) -> bool:
    """Weights narrower than the arithmetic: integer formats, and 8- or 4-bit floats that the cores do not support."""
    return config.precision not in {"bf16", "fp16"} and config.arithmetic in {"bf16", "fp16"}


def load_features(*, batch: Array, input_tokens: Array, output_tokens: Array, apart: Array | float = 0.0) -> Features:
    """The features of the load, clipped to the measured range, because a power law does not extrapolate far.

    `apart` is 1 where other replicas read the prompts.
    """
    return {
        "batch": np.log2(np.clip(batch, *MEASURED_BATCH)) / 4 - 1,
        "input": np.log2(np.clip(input_tokens, *MEASURED_INPUT) / 2048) / 3,
        "output": np.log2(np.clip(output_tokens, *MEASURED_OUTPUT) / 1024) / 3,
        "apart": np.asarray(apart, dtype=np.float64),
    }


def correction_of(terms: Terms, features: Mapping[str, Array | float]) -> Array:
    """The logarithm of the factor on a physical time."""
    total = np.zeros(1)
    for name, weight in terms.items():
        total = total + weight * term_value(name, features)
    return total


def collapsed(terms: Terms, fixed: Mapping[str, float]) -> dict[str, float]:
    """The same terms with a configuration's features evaluated; only products of load features remain."""
    left: dict[str, float] = {}
    for name, weight in terms.items():
        parts = name.split("*")
        load = "*".join(part for part in parts if part in LOAD) or "one"
        value = weight
        for part in parts:
            if part not in LOAD:
                value *= fixed.get(part, 0.0)
        if value:
            left[load] = left.get(load, 0.0) + value
    return left


def term_value(name: str, features: Mapping[str, Array | float]) -> Array | float:
    """A product of features; an absent feature makes it 0."""
    value: Array | float = 1.0
    for part in name.split("*"):
        if part not in features:
            return 0.0
        value = value * features[part]
    return value


def _with(names: Iterable[str], other: str) -> tuple[str, ...]:
    return tuple(f"{name}*{other}" for name in names)


ENGINES = ("sglang", "trtllm")
PRECISIONS = ("bits16", "fp4", "unpacked")
KINDS = ("moe", "latent", "linear", "experts_split", "attention_dp", "apart", "speculative")
LENGTHS = ("batch", "input", "output", "batch*batch", "batch*input", "batch*output", "input*output")
SHAPES = ("gpus", "gpus*gpus", "width")
_PLAIN = (*KINDS, "gpus", "width", *ENGINES, *PRECISIONS)

PORTABLE_TERMS: tuple[str, ...] = ("one", *LENGTHS, *KINDS, *SHAPES, *ENGINES, *PRECISIONS)
LOCAL_TERMS: tuple[str, ...] = (
    *PORTABLE_TERMS,
    *_with(_PLAIN, "batch"),
    *_with(("sglang", "trtllm", "moe", "latent", "linear", "gpus", "bits16", "fp4", "experts_split"), "input"),
    *_with(("fp4", "bits16", "moe", "latent", "experts_split"), "gpus"),
    *(f"{engine}*{part}" for engine in ENGINES for part in ("moe", "gpus", "fp4", "bits16", "latent", "software")),
    *("software", "software*batch", "bandwidth", "bandwidth*batch", "bandwidth*input"),
    *_with(("fp4", "moe", "gpus", "latent", "sglang", "trtllm"), "bandwidth"),
)
