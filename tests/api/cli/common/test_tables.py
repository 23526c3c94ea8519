"""Printed tables and figures."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from api.cli.common.tables import Column, Table, format_value, moment, number, print_fields, print_table

AT = datetime(2026, 11, 21, 6, 5, 4, tzinfo=UTC)


def test_numbers_are_right_aligned_and_missing_values_are_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("name"), number("count"), number("price", decimals=2), moment("time"))
    print_table(Table(columns, [("a", 1, 0.5, AT), ("longer", 12345, 1234.567, None)]))
    assert capsys.readouterr().out == (
        "name     count     price  time\n"
        "a            1      0.50  2026-11-21 06:05:04Z\n"
        "longer  12,345  1,234.57  -\n"
    )  # fmt: skip


def test_an_empty_table_has_only_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table((Column("a"), number("b")), []))
    assert capsys.readouterr().out == "a  b\n"


def test_a_long_row_stays_on_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_table(Table((Column("a"), Column("b")), [("x" * 300, "y z" * 300)]))
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["a", "b"]
    assert row == "x" * 300 + "  " + "y z" * 300


def test_markup_in_names_is_printed_literally(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table((Column("a"),), [("[red]x[/red] :smile:",)]))
    assert capsys.readouterr().out == "a\n[red]x[/red] :smile:\n"


def test_times_are_printed_in_utc() -> None:
    in_california = AT.astimezone(timezone(timedelta(hours=-8)))
    assert moment("at").cell(in_california) == "2026-11-21 06:05:04Z"


def test_nested_fields_have_dotted_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"name": "x", "limits": {"low": 1, "high": {"of": 2000}}, "nothing": None, "none": []})
    assert (
        capsys.readouterr().out
        == "field           value\nname            x\nlimits.low      1\nlimits.high.of  2,000\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (1234567, "1,234,567"),
        (0.25, "0.25"),
        (1e-7, "1e-07"),
        (8030261248.0, "8,030,261,248"),
        ("2026-11-21", "2026-11-21"),
        (["a", "b"], "a, b"),
        ([{"layers": 2, "window": None}, {"layers": 3}], "layers 2; layers 3"),
    ],
)
def test_values_are_formatted_as_text(value: object, text: str) -> None:
    assert format_value(value) == text
