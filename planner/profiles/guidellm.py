"""Reports of GuideLLM (`guidellm benchmark --output-path benchmarks.json`), 0.3 and later.

Field names as in guidellm/benchmark/schemas/generative/{report,benchmark,metrics}.py and schemas/statistics.py at
03820eb and 06cef29 (0.4 to 0.7); 0.3 has the strategy under `args` and counts under `run_stats`.  A report has a
benchmark per rate or number of streams, and each a distribution (mean, median, percentiles) per metric and outcome.
The reader takes those of successful requests.

- `request_latency` is in seconds, the others in milliseconds.
- TPOT is GuideLLM's `inter_token_latency_ms`, one value per request, without the first token; its percentiles weight a
  request by its tokens.  Its `time_per_output_token_ms` includes the first token and is not used.
- A latency of 0 means that nothing was recorded.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fleet.errors import DocumentError, Problem
from fleet.slo import Metric, Statistic
from planner.profiles.raw_points import RawPoint, Record, at, is_number, scaled

METRICS = {
    Metric.TTFT: ("time_to_first_token_ms", 1.0),
    Metric.TPOT: ("inter_token_latency_ms", 1.0),
    Metric.E2E: ("request_latency", 1e3),
}
COUNTS = (("metrics", "request_totals"), ("scheduler_metrics", "requests_made"), ("run_stats", "requests_made"))


def guidellm_raw_points(record: Record, *, name: str) -> list[RawPoint]:
    benchmarks = record.data.get("benchmarks")
    if not isinstance(benchmarks, Sequence) or isinstance(benchmarks, str) or not benchmarks:
        problem = Problem("benchmarks", "expected a list of at least one benchmark", record.line)
        raise DocumentError(name=name, problems=[problem])
    return [_raw_point(benchmark, number, record) for number, benchmark in enumerate(benchmarks)]


def _raw_point(benchmark: Any, number: int, record: Record) -> RawPoint:
    raw = RawPoint(at=("benchmarks", number), line=record.line)
    model = at(record.data, "args", "model") or at(benchmark, "config", "backend", "model")
    raw.put("model", model or at(benchmark, "worker", "backend_model"))
    for field, metric in (
        ("achieved_rps", "requests_per_second"),
        ("input_tokens", "prompt_token_count"),
        ("output_tokens", "output_token_count"),
    ):
        raw.put(field, _statistic(benchmark, metric, "mean"), "metrics", metric, "successful", "mean")
    for place in COUNTS:
        raw.put("requests", at(benchmark, *place, "successful"), *place, "successful")
        raw.put("failed", at(benchmark, *place, "errored"), *place, "errored")
    _put_pressure(raw, benchmark)
    _put_latencies(raw, benchmark)
    _put_date(raw, benchmark)
    return raw


def _put_pressure(raw: RawPoint, benchmark: Any) -> None:
    """The offered rate where requests were sent on a schedule, else the number in flight."""
    home = "config" if at(benchmark, "config", "strategy") is not None else "args"
    strategy = at(benchmark, home, "strategy")
    kind = at(strategy, "type_") or at(strategy, "kind")
    if kind in ("constant", "poisson"):
        raw.put("offered_rps", at(strategy, "rate"), home, "strategy", "rate")
    elif kind == "concurrent":
        raw.put("concurrency", at(strategy, "streams"), home, "strategy", "streams")
    elif kind == "synchronous":
        raw.put("concurrency", 1)
    in_flight = _statistic(benchmark, "request_concurrency", "mean")
    raw.put("concurrency", in_flight or None, "metrics", "request_concurrency", "successful", "mean")


def _put_latencies(raw: RawPoint, benchmark: Any) -> None:
    for metric, (theirs, factor) in METRICS.items():
        for statistic in Statistic:
            inside = ("mean",) if statistic is Statistic.MEAN else ("percentiles", str(statistic))
            found = _statistic(benchmark, theirs, *inside)
            if found is None and statistic is Statistic.P50:
                inside = ("median",)
                found = _statistic(benchmark, theirs, *inside)
            if found != 0:
                raw.put((metric, statistic), scaled(found, factor), "metrics", theirs, "successful", *inside)


def _put_date(raw: RawPoint, benchmark: Any) -> None:
    started = at(benchmark, "start_time") or at(benchmark, "run_stats", "start_time")
    if is_number(started) and 0 < started < 1e11:
        raw.put("date", datetime.fromtimestamp(started, UTC).date(), "start_time")


def _statistic(benchmark: Any, metric: str, *inside: str) -> Any:
    found = at(benchmark, "metrics", metric, "successful", *inside)
    return None if isinstance(found, Mapping) else found
