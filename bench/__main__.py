"""`python -m bench [NAME ...]`: run benchmarks, print their tables, write `bench/out/NAME.json` and `bench/REPORT.md`.

A table of the page stands between `<!-- table: NAME -->` and `<!-- end: NAME -->`; each row ends with its target, its
anchor, its date and its machine.  A benchmark without a result in `bench/out` keeps the table that the page has.

Without names it runs every benchmark that is not slow; `--all` runs the slow ones too, `--report` only writes the page.
"""

import argparse
import json
import math
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.harness import OUT, ROOT, Row
from bench.registry import REGISTRY, Benchmark
from tests.testbed.requirements import UnavailableError

REPORT = ROOT / "bench" / "REPORT.md"
WIDTH = 500  # so that no column is cut; a terminal wraps what it cannot show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [benchmark.name for benchmark in REGISTRY]
    parser.add_argument("names", nargs="*", choices=[*names, []], help="which; default: all that are not slow")
    parser.add_argument("--all", action="store_true", help="run the slow benchmarks too")
    parser.add_argument("--report", action="store_true", help="run nothing; write the page from bench/out")
    given = parser.parse_args()
    usual = [each.name for each in REGISTRY if given.all or not each.slow]
    chosen = [] if given.report else given.names or usual
    OUT.mkdir(exist_ok=True)
    for benchmark in REGISTRY:
        if benchmark.name in chosen:
            _measure(benchmark)
    write_tables()
    return 0


def _measure(benchmark: Benchmark) -> None:
    try:
        rows = benchmark.measure()
    except UnavailableError as unavailable:
        print(f"{benchmark.name}: not measured: {unavailable}")
        return
    report = {
        "benchmark": benchmark.name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": _machine(),
        "rows": [{column: _plain(value) for column, value in row.items()} for row in rows],
    }
    (OUT / f"{benchmark.name}.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    _show(benchmark.title, rows)


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{os.cpu_count()} x {model or platform.machine()}"


def _show(title: str, rows: Sequence[Row]) -> None:
    table = Table(title=title, title_justify="left", box=None)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    for column in columns:
        values = [row[column] for row in rows if column in row]
        table.add_column(column, justify="left" if isinstance(values[0], str) else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(shown(row.get(column)) for column in columns))
    Console(width=WIDTH).print(table, "")


def _plain(value: Any) -> Any:
    """Replace an infinite number, which JSON cannot hold."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_tables(*, page: Path = REPORT, out: Path = OUT) -> list[str]:
    """Replace each table that has a result; return the names of the benchmarks."""
    text, written = page.read_text(encoding="utf-8"), []
    for benchmark in REGISTRY:
        result = out / f"{benchmark.name}.json"
        marked = re.compile(rf"(<!-- table: {benchmark.name} -->\n).*?(<!-- end: {benchmark.name} -->)", re.DOTALL)
        found = marked.search(text)
        if result.exists() and found is not None:
            table = table_of(benchmark, json.loads(result.read_text(encoding="utf-8")))
            text = f"{text[: found.end(1)]}\n{table}\n{text[found.start(2) :]}"
            written.append(benchmark.name)
    page.write_text(text, encoding="utf-8")
    return written


def table_of(benchmark: Benchmark, report: Mapping[str, Any]) -> str:
    """Return one table for the rows of each set of columns."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in report["rows"]:
        groups.setdefault(tuple(row), []).append(row)
    about = {
        "target": benchmark.target or "-",
        "anchor": benchmark.anchor or "-",
        "date": report["at"][:10],
        "machine": report["machine"],
    }
    return "\n".join(_table([row | about for row in rows]) for rows in groups.values())


def _table(rows: Sequence[Row]) -> str:
    body = [[shown(value) for value in row.values()] for row in rows]
    return "".join(map(_line, [list(rows[0]), ["---"] * len(rows[0]), *body]))


def shown(value: Any) -> str:
    """Format a figure with four digits or as a whole number, and what is missing as a dash."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    digits = 5 if 1 <= abs(value) < 2 else 4  # ratios near 1 differ in the fourth decimal
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.{digits}g}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |\n"


if __name__ == "__main__":
    sys.exit(main())
