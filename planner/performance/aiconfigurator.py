"""Measured end-to-end points from rows in the layout of `silicon_sample.csv` (ai-dynamo/aiconfigurator 095f58a5).

The rows were exported three times from one public database of benchmark runs, with three notations for a layout:

- Up to three rows hold the same measurement.  Rows with equal times on the same GPU and sizes are one point, with the
  layout of the most reliable export.
- For n GPUs with n-way expert parallelism the exports write n x n: `tp_size` 64 on a node of eight.  A square of
  experts over as many ranks means n GPUs; the runs' own configurations have `tp: 8, ep: 8`.
- Where ranks of attention data parallelism are blank, the layout of the experts gives their number.
- Runs with speculative decoding are not marked.  The reader identifies them by software and day, where the same
  configuration was also measured without, at up to twice the time per token.

The reader rejects a row that it cannot interpret with confidence, with a reason, and counts it.
"""

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from fleet.documents import parse_document, read_model
from fleet.errors import UnknownNameError
from fleet.gpus import GpuCatalogue
from fleet.models import ModelArchitecture, ModelCatalogue
from planner.performance.config import Engine, KvPrecision, ReplicaConfig, WeightPrecision

Row = Mapping[str, str]
Key = tuple[str, ...]

MODELS_FILE = "silicon_models.yaml"

GPU_OF_SYSTEM = {
    "a100_sxm": "A100-80GB-SXM",
    "l40s": "L40S",
    "h100_sxm": "H100-SXM",
    "h200_sxm": "H200-SXM",
    "b200_sxm": "B200",
    "b300_sxm": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
}
MODEL_OF_PATH = {  # repackaged weights of a model with another path
    "nvidia/Llama-3.1-8B-Instruct-FP8": "Llama-3.1-8B",
    "nvidia/DeepSeek-R1-NVFP4": "DeepSeek-V3",
    "nvidia/DeepSeek-V3.1-NVFP4": "DeepSeek-V3",
    "nvidia/Qwen3-32B-NVFP4": "Qwen3-32B",
    "Qwen/Qwen3-235B-A22B-FP8": "Qwen3-235B-A22B",
}
PRECISIONS: Mapping[str, WeightPrecision] = {"": "bf16", "bf16": "bf16", "fp8": "fp8", "fp4": "fp4", "int4": "int4-wo"}
ENGINES: Mapping[str, Engine] = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm"}
# For a row without a day: the months in which its engine's undated versions were current.
UNDATED_AGE: Mapping[str, float] = {"trtllm": -0.5, "vllm": -0.1, "sglang": -0.2}
SPECULATIVE_RUNS = frozenset(
    {("1.2.0rc6.post3", "2026-02-05"), ("1.2.0rc6.post3", "2026-02-06"), ("1.1.0rc2.post2", "2026-01-14")}
)

ANOMALOUS = "H200 rows of nvidia/Llama-3.1-8B-Instruct-FP8: slower than 16 bit, no tool reproduces them"
NO_WORKERS = "the numbers of prefill and decode workers are not recorded"
TOTAL_GPUS = "tp_size is the GPU total of a split deployment, its layout is not recorded"
ENGINE_CAP = "an engine's limit on running requests, not recorded, holds most requests back"
SEVERAL_REPLICAS = "several replicas behind a router, the concurrency of one is not reliable"
UNKNOWN = "the catalogue holds no such GPU or model"
TOO_BIG = "the weights do not fit the layout written"
DUPLICATE = "the same measurement as another row"
UNREADABLE = "sizes, concurrency or times are missing"


