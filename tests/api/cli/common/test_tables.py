"""Tables and figures as they are printed."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from api.cli.common.tables import Column, Table, format_value, moment, number, print_fields, print_table

SEEN = datetime(2026, 11, 21, 6, 5, 4, tzinfo=UTC)


def test_numbers_stand_under_each_other_and_nothing_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("name"), number("count"), number("price", decimals=2), moment("seen"))
    print_table(Table(columns, [("a", 1, 0.5, SEEN), ("longer", 12345, 1234.567, None)]))
    assert capsys.readouterr().out == (
        "name     count     price  seen\n"
        "a            1      0.50  2026-11-21 06:05:04Z\n"
        "longer  12,345  1,234.57  -\n"
    )  # fmt: skip


def test_an_empty_table_is_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table((Column("a"), number("b")), []))
    assert capsys.readouterr().out == "a  b\n"


def test_a_row_is_one_line_however_long(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_table(Table((Column("a"), Column("b")), [("x" * 300, "y z" * 300)]))
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["a", "b"]
    assert row == "x" * 300 + "  " + "y z" * 300


def test_what_users_name_is_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table((Column("a"),), [("[red]x[/red] :smile:",)]))
    assert capsys.readouterr().out == "a\n[red]x[/red] :smile:\n"


def test_times_are_in_utc() -> None:
    abroad = SEEN.astimezone(timezone(timedelta(hours=-8)))
    assert moment("at").cell(abroad) == "2026-11-21 06:05:04Z"


def test_fields_of_fields_stand_under_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"name": "x", "limits": {"low": 1, "high": {"of": 2000}}, "nothing": None, "none": []})
    assert (
        capsys.readouterr().out
        == "field           value\nname            x\nlimits.low      1\nlimits.high.of  2,000\n"
    )


@pytest.mark.parametrize(
    ("value", "words"),
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
def test_values_in_words(value: object, words: str) -> None:
    assert format_value(value) == words
