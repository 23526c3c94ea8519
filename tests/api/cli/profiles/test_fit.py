"""`fleetwright profiles fit`."""

import csv
from pathlib import Path

import pytest

from fleet.documents import parse_document, read_model
from planner.performance.coefficients import Coefficients
from tests.planner.performance.synthetic_points import row, rows
from tests.testbed.cli import Cli

pytest.importorskip("scipy", reason="fitting needs the extra `fit`")


FORMS = ("yaml", "json")


@pytest.fixture
def points(tmp_path: Path) -> Path:
    return written(tmp_path / "points.csv", [*rows(noise=0.1), row(mode="disagg"), row(system="abacus", isl=7)])


def written(path: Path, found: list[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, found[0])
        writer.writeheader()
        writer.writerows(found)
    return path


def test_the_output_is_a_coefficients_file(cli: Cli, points: Path) -> None:
    done = cli("profiles", "fit", str(points), "--no-validate", "--date", "2026-03-04", "--source", "a bench")
    found = read_model(parse_document(done.stdout, name="stdout"), Coefficients)
    assert done.code == 0
    assert (str(found.fitted), found.source, found.points) == ("2026-03-04", "a bench", 162)
    assert sum(found.rejected.values()) == 2
    assert "162 points to fit" in done.stderr
    assert "1 rows left out: the catalogue holds no such GPU or model" in done.stderr


def test_the_fit_writes_a_file_and_measures_errors_by_default(cli: Cli, points: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    done = cli("profiles", "fit", str(points), "--out", str(out))
    found = read_model(parse_document(out.read_text(encoding="utf-8"), name="out"), Coefficients)
    assert (done.code, done.stdout) == (0, "")
    assert [error.split for error in found.errors][:2] == ["random", "curves"]
    assert "without B200, 54 held-out points: TPOT off by" in done.stderr


def test_json_and_yaml_output_read_back_equal(cli: Cli, points: Path) -> None:
    options = ("profiles", "fit", str(points), "--no-validate", "--date", "2026-03-04")
    found = [read_model(parse_document(cli(*options, "-o", form).stdout, name=form), Coefficients) for form in FORMS]
    assert found[0] == found[1]


def test_too_few_points_are_refused(cli: Cli, tmp_path: Path) -> None:
    few = written(tmp_path / "few.csv", [row(id="a"), row(id="b", isl=7)])
    done = cli("profiles", "fit", str(few))
    assert (done.code, done.stdout) == (2, "")
    assert "2 points can be used, expected at least 100" in done.stderr


def test_a_missing_column_is_reported(cli: Cli, tmp_path: Path) -> None:
    bare = written(tmp_path / "bare.csv", [{"id": "a", "isl": "1"}])
    done = cli("profiles", "fit", str(bare))
    assert (done.code, done.stdout) == (2, "")
    assert "bare.csv: osl: is a missing column" in done.stderr


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b'id,isl\n"never closed'])
def test_an_invalid_table_is_refused(cli: Cli, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.csv"
    path.write_bytes(content)
    done = cli("profiles", "fit", str(path))
    assert (done.code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_a_missing_file_and_an_invalid_date_are_reported(cli: Cli, points: Path, tmp_path: Path) -> None:
    missing = cli("profiles", "fit", str(tmp_path / "none.csv"))
    assert (missing.code, missing.stdout) == (2, "")
    assert "none.csv: No such file" in missing.stderr
    day = cli("profiles", "fit", str(points), "--date", "yesterday")
    assert day.code == 2
    assert "--date: 'yesterday' is no day" in day.stderr
