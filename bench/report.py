"""Write the tables of `bench/REPORT.md` from `bench/out/*.json`.

A table stands between `<!-- table: NAME -->` and `<!-- end: NAME -->`.  A benchmark without a result in `bench/out`
keeps the table that the page has.  Each row ends with its target, its anchor, its date and its machine.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.registry import REGISTRY, Benchmark

PAGE = Path(__file__).parent / "REPORT.md"
OUT = Path(__file__).parent / "out"


def write_tables(*, page: Path = PAGE, out: Path = OUT) -> list[str]:
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
    rows: list[dict[str, Any]] = report["rows"]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    first = columns[0] if columns else ""
    extra = {"target": benchmark.target, "anchor": benchmark.anchor}
    has = [name for name, text in extra.items() if text or (name == "target" and benchmark.targets)]
    lines = [_line([*columns, *has, "date", "machine"]), _line(["---"] * (len(columns) + len(has) + 2))]
    for row in rows:
        about = extra | {"target": benchmark.targets.get(str(row.get(first)), benchmark.target)}
        cells = [shown(row.get(column)) for column in columns]
        lines.append(_line([*cells, *(about[name] for name in has), report["at"][:10], report["machine"]]))
    return "\n".join(lines) + "\n"


def shown(value: Any) -> str:
    """Format a figure with four digits, and what is missing as a dash."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,.4g}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
