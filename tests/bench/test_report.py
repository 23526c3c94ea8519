"""The page of measurements is written from the results, and keeps what was not measured again."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.registry import REGISTRY, SECTIONS, Benchmark
from bench.report import PAGE, table_of, write_tables

RESULT = {
    "benchmark": "replay",
    "at": "2026-11-26T10:00:00+00:00",
    "machine": "2 x processor",
    "rows": [{"stream": "chat | day", "wall_s": 0.21849, "note": None}],
}
TABLE = """| stream | wall_s | note | date | machine |
| --- | --- | --- | --- | --- |
| chat / day | 0.2185 | - | 2026-11-26 | 2 x processor |
"""


def test_a_row_ends_with_target_anchor_date_and_machine() -> None:
    benchmark = Benchmark(
        name="b", section="Planner", title="B", target="1 s", anchor="other", targets={"chat | day": "0.5 s"}
    )
    table = table_of(benchmark, RESULT)
    assert table.splitlines()[2] == "| chat / day | 0.2185 | - | 0.5 s | other | 2026-11-26 | 2 x processor |"


def test_only_measured_tables_are_replaced(tmp_path: Path) -> None:
    page, out = tmp_path / "REPORT.md", tmp_path / "out"
    out.mkdir()
    page.write_text(
        "# Measurements\n<!-- table: replay -->\nold\n<!-- end: replay -->\nProse.\n"
        "<!-- table: horizon -->\nkept\n<!-- end: horizon -->\n"
    )
    (out / "replay.json").write_text(json.dumps(RESULT))
    assert write_tables(page=page, out=out) == ["replay"]
    text = page.read_text()
    assert TABLE in text
    assert "old" not in text
    assert "<!-- table: horizon -->\nkept\n<!-- end: horizon -->" in text
    assert write_tables(page=page, out=out) == ["replay"]
    assert page.read_text() == text


@pytest.mark.parametrize("benchmark", REGISTRY, ids=lambda each: each.name)
def test_every_benchmark_is_a_module_of_a_known_section_with_a_table_on_the_page(benchmark: Benchmark) -> None:
    assert find_spec(f"bench.{benchmark.name}") is not None
    assert benchmark.section in SECTIONS
    page = PAGE.read_text(encoding="utf-8")
    assert f"<!-- table: {benchmark.name} -->" in page
    assert f"<!-- end: {benchmark.name} -->" in page
