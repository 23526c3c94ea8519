"""`python -m bench [NAME ...]`: run benchmarks, print their tables, write `bench/out/NAME.json` and `bench/REPORT.md`.

Without names it runs every benchmark that is not slow; `--all` runs the slow ones too, `--report` only writes the page.
"""

import argparse
import json
import math
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.registry import REGISTRY
from bench.report import OUT, shown, write_tables
from tests.testbed.requirements import UnavailableError

WIDTH = 500  # so that no column is cut; a terminal wraps what it cannot show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [benchmark.name for benchmark in REGISTRY]
    parser.add_argument("names", nargs="*", choices=[*names, []], help="which; default: all that are not slow")
    parser.add_argument("--all", action="store_true", help="run the slow benchmarks too")
    parser.add_argument("--report", action="store_true", help="run nothing; write the page from bench/out")
    given = parser.parse_args()
    chosen = [] if given.report else given.names or [each.name for each in REGISTRY if given.all or not each.slow]
    OUT.mkdir(exist_ok=True)
    for name in chosen:
        try:
            rows: list[dict[str, Any]] = import_module(f"bench.{name}").run()
        except UnavailableError as unavailable:
            print(f"{name}: not measured: {unavailable}")
            continue
        report = {
            "benchmark": name,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "machine": machine(),
            "rows": [{column: _plain(value) for column, value in row.items()} for row in rows],
        }
        (OUT / f"{name}.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
        show(name, rows)
    write_tables()
    return 0


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{os.cpu_count()} x {model or platform.machine()}"


def show(name: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=name.replace("_", " "), title_justify="left", box=None)
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


if __name__ == "__main__":
    sys.exit(main())
