"""The fitted coefficients: the share of a data sheet that an engine reaches, and the correction beyond the roofline.

They ship as `planner/data/performance.yaml`, which `fleetwright profiles fit` writes with date, source and errors.  The
file has no measurements; the points of the fit are not part of the project.

A term of the correction is a product of features, small centred numbers of a replica's configuration and its load,
written `sglang*batch`.  Lengths, batch and sizes enter as logarithms, so the correction is a power law.  A GPU type
enters by its bandwidth, and by name only in the local correction.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Annotated

import numpy as np
from pydantic import Field

from fleet.documents import Frozen, parse_document, read_model
from planner.performance.config import ReplicaConfig
from planner.performance.hardware_demand import Array

Positive = Annotated[float, Field(gt=0, le=1e6)]
Terms = Mapping[str, float]

FILE = "performance.yaml"
MEASURED_BATCH = (1.0, 4096.0)
MEASURED_INPUT = (128.0, 16_384.0)  # tokens
MEASURED_OUTPUT = (100.0, 8192.0)
LOAD = frozenset({"batch", "input", "output", "apart"})
ENGINES = ("sglang", "trtllm")
PRECISIONS = ("bits16", "fp4", "unpacked")
KINDS = ("moe", "latent", "linear", "experts_split", "attention_dp", "apart", "speculative")
LENGTHS = ("batch", "input", "output", "batch*batch", "batch*input", "batch*output", "input*output")
SHAPES = ("gpus", "gpus*gpus", "width")
_PLAIN = (*KINDS, "gpus", "width", *ENGINES, *PRECISIONS)
PORTABLE_TERMS: tuple[str, ...] = ("one", *LENGTHS, *KINDS, *SHAPES, *ENGINES, *PRECISIONS)

Features = Mapping[str, Array]


class Reached(Frozen):
    """Global coefficients of the roofline, each with its meaning and unit.  The defaults are round numbers."""

    weights: Positive = Field(default=0.8, description="Share of peak bandwidth when reading weights of every token.")
    experts: Positive = Field(default=0.8, description="The same for routed experts.")
    cache: Positive = Field(default=0.8, description="The same for the cache.")
    compute: Positive = Field(default=0.5, description="Share of peak arithmetic in dense products.")
    expert_compute: Positive = Field(default=0.5, description="The same in routed experts.")
    attention_compute: Positive = Field(default=0.5, description="The same in attention over a prompt.")
    latent_compute: Positive = Field(default=1.0, description="That of latent attention, as a multiple of it.")
    link: Positive = Field(default=0.8, description="Share of peak link bandwidth in collectives.")
    layer_s: Positive = Field(default=30e-6, description="Launches of one layer.")
    moe_layer_s: Positive = Field(default=10e-6, description="Additional launches of a layer with experts.")
    collective_s: Positive = Field(default=5e-6, description="Latency of a collective per doubling of its GPUs.")
    sequence_s: Positive = Field(default=1e-6, description="Host work per decoding sequence and step.")
    request_s: Positive = Field(default=0.02, description="Once per request: tokenising, queueing between processes.")
    interference: Positive = Field(default=1.0, description="Share of a prompt's work that delays decoding sequences.")
    prefill: Positive = Field(default=1.0, description="A prompt's own time, as a multiple of its work.")
    cache_capacity: Positive = Field(default=1.0, description="Sequences held, as a multiple of what should fit.")
    burst: Positive = Field(default=1.0, description="Queue found by a prompt, as a multiple of the mean queue.")
    start: Positive = Field(default=0.01, description="Share of all waiting prompts ahead of one: they start together.")
    first_steps: Positive = Field(
        default=1.0, description="Steps that pass between a prompt's end and its first token."
    )
    transfer_s: Positive = Field(default=0.1, description="Transfer of a prompt from a prefill to a decode replica.")
    speculation: Positive = Field(default=1.5, description="Tokens per step of runs with speculative decoding.")


class Correction(Frozen):
    """Terms of the logarithm of measured over physical time; a term is a product of the features in its name."""

    tpot: Terms = Field(default_factory=dict)
    ttft: Terms = Field(default_factory=dict)


class Interval(Frozen):
    """Multiples of the predicted time that enclose 90 % of measured times (split-conformal)."""

    low: Positive
    high: Positive
    points: int = Field(ge=1)


class Intervals(Frozen):
    """Per metric, for replica kinds with points and without."""

    tpot: Interval
    ttft: Interval


class Error(Frozen):
    """Errors of predictions on points held out of the fit."""

    split: str
    points: int = Field(ge=1)
    tpot_mape: float = Field(ge=0)
    ttft_mape: float = Field(ge=0)
    tpot_coverage: float = Field(ge=0, le=1)
    ttft_coverage: float = Field(ge=0, le=1)


class Coefficients(Frozen):
    """One fit; the default is the plain roofline."""

    fitted: dt.date | None = None
    source: str = "round numbers, not fitted"
    points: int = Field(default=0, ge=0)
    rejected: Mapping[str, int] = Field(default_factory=dict, description="Rows that were not used, by reason.")
    software_age: float = Field(default=0.0, description="Years from 2026-01-01 to the latest software in the fit.")
    measured_gpus: tuple[str, ...] = ()
    measured_models: tuple[str, ...] = ()
    reached: Reached = Reached()
    local: Correction = Field(default=Correction(), description="For GPU types that were measured.")
    portable: Correction = Field(default=Correction(), description="For all others: nothing that belongs to one type.")
    intervals: Mapping[str, Intervals] = Field(
        default_factory=dict, description="`dense`, `moe`: kinds that were measured; `dense-unseen`, `moe-unseen`."
    )
    errors: tuple[Error, ...] = ()

    def correction(self, gpu: str) -> Correction:
        return self.local if gpu in self.measured_gpus else self.portable

    def interval(self, *, gpu: str, model: str, moe: bool) -> Intervals | None:
        """The intervals for a replica; None without a fit."""
        kind = "moe" if moe else "dense"
        measured = gpu in self.measured_gpus and model in self.measured_models
        return self.intervals.get(kind if measured else f"{kind}-unseen")


@cache
def builtin_coefficients() -> Coefficients:
    text = resources.files("planner").joinpath("data", FILE).read_text(encoding="utf-8")
    return read_model(parse_document(text, name=f"planner/data/{FILE}"), Coefficients)


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
    """The features of the load, clipped to the measured range, because a power law does not extrapolate far."""
    return {
        "batch": np.log2(np.clip(batch, *MEASURED_BATCH)) / 4 - 1,
        "input": np.log2(np.clip(input_tokens, *MEASURED_INPUT) / 2048) / 3,
        "output": np.log2(np.clip(output_tokens, *MEASURED_OUTPUT) / 1024) / 3,
        "apart": np.asarray(apart, dtype=np.float64),
    }


def correction_of(terms: Terms, features: Mapping[str, Array | float]) -> Array:
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
    value: Array | float = 1.0
    for part in name.split("*"):
        if part not in features:
            return 0.0
        value = value * features[part]
    return value


def _with(names: Iterable[str], other: str) -> tuple[str, ...]:
    return tuple(f"{name}*{other}" for name in names)


LOCAL_TERMS: tuple[str, ...] = (
    *PORTABLE_TERMS,
    *_with(_PLAIN, "batch"),
    *_with(("sglang", "trtllm", "moe", "latent", "linear", "gpus", "bits16", "fp4", "experts_split"), "input"),
    *_with(("fp4", "bits16", "moe", "latent", "experts_split"), "gpus"),
    *(f"{engine}*{part}" for engine in ENGINES for part in ("moe", "gpus", "fp4", "bits16", "latent", "software")),
    *("software", "software*batch", "bandwidth", "bandwidth*batch", "bandwidth*input"),
    *_with(("fp4", "moe", "gpus", "latent", "sglang", "trtllm"), "bandwidth"),
)
