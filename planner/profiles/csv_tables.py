"""CSV tables of points: Fleetwright's own, and the silicon table of aiconfigurator.

`silicon_sample.csv` (ai-dynamo/aiconfigurator 095f58a5, 0.12, 2026) has one row per measured run: `batch_size` requests
in flight on the replica, `isl` and `osl` tokens, means of TTFT and TPOT.  It has no rate; with a fixed number in flight
the rate follows from Little's law: rate = batch_size / (TTFT + (osl - 1) TPOT).  A degree of 0 means no parallelism of
that kind.  The reader leaves out and counts rows of mode `disagg`, which are a prefill and a decode pool.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleet.errors import DocumentError, Problem, nearest_names
from fleet.slo import Metric, Statistic
from planner.profiles.points import MeasuredPoint
from planner.profiles.raw_points import RawPoint, is_number

PLAIN = tuple(field for field in MeasuredPoint.model_fields if field not in set(Metric))
LATENCIES = {f"{metric[:-3]}_{statistic}_ms": (metric, statistic) for metric in Metric for statistic in Statistic}
OWN_COLUMNS = (*(column for column in PLAIN if column not in ("date", "source")), *LATENCIES, "date", "source")

SILICON = {
    "model_path": "model",
    "system": "gpu",
    "backend": "engine",
    "backend_version": "engine_version",
    "isl": "input_tokens",
    "osl": "output_tokens",
    "batch_size": "concurrency",
    "tp_size": "tensor_parallel",
    "pp_size": "pipeline_parallel",
    "attention_dp_size": "data_parallel",
    "moe_ep_size": "expert_parallel",
}
MAY_BE_NONE = ("attention_dp_size", "moe_ep_size")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_MEASURED = re.compile(r"\bmeasured=(\d{4}-\d{2}-\d{2})")
_TEXT = {"model", "gpu", "precision", "engine", "engine_version", "source", "date"}  # also where the cell is a number


def own_raw_points(text: str, *, name: str) -> list[RawPoint]:
    """Fleetwright's own table: any of `OWN_COLUMNS`, in any order; an empty cell is absent."""
    header, rows = _rows(text, name)
    problems = [Problem(column, _unknown(column), 1) for column in header if column not in OWN_COLUMNS]
    if problems:
        raise DocumentError(name=name, problems=problems)
    raw_points = []
    for line, row in rows:
        raw = RawPoint(line=line)
        for column, cell in row.items():
            raw.put(LATENCIES.get(column, column), _value(column, cell), column)
        raw_points.append(raw)
    return raw_points


def silicon_raw_points(text: str, *, name: str) -> tuple[list[RawPoint], int]:
    """The replicas in a silicon table, and the number of omitted rows."""
    _, rows = _rows(text, name)
    replicas = [(line, row) for line, row in rows if row.get("mode", "agg") != "disagg"]
    return [_silicon(line, row) for line, row in replicas], len(rows) - len(replicas)


def own_csv(points: Iterable[MeasuredPoint]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, OWN_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for point in points:
        fields = point.model_dump(mode="json")
        latencies = {column: fields[metric][statistic] for column, (metric, statistic) in LATENCIES.items()}
        writer.writerow({column: fields.get(column) for column in PLAIN} | latencies)
    return out.getvalue()


def _silicon(line: int, row: Mapping[str, str]) -> RawPoint:
    raw = RawPoint(line=line)
    for column, field in SILICON.items():
        value = _value(field, row.get(column, ""))
        raw.put(field, None if value == 0 and column in MAY_BE_NONE else value, column)
    precision = "gemm_quant_mode" if row.get("gemm_quant_mode") else "precision"
    raw.put("precision", row.get(precision) or None, precision)
    ttft_ms, tpot_ms = (_value("", row.get(f"silicon_{metric}_ms", "")) for metric in ("ttft", "tpot"))
    raw.put((Metric.TTFT, Statistic.MEAN), ttft_ms, "silicon_ttft_ms")
    raw.put((Metric.TPOT, Statistic.MEAN), tpot_ms, "silicon_tpot_ms")
    _put_rate(raw, ttft_ms=ttft_ms, tpot_ms=tpot_ms)
    raw.put("source", row.get("silicon_data_source", "").partition(";")[0].strip() or None, "silicon_data_source")
    if measured := _MEASURED.search(row.get("silicon_data_source", "")):
        raw.put("date", measured[1], "silicon_data_source")
    return raw


def _put_rate(raw: RawPoint, *, ttft_ms: Any, tpot_ms: Any) -> None:
    in_flight, tokens = raw.values.get(("concurrency",)), raw.values.get(("output_tokens",))
    if is_number(ttft_ms) and is_number(tpot_ms) and is_number(in_flight) and is_number(tokens):
        whole_ms = ttft_ms + (tokens - 1) * tpot_ms
        raw.put((Metric.E2E, Statistic.MEAN), whole_ms, "silicon_tpot_ms")
        raw.put("achieved_rps", 1e3 * in_flight / whole_ms if whole_ms else 0, "batch_size")


def _rows(text: str, name: str) -> tuple[Sequence[str], list[tuple[int, dict[str, str]]]]:
    reader = csv.reader(io.StringIO(text.lstrip("\ufeff")))
    header = [column.strip() for column in next(reader, [])]
    rows, problems = [], []
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            problems.append(
                Problem("", f"has {len(row)} columns, expected {len(header)} as the header", reader.line_num)
            )
        rows.append((reader.line_num, dict(zip(header, row, strict=False))))
    if not rows:
        problems.append(Problem("", "has no rows, expected a header and at least one point"))
    if problems:
        raise DocumentError(name=name, problems=problems[:100])
    return header, rows


def _value(field: str, cell: str) -> Any:
    """A cell as a number where the column has numbers; None where it is empty."""
    cell = cell.strip()
    if field in _TEXT or not _NUMBER.fullmatch(cell):
        return cell or None
    number = float(cell)
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _unknown(column: str) -> str:
    near = nearest_names(column, OWN_COLUMNS)
    return "is not a known column" + (f"; nearest: {', '.join(near)}" if near else "")
