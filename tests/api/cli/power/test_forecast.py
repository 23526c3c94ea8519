"""`fleetwright power forecast`."""

import json
from pathlib import Path

import pytest

from tests.power.forecast.rows import STEP_S, row
from tests.testbed.cli import Cli


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of a row's readings."""
    path = tmp_path_factory.mktemp("row") / "row.csv"
    watts = row(hours=2, seed=7).watts
    path.write_text("time,watts\n" + "".join(f"{i * STEP_S:g},{row_w:.0f}\n" for i, row_w in enumerate(watts)))
    return path


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two weeks of a row's readings, one per 5 minutes, from a Monday at 06:00."""
    path = tmp_path_factory.mktemp("weeks") / "weeks.csv"
    watts = row(hours=24, seed=8).watts[::150].tolist()
    times = (f"2026-11-{2 + (6 + i // 12) // 24:02d}T{(6 + i // 12) % 24:02d}:{i % 12 * 5:02d}:00" for i in range(4032))
    path.write_text("time,watts\n" + "".join(f"{time},{watts[i % 288]:.0f}\n" for i, time in enumerate(times)))
    return path


def test_short_term_quantiles_are_reported_with_their_coverage(cli: Cli, metered: Path) -> None:
    done = cli("power", "forecast", metered, "-o", "json")
    assert done.code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [each["horizon_s"] for each in answer["horizons"]] == [2, 4, 10, 20, 40]
    for each in answer["horizons"]:
        assert list(each["rise_w"]) == ["0.5", "0.9", "0.99", "0.999"]
        assert sorted(each["rise_w"].values()) == list(each["rise_w"].values())
    assert answer["horizons"][0]["coverage"]["0.9"] == pytest.approx(0.9, abs=0.03)


def test_the_forecast_as_a_table(cli: Cli, metered: Path) -> None:
    done = cli("power", "forecast", metered)
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "HORIZON",
        "0.5",
        "0.9",
        "0.99",
        "0.999",
        *["BELOW", "0.5", "BELOW", "0.9", "BELOW", "0.99", "BELOW", "0.999"],
    ]
    assert [line.split()[0] for line in lines[1:]] == ["2", "4", "10", "20", "40"]
    assert "may exceed the last one" in done.stderr


def test_a_short_series_has_no_coverage(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("time,watts\n0,100000\n2,101000\n4,99000\n")
    done = cli("power", "forecast", path, "-o", "json")
    horizons = json.loads(done.stdout)["horizons"]
    assert [each["coverage"] for each in horizons] == [None] * 5
    assert horizons[0]["rise_w"]["0.999"] == pytest.approx(0.12 * 99_000)
    assert "BELOW" not in cli("power", "forecast", path).stdout


@pytest.mark.parametrize(("minutes", "steps"), [("5", 288), ("15", 96)])
def test_the_next_day_is_forecast_by_steps(cli: Cli, weeks: Path, minutes: str, steps: int) -> None:
    done = cli("power", "forecast", weeks, "--ahead", "day", "--step-min", minutes, "-o", "json")
    assert done.code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["step_s"], len(answer["steps"]), answer["past_days"]) == (60 * int(minutes), steps, 14)
    assert answer["steps"][0]["second_of_day"] == 6 * 3600
    assert cli("power", "forecast", weeks, "--ahead", "day").stdout.splitlines()[1].startswith("06:00")


def test_forecast_peaks_lie_above_forecast_means(cli: Cli, weeks: Path) -> None:
    middle = {
        of: [
            step["watts"]["0.5"]
            for step in json.loads(
                cli("power", "forecast", weeks, "--ahead", "day", "--of", of, "--step-min", "15", "-o", "json").stdout
            )["steps"]
        ]
        for of in ("mean", "peak")
    }
    assert sum(middle["peak"]) > sum(middle["mean"])


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("time,watts\n0,1\n2,-1\n", (), "line 3: watts: expected a number from 0"),
        ("time,watts\n0,1\n2,1\n", ("--ahead", "day"), "must have at least 4 whole days"),
        ("time,watts\n0,1\n2,1\n", ("--ahead", "day", "--step-min", "7"), "step_s: must be a part of a day"),
    ],
)
def test_invalid_input_is_reported(
    cli: Cli, tmp_path: Path, text: str, arguments: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "row.csv"
    path.write_text(text)
    done = cli("power", "forecast", path, *arguments)
    assert done.code == 2
    assert message in done.stderr
    assert done.stdout == ""
