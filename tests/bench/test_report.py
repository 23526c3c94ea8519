"""The report page: new results replace their tables, and other tables stay."""

import json
from pathlib import Path

import pytest

from bench.__main__ import REPORT, table_of, write_tables
from bench.registry import REGISTRY, Benchmark

RESULT = {
    "benchmark": "profile_interpolation",
    "at": "2026-11-26T10:00:00+00:00",
    "machine": "2 x processor",
    "rows": [{"stream": "chat | day", "wall_s": 0.21849, "note": None}],
}
TABLE = """| stream | wall_s | note | target | anchor | date | machine |
| --- | --- | --- | --- | --- | --- | --- |
| chat / day | 0.2185 | - | - | nearest measured size | 2026-11-26 | 2 x processor |
"""


def test_a_row_ends_with_target_anchor_date_and_machine() -> None:
    benchmark = Benchmark("b", "B", target="1 s", anchor="other")
    table = table_of(benchmark, RESULT)
    assert table.splitlines()[2] == "| chat / day | 0.2185 | - | 1 s | other | 2026-11-26 | 2 x processor |"


def test_only_measured_tables_are_replaced(tmp_path: Path) -> None:
    page, out = tmp_path / "REPORT.md", tmp_path / "out"
    out.mkdir()
    page.write_text(
        "# Measurements\n<!-- table: profile_interpolation -->\nold\n<!-- end: profile_interpolation -->\nProse.\n"
        "<!-- table: horizon -->\nkept\n<!-- end: horizon -->\n"
    )
    (out / "profile_interpolation.json").write_text(json.dumps(RESULT))
    assert write_tables(page=page, out=out) == ["profile_interpolation"]
    text = page.read_text()
    assert TABLE in text
    assert "old" not in text
    assert "<!-- table: horizon -->\nkept\n<!-- end: horizon -->" in text
    assert write_tables(page=page, out=out) == ["profile_interpolation"]
    assert page.read_text() == text


@pytest.mark.parametrize("benchmark", REGISTRY, ids=lambda each: each.name)
def test_every_benchmark_is_a_function_with_a_table_on_the_page(benchmark: Benchmark) -> None:
    module, _, function = (benchmark.entry or f"{benchmark.name}:run").partition(":")
    source = (REPORT.parent / f"{module}.py").read_text(encoding="utf-8")
    assert f"\ndef {function}() -> list[Row]:" in source
    page = REPORT.read_text(encoding="utf-8")
    assert f"<!-- table: {benchmark.name} -->" in page
    assert f"<!-- end: {benchmark.name} -->" in page


def test_the_page_has_the_benchmarks_in_order() -> None:
    lines = REPORT.read_text(encoding="utf-8").splitlines()
    headings = [line.removeprefix("### ") for line in lines if line.startswith("### ")]
    assert headings == [benchmark.title for benchmark in REGISTRY]
