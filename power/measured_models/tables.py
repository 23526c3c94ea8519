"""Measured tables, recognised by their columns: rows of text in, points out, violations by row and column.

ML.ENERGY leaderboard    average power of serving engines by GPU, model and batch
splitwise-sim            times, peak and average power of one batch by prompt length and batch
Zeus, summary            training time and power by power limit (NSDI 2023 traces)
Zeus, windows            the same as windows of a profiler, the limit at the end of each window's name
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import nan

from fleet.catalogues import folded
from fleet.documents import RuleError, Violation
from fleet.gpus import GpuCatalogue, GpuSpec
from power.measured_models.points import LimitPoint, RequestPoint, ServingPoint

Row = Mapping[str, str]

MIN_ROWS = 3  # a curve needs more than its two ends
MAX = 1e9
SERVING_FIGURES = (
    *("avg_batch_size", "output_throughput_tokens_per_sec", "median_itl_ms"),
    *("activated_params_billions", "total_params_billions"),
)
REQUEST_SIZES = ("prompt_size", "batch_size", "token_size", "tensor_parallel")
REQUEST_SHARES = ("peak_power", "average_power")  # of the rating
REQUEST_TIMES = ("prompt_time", "token_time", "e2e_time")  # ms
MAX_SHARE = 3.0
LAYOUT = ("tensor_parallel", "expert_parallel", "data_parallel")
BOARD = re.compile(r"(rtx|gtx|gb|mi|[abhlptv])\d{1,4}[a-z]{0,2}")  # a board's name inside a file's
WINDOW_LIMIT = re.compile(r"(\d+(?:\.\d+)?)$")
BILLIONS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])")
GPU_ENERGY = re.compile(r"gpu\d+_energy")


class TableKind(StrEnum):
    SERVING = "ML.ENERGY leaderboard"
    REQUESTS = "splitwise-sim"
    LIMITS = "Zeus summary"
    WINDOWS = "Zeus windows"


COLUMNS: Mapping[TableKind, tuple[str, ...]] = {
    TableKind.SERVING: ("gpu_model", "model_id", "num_gpus", "avg_power_watts", *SERVING_FIGURES),
    TableKind.REQUESTS: ("model", "hardware", *REQUEST_SIZES, *REQUEST_SHARES, *REQUEST_TIMES),
    TableKind.LIMITS: (
        "dataset",
        "network",
        "batch_size",
        "optimizer",
        "power_limit",
        "time_per_epoch",
        "average_power",
    ),
    TableKind.WINDOWS: ("window_name", "elapsed_time", "gpu0_energy"),
}


@dataclass(slots=True)
class Points:
    serving: list[ServingPoint] = field(default_factory=list)
    requests: list[RequestPoint] = field(default_factory=list)
    limits: list[LimitPoint] = field(default_factory=list)
    sources: dict[TableKind, list[str]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)


def kind_of(columns: Sequence[str]) -> TableKind:
    """Return the kind of a table with these columns; a RuleError names those that are missing from the nearest kind."""
    missing = {kind: [name for name in wanted if name not in columns] for kind, wanted in COLUMNS.items()}
    kind = min(missing, key=lambda kind: len(missing[kind]) / len(COLUMNS[kind]))
    if len(missing[kind]) * 2 > len(COLUMNS[kind]):
        raise RuleError([((), f"is no table that is known; expected the columns of one of {', '.join(TableKind)}")])
    RuleError.raise_for(((name,), f"is a missing column of a table of the kind {kind}") for name in missing[kind])
    return kind


def read_table(
    rows: Sequence[Row], columns: Sequence[str], *, name: str, gpus: GpuCatalogue, into: Points
) -> TableKind:
    """Add a table's points; nothing is added where any row is wrong."""
    kind = kind_of(columns)
    if len(rows) < MIN_ROWS:
        raise RuleError([((), f"must have at least {MIN_ROWS} rows to fit a curve, got {len(rows)}")])
    table, read = _Table(rows=rows, name=name, gpus=gpus), Points()
    if kind is TableKind.SERVING:
        read.serving += table.serving()
    elif kind is TableKind.REQUESTS:
        read.requests += table.requests()
    else:
        read.limits += table.limits() if kind is TableKind.LIMITS else table.windows(columns)
    RuleError.raise_for(table.violations)
    into.serving += read.serving
    into.requests += read.requests
    into.limits += read.limits
    into.left_out.update(table.left_out)
    into.sources.setdefault(kind, []).append(name)
    return kind


