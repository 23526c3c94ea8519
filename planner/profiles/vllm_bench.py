"""Results of `vllm bench serve --save-result [--save-detailed]`, and of `sglang.bench_serving`, a fork of it.

Field names as in vllm/benchmarks/serve.py at 009e6d4 (2026) and sglang/bench_serving.py at 0033168 (2025) and later.
Both have counts and rates at the top level, latencies as `mean_`, `median_` and `pNN_` of ttft, tpot and the whole
request, and with details one list entry per request, in seconds.

- TPOT is the tools' tpot: per request, without the first token.  Their itl has one sample per token and is not used.
- Where a file lists single requests, the reader computes all statistics from them.
- vLLM's clock of a request starts when its own queue releases it.  A rate together with --max-concurrency is therefore
  not an offered rate: the reader takes such a run as that many requests in flight.
- Neither tool records the GPU.  vLLM saves the pairs of `--metadata KEY=VALUE`; SGLang queries the server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import compress
from typing import Any

from fleet.documents import Path
from fleet.slo import PERCENTILES, Metric, Statistic
from planner.profiles.raw_points import RawPoint, Record, at, is_number, per_request

METADATA: Mapping[str, Sequence[str]] = {  # field of a point -> common metadata keys for it
    "gpu": ("gpu", "gpu_type", "accelerator", "hardware"),
    "tensor_parallel": ("tensor_parallel", "tensor_parallel_size", "tp_size", "tp"),
    "pipeline_parallel": ("pipeline_parallel", "pipeline_parallel_size", "pp_size", "pp"),
    "data_parallel": ("data_parallel", "data_parallel_size", "dp_size", "dp"),
    "expert_parallel": ("expert_parallel", "expert_parallel_size", "ep_size", "ep"),
    "precision": ("precision", "quantization", "dtype"),
    "engine_version": ("engine_version", "vllm_version", "sglang_version", "version"),
}
STATISTIC_PREFIXES = {
    statistic: (str(statistic), *(("median",) if statistic is Statistic.P50 else ())) for statistic in Statistic
}
UNSET = ("auto", "none", "")  # of a precision: the engine chose


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between the two tools."""

    engine: str
    whole_request: str  # its name of end-to-end latency
    model: Path
    about: Path  # the key of the server's properties


VLLM = Dialect("vllm", "e2el", ("model_id",), ())
SGLANG = Dialect("sglang", "e2e_latency", ("server_info", "model_path"), ("server_info",))


def serving_raw_point(record: Record, *, dialect: Dialect) -> RawPoint:
    data = record.data
    raw = RawPoint(line=record.line)
    raw.put("model", at(data, *map(str, dialect.model)), *dialect.model)
    raw.put("engine", dialect.engine)
    _put_about(raw, at(data, *map(str, dialect.about)), dialect)
    raw.put("requests", data.get("completed"), "completed")
    raw.put("failed", _failed(data), "failed")
    for field, total in (("input_tokens", "total_input_tokens"), ("output_tokens", "total_output_tokens")):
        mean = per_request(data.get(total), data.get("completed"))
        raw.put(field, data.get(total) if mean is None else mean, total)
    raw.put("achieved_rps", data.get("request_throughput"), "request_throughput")
    _put_pressure(raw, data)
    _put_latencies(raw, data, dialect)
    _put_date(raw, data)
    return raw


def _put_about(raw: RawPoint, about: Any, dialect: Dialect) -> None:
    for field, keys in METADATA.items():
        for key in keys:
            value = at(about, key)
            if field == "precision" and (value is None or str(value).casefold() in UNSET):
                continue
            raw.put(field, _number_in(value), *dialect.about, key)


def _number_in(value: Any) -> Any:
    """Metadata is text, including numbers."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value


def _put_pressure(raw: RawPoint, data: Mapping[str, Any]) -> None:
    limit, rate = data.get("max_concurrency"), data.get("request_rate")
    if limit is not None:
        raw.put("concurrency", limit, "max_concurrency")
    elif is_number(rate) and rate != float("inf"):
        raw.put("offered_rps", rate, "request_rate")
    elif rate is not None and rate not in ("inf", float("inf"), "trace"):
        raw.put("offered_rps", rate, "request_rate")  # not a number: validation reports it
    else:  # all at once, or at the times of a trace
        for key in ("max_concurrent_requests", "concurrency", "completed"):
            raw.put("concurrency", data.get(key), key)


def _failed(data: Mapping[str, Any]) -> Any:
    errors = data.get("errors")
    if "failed" in data or not isinstance(errors, Sequence):
        return data.get("failed")
    return sum(1 for error in errors if error)


def _put_latencies(raw: RawPoint, data: Mapping[str, Any], dialect: Dialect) -> None:
    for metric, samples_ms in _samples_ms(data).items():
        for statistic in (Statistic.MEAN, *PERCENTILES) if samples_ms else ():
            raw.put((metric, statistic), statistic.of(samples_ms), "ttfts" if metric is Metric.TTFT else "itls")
    names = {Metric.TTFT: "ttft", Metric.TPOT: "tpot", Metric.E2E: dialect.whole_request}
    for metric, name in names.items():
        for statistic in Statistic:
            for prefix in STATISTIC_PREFIXES[statistic]:
                raw.put((metric, statistic), data.get(f"{prefix}_{name}_ms"), f"{prefix}_{name}_ms")


def _samples_ms(data: Mapping[str, Any]) -> dict[Metric, list[float]]:
    """The latencies of single requests, where the file has them and their counts agree."""
    ttfts, itls = data.get("ttfts"), data.get("itls")
    lengths, errors = data.get("output_lens"), data.get("errors") or ()
    if not (isinstance(ttfts, list) and isinstance(itls, list) and isinstance(lengths, list)):
        return {}
    well = [not error for error in errors] or [True] * len(ttfts)
    served = list(compress(zip(ttfts, itls, lengths, strict=False), well))
    if not len(ttfts) == len(itls) == len(lengths) == len(well) or not all(map(_is_request, served)):
        return {}
    after_first_ms = [sum(gaps) * 1e3 for _, gaps, _ in served]
    first_ms = [ttft * 1e3 for ttft, _, _ in served]
    return {
        Metric.TTFT: first_ms,
        Metric.TPOT: [
            after_ms / (tokens - 1)
            for after_ms, (_, _, tokens) in zip(after_first_ms, served, strict=True)
            if tokens > 1
        ],
        Metric.E2E: [first + after for first, after in zip(first_ms, after_first_ms, strict=True)],
    }


def _is_request(entry: tuple[Any, Any, Any]) -> bool:
    ttft, gaps, tokens = entry
    return is_number(ttft) and isinstance(tokens, int) and isinstance(gaps, list) and all(map(is_number, gaps))


def _put_date(raw: RawPoint, data: Mapping[str, Any]) -> None:
    date = data.get("date")  # vLLM: 20261121-061500, local time
    if date is None:
        return
    try:
        raw.put("date", datetime.strptime(str(date)[:8], "%Y%m%d").date(), "date")  # noqa: DTZ007 - a day, no zone
    except ValueError:
        raw.put("date", date, "date")
