"""`python -m bench`: run every benchmark, print its table, write bench/out/NAME.json.

Each benchmark is a module with `run() -> list[dict]`: rows of figures with units in their names, measured in this run.
"""

import argparse
import json
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

BENCHMARKS = ("command_line", "service_writes")
OUT = Path(__file__).parent / "out"


def main() -> int:
    """Run the benchmarks named, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which; default: all")
    OUT.mkdir(exist_ok=True)
    for name in parser.parse_args().names or BENCHMARKS:
        rows: list[dict[str, Any]] = import_module(f"bench.{name}").run()
        report = {
            "benchmark": name,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "rows": rows,
        }
        (OUT / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
        show(name, rows)
    return 0


def show(name: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table."""
    table = Table(title=name.replace("_", " "), title_justify="left", box=None)
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(value if isinstance(value, str) else f"{value:,.3g}" for value in row.values()))
    Console().print(table, "")


if __name__ == "__main__":
    sys.exit(main())