COLUMNS = (
    *("id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "precision", "mode"),
    *("isl", "osl", "batch_size", "silicon_ttft_ms", "silicon_tpot_ms", "prefill_num_workers", "decode_num_workers"),
    "decode_batch_size",
    *(
        f"{prefix}{name}"
        for prefix in ("", "prefill_", "decode_")
        for name in ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    ),
)


@cache
def silicon_models() -> ModelCatalogue:
    """Models of the public points that the fleet's catalogue lacks."""
    text = resources.files("planner").joinpath("data", MODELS_FILE).read_text(encoding="utf-8")
    return read_model(parse_document(text, name=f"planner/data/{MODELS_FILE}"), ModelCatalogue)


@dataclass(frozen=True)
class MeasuredPoint:
    """Mean latencies of a deployment with a constant number of requests of one size."""

    config: ReplicaConfig  # of the decode replicas of a disaggregated deployment
    input_tokens: int
    output_tokens: int
    concurrency: int  # of the whole deployment
    ttft_s: float
    tpot_s: float
    software_age: float  # years from 2026-01-01
    speculative: bool = False
    prefill: ReplicaConfig | None = None
    prefill_replicas: int = 0
    decode_replicas: int = 1

    @property
    def curve(self) -> tuple[object, ...]:
        """The key of points that differ only in concurrency and day."""
        config = self.config
        return (
            config.model.name,
            config.gpu.name,
            config.engine,
            config.precision,
            config.tensor_parallel,
            config.attention_data_parallel,
            config.expert_parallel,
            self.input_tokens,
            self.output_tokens,
            self.prefill is not None,
        )


class _RejectedError(Exception):
    """A row cannot be used; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Points, and the number of rejected rows by reason."""

    points: tuple[MeasuredPoint, ...]
    rejected: Mapping[str, int]


def read_points(rows: Iterable[Row], *, gpus: GpuCatalogue, models: Iterable[ModelCatalogue]) -> Reading:
    """All usable points.  The reader searches the model catalogues in order."""
    catalogues = tuple(models)
    rejected: Counter[str] = Counter()
    points = []
    best: dict[Key, Row] = {}
    for row in rows:
        key = _measurement(row)
        other = best.get(key)
        if other is not None:
            rejected[DUPLICATE] += 1
        if other is None or _export_rank(row) < _export_rank(other):
            best[key] = row
    for row in best.values():
        try:
            points.append(_point(row, gpus=gpus, models=catalogues))
        except _RejectedError as error:
            rejected[str(error)] += 1
    return Reading(tuple(points), dict(rejected))


def _measurement(row: Row) -> Key:
    try:
        times = f"{float(row['silicon_ttft_ms']):.2f}", f"{float(row['silicon_tpot_ms']):.2f}"
    except ValueError:
        times = row["id"], ""
    return (row["system"], row["isl"], row["osl"], *times)


def _export_rank(row: Row) -> int:
    source = row["silicon_data_source"]
    return 0 if source.startswith("db-dump") else 1 if "2026-03-25" in source.split(";")[0] else 2


def _point(row: Row, *, gpus: GpuCatalogue, models: tuple[ModelCatalogue, ...]) -> MeasuredPoint:
    if row["model_path"] == "nvidia/Llama-3.1-8B-Instruct-FP8" and row["system"] == "h200_sxm":
        raise _RejectedError(ANOMALOUS)
    day = _stated(r"measured=(\d{4}-\d\d-\d\d)", row)
    if "epnone" in row["id"] and day:
        raise _RejectedError(SEVERAL_REPLICAS)
    apart = row["mode"] == "disagg"
    if apart and not row["decode_num_workers"]:
        raise _RejectedError(NO_WORKERS)
    try:
        concurrency = _concurrency(row, apart=apart)
        sizes = int(row["isl"]), int(row["osl"])
        ttft_s, tpot_s = float(row["silicon_ttft_ms"]) / 1000, float(row["silicon_tpot_ms"]) / 1000
        config = _config(row, "decode_" if apart else "", gpus=gpus, models=models)
        prefill = _config(row, "prefill_", gpus=gpus, models=models) if apart else None
    except (ValueError, KeyError) as error:
        raise _RejectedError(UNREADABLE) from error
    if not apart and ttft_s > 2 * sizes[1] * tpot_s and concurrency >= 512:
        raise _RejectedError(ENGINE_CAP)
    return MeasuredPoint(
        config,
        *sizes,
        concurrency,
        ttft_s,
        tpot_s,
        software_age=_age(day, row["backend"]),
        speculative="DeepSeek" in row["model_path"] and (row["backend_version"], day) in SPECULATIVE_RUNS,
        prefill=prefill,
        prefill_replicas=int(row["prefill_num_workers"]) if apart else 0,
        decode_replicas=int(row["decode_num_workers"]) if apart else 1,
    )


def _concurrency(row: Row, *, apart: bool) -> int:
    """Of the whole deployment.  With several ranks `batch_size` is that of one, else that of one replica among many."""
    stated = _stated(r"silicon_concurrency=(\d+)", row)
    if apart:
        return int(stated) if stated else int(row["decode_batch_size"]) * int(row["decode_num_workers"])
    one_rank = row["attention_dp_size"] in {"", "0", "1"}
    return int(row["batch_size"]) if one_rank or not stated else int(stated)


def _config(row: Row, prefix: str, *, gpus: GpuCatalogue, models: tuple[ModelCatalogue, ...]) -> ReplicaConfig:
    try:
        gpu = gpus.get(GPU_OF_SYSTEM[row["system"]])
        model = _model(row["model_path"], models)
    except (KeyError, UnknownNameError) as error:
        raise _RejectedError(UNKNOWN) from error
    precision = PRECISIONS[row["precision"]]
    cached: KvPrecision = "fp8" if precision in {"fp8", "fp4"} else "bf16"
    split, ranks, experts = _layout(row, prefix)
    config = ReplicaConfig(
        model,
        gpu,
        precision=precision,
        kv_precision=cached,
        tensor_parallel=split,
        attention_data_parallel=ranks,
        expert_parallel=experts,
        engine=ENGINES[row["backend"]],
    )
    if config.weight_bytes_per_gpu > gpu.memory_bytes:
        raise _RejectedError(TOO_BIG)
    return config


def _model(path: str, catalogues: tuple[ModelCatalogue, ...]) -> ModelArchitecture:
    name = MODEL_OF_PATH.get(path, path)
    *others, last = catalogues
    for catalogue in others:
        try:
            return catalogue.get(name)
        except UnknownNameError:
            continue
    return last.get(name)


def _layout(row: Row, prefix: str) -> tuple[int, int, int]:
    """Degrees of tensor, attention data and expert parallelism."""
    names = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    split, ranks, expert_split, experts = (max(1, int(row[prefix + name] or 0)) for name in names)
    gpus = split * ranks
    if experts == expert_split > 1 and gpus == expert_split * experts and "epnone" not in row["id"]:
        split, ranks = (1, experts) if ranks > 1 else (experts, 1)
    elif split == ranks > 1 and experts == gpus:
        split, experts = 1, ranks
    elif expert_split * experts > gpus:
        ranks = expert_split * experts // split
    if split & (split - 1) or (not prefix and split > 16):
        raise _RejectedError(TOTAL_GPUS)
    return split, ranks, experts


def _stated(pattern: str, row: Row) -> str:
    found = re.search(pattern, row["silicon_data_source"])
    return found.group(1) if found else ""


def _age(day: str, backend: str) -> float:
    return (dt.date.fromisoformat(day) - dt.date(2026, 1, 1)).days / 365 if day else UNDATED_AGE[backend]