@dataclass(slots=True)
class _Table:
    rows: Sequence[Row]
    name: str
    gpus: GpuCatalogue
    violations: list[Violation] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def serving(self) -> Iterator[ServingPoint]:
        """Read ML.ENERGY; tasks that write no tokens have no batch and are left out."""
        for number, row in enumerate(self.rows, 2):
            if not row["avg_batch_size"] or not row["output_throughput_tokens_per_sec"]:
                self.left_out["writes no tokens"] += 1
                continue
            gpu, watts = self._board(row["gpu_model"]), self._positive(number, row, "avg_power_watts")
            count = self._number(number, row, "num_gpus", minimum=1)
            batch, rate, itl_ms, active, total = (self._positive(number, row, name) for name in SERVING_FIGURES)
            if gpu is None or self.violations:
                continue
            split = (f"{name[0].upper()}P{row[name]}" for name in LAYOUT if row.get(name, "1") not in ("", "1"))
            layout = " ".join((*split, *filter(None, (row.get("weight_precision"), row.get("task")))))
            share = watts / count / gpu.rated_w
            yield ServingPoint(
                gpu.name, row["model_id"], layout, int(count), max(1.0, batch), share, rate, itl_ms / 1e3, active, total
            )

    def requests(self) -> Iterator[RequestPoint]:
        """Read splitwise-sim, where 0 means that no power was recorded."""
        for number, row in enumerate(self.rows, 2):
            gpu = self._board(row["hardware"])
            prompt, batch, output, split = (self._number(number, row, name, minimum=1) for name in REQUEST_SIZES)
            peak, mean = (self._number(number, row, name, minimum=0, maximum=MAX_SHARE) for name in REQUEST_SHARES)
            prompt_ms, token_ms, whole_ms = (self._positive(number, row, name) for name in REQUEST_TIMES)
            size = BILLIONS.search(row["model"].casefold())
            if size is None:
                self.violations.append(
                    ((number, "model"), f"must contain its size, like llama2-70b, got {row['model']!r}")
                )
            if gpu is None or size is None or self.violations:
                continue
            yield RequestPoint(
                *(gpu.name, row["model"], int(split), int(prompt), int(batch), int(output), peak or None, mean or None),
                *(prompt_ms / 1e3, token_ms / 1e3, whole_ms / 1e3, float(size[1])),
            )

    def limits(self) -> Iterator[LimitPoint]:
        """Read Zeus's summaries: one epoch is the work; the file name gives the board."""
        gpu = self._named_board()
        for number, row in enumerate(self.rows, 2):
            limit_w, time_s, power_w = (
                self._positive(number, row, name) for name in ("power_limit", "time_per_epoch", "average_power")
            )
            task = f"{row['dataset']} {row['network']}"
            yield LimitPoint(gpu, task, f"{task} {row['batch_size']} {row['optimizer']}", limit_w, time_s, power_w)

    def windows(self, columns: Sequence[str]) -> Iterator[LimitPoint]:
        """Read Zeus's profiler: each window does the same work; energy is per board."""
        gpu, energies = self._named_board(), [name for name in columns if GPU_ENERGY.fullmatch(name)]
        for number, row in enumerate(self.rows, 2):
            found = WINDOW_LIMIT.search(row["window_name"])
            if found is None:
                self.violations.append(((number, "window_name"), "must end with the power limit in watts"))
                continue
            time_s = self._positive(number, row, "elapsed_time")
            energy_j = sum(self._positive(number, row, name) for name in energies) / len(energies)
            if not self.violations:
                yield LimitPoint(gpu, self.name, self.name, float(found[1]), time_s, energy_j / time_s)

    def _board(self, name: str) -> GpuSpec | None:
        found = self.gpus.index.get(folded(name))
        if found is None:
            self.left_out[f"no GPU type of the catalogue is called {name!r}"] += 1
        return found

    def _named_board(self) -> str:
        parts = re.split(r"[^a-z0-9]+", self.name.casefold())
        found = [part.upper() for part in parts if BOARD.fullmatch(part)]
        if len(found) != 1:
            named = ", ".join(found) or "none"
            self.violations.append(
                ((), f"must have the board's name in its file name, once (like run_a40.csv); got {named}")
            )
            return ""
        return found[0]

    def _positive(self, number: int, row: Row, column: str) -> float:
        value = _float(row[column])
        if 0 < value <= MAX:
            return value
        self.violations.append(((number, column), f"must be a number above 0 and at most {MAX:g}, got {row[column]!r}"))
        return 1.0

    def _number(self, number: int, row: Row, column: str, *, minimum: float, maximum: float = MAX) -> float:
        value = _float(row[column])
        if minimum <= value <= maximum:
            return value
        self.violations.append(
            ((number, column), f"must be a number from {minimum:g} to {maximum:g}, got {row[column]!r}")
        )
        return 1.0


def _float(text: str) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return nan  # fails every comparison
