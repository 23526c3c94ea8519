"""`fleetwright power fit`."""

import csv
import gzip
import io
from pathlib import Path

import pytest

from fleet.documents import parse_document, read_model
from power.measured_models import PowerShares
from power.measured_models.tables import Row
from tests.power.measured_models import made_up
from tests.testbed.cli import Cli


def written(path: Path, rows: list[Row]) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    return [
        written(tmp_path / "engines.csv.gz", made_up.serving_rows(noise=0.05)),
        written(tmp_path / "runs.csv", made_up.request_rows()),
        written(tmp_path / "sweep_a40.csv", made_up.limit_rows()),
    ]


def test_the_output_is_a_document_of_curves(cli: Cli, tables: list[Path]) -> None:
    done = cli("power", "fit", *tables, "--date", "2026-03-04")
    assert done.code == 0, done.stderr
    found = read_model(parse_document(done.stdout, name="stdout"), PowerShares)
    assert str(found.clock.date) == "2026-03-04"
    assert found.clock.source == "Zeus summary: sweep_a40.csv"
    assert {engine.gpu for engine in found.engines} == {"H100-SXM", "A100-80GB-SXM"}


def test_every_fit_error_is_reported(cli: Cli, tables: list[Path]) -> None:
    stderr_text = cli("power", "fit", *tables).stderr
    assert "engines.csv.gz: ML.ENERGY leaderboard, 48 rows" in stderr_text
    assert "H100-SXM: power of a model not measured, by batch and size: off by" in stderr_text
    assert "A40: training time by power limit, jobs held out: off by" in stderr_text
    assert "A100-80GB-SXM: prompt time of 1 engines: mean error" in stderr_text


def test_a_written_file_is_extended_by_a_second_fit(cli: Cli, tables: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "curves.yaml"
    assert cli("power", "fit", tables[0], "--out", out).code == 0
    again = cli("power", "fit", tables[2], "--base", out, "--format", "json")
    assert {engine["gpu"] for engine in again.json["engines"]} == {"H100-SXM"}
    assert again.json["sweeps"][0]["name"] == "A40"


def test_invalid_tables_are_reported(cli: Cli, tmp_path: Path) -> None:
    wrong = [{**row, "average_power": "-7"} if at == 1 else row for at, row in enumerate(made_up.limit_rows())]
    refused = {
        written(tmp_path / "watts_a40.csv", list(wrong)): "line 3: average_power: must be a number above 0",
        written(tmp_path / "one_a40.csv", made_up.limit_rows()[:1]): "must have at least 3 rows to fit a curve, got 1",
        written(tmp_path / "less_a40.csv", [{"dataset": "", "network": "", "batch_size": "", "optimizer": ""}] * 3): (
            "power_limit: is a missing column of a table of the kind Zeus summary"
        ),
        written(tmp_path / "other.csv", [{"a": "1"}] * 3): "is no table that is known",
    }
    for path, message in refused.items():
        done = cli("power", "fit", path)
        assert done.code == 2
        assert any(message in line for line in done.stderr.splitlines()), done.stderr


def test_an_unreadable_file_is_reported(cli: Cli, tmp_path: Path) -> None:
    broken = tmp_path / "half.csv.gz"
    broken.write_bytes(gzip.compress(b"a,b\n1,2\n")[:12])
    assert cli("power", "fit", tmp_path / "none.csv").code == 2
    assert "is no CSV text" in cli("power", "fit", broken).stderr
