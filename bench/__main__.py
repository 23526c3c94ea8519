"""`python -m bench`: run every benchmark, print its table, write bench/out/NAME.json.

Each benchmark is a module with `run() -> list[dict]`: rows of figures with units in their names, measured in this run.
"""

import argparse
import json
import math
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

BENCHMARKS = (
    "command_line",
    "mix_quality",
    "solve_time",
    "many_models",
    "accuracy",
    "profile_interpolation",
    "verified_plans",
    "replay",
    "stability",
    "horizon",
    "placement_balance",
    "placement_few_slots",
    "placement_traffic",
    "placement_dispatch",
    "placement_drift",
    "placement_speeds",
    "placement_exact",
    "power_reproduction",
    "power_more_servers",
    "power_wrong_curves",
    "power_prefill",
    "power_training_share",
    "power_faults",
    "power_speed",
    "power_guard",
    "power_caps",
    "power_forecast",
    "power_training",
    "faults_recordings",
    "faults_readers",
    "faults_agent",
    "faults_lab",
    "faults_lab_noise",
    "faults_directions",
    "faults_decision",
    "faults_stragglers",
    "faults_scale",
    "faults_weeks",
    "faults_lab_directions",
    "router",
    "router_on_serve",
    "controller",
    "faults_paths",
    "healing",
    "service_writes",
)
WIDTH = 500  # so that no column is cut; a terminal wraps what it cannot show
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
            "rows": [{column: _plain(value) for column, value in row.items()} for row in rows],
        }
        (OUT / f"{name}.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
        show(name, rows)
    return 0


def show(name: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table."""
    table = Table(title=name.replace("_", " "), title_justify="left", box=None)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    for column in columns:
        values = [row[column] for row in rows if column in row]
        table.add_column(column, justify="left" if isinstance(values[0], str) else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_shown(row.get(column)) for column in columns))
    Console(width=WIDTH).print(table, "")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,.4g}"


def _plain(value: Any) -> Any:
    """JSON knows no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(main())
