"""Local commands with `--url`: the service computes the same."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from api.server.examples import bodies
from tests.testbed.cli import Cli, Done

Compare = Callable[..., tuple[Done, Done]]


@pytest.fixture
def both(remote: Cli, service: str) -> Compare:
    """Run a command locally and on a service."""

    def run(*command: str | Path) -> tuple[Done, Done]:
        return remote(*command), remote(*command, "--url", service)

    return run


def test_a_placement_is_assessed_by_a_service(both: Compare, cli: Cli, tmp_path: Path) -> None:
    loads, others, made = tmp_path / "loads.json", tmp_path / "others.json", tmp_path / "placement.json"
    loads.write_text("[[4, 2, 1, 1], [1, 1, 1, 5]]")
    others.write_text("[[1, 1, 2, 40], [50, 1, 1, 1]]")
    assert cli("place", loads, "--slots", "6", "--gpus", "2", "--nodes", "1", "--output", made).code == 0
    here, there = both("place", "check", made, "--loads", others, "--format", "json")
    assert (here.code, here.stdout) == (there.code, there.stdout)
    assert here.code == 1, "act"
    wrong = both("place", "check", made, "--loads", others, "--window-s", "0")
    assert [each.code for each in wrong] == [2, 2]
    assert [each.refused[0].replace("--window-s", "window_s") for each in wrong] == [
        "window_s: must be above 0, got 0"
    ] * 2


def test_power_is_forecast_by_a_service(both: Compare, tmp_path: Path) -> None:
    file = tmp_path / "row.csv"
    lines = [f"2026-11-0{1 + hour // 24}T{hour % 24:02d}:00:00Z,{150_000 + 1_000 * (hour % 24)}" for hour in range(144)]
    file.write_text("\n".join(["time,watts", *lines]))
    for options in ((), ("--ahead", "day", "--step-min", "60")):
        for form in ("json", "table"):
            here, there = both("power", "forecast", file, *options, "--format", form)
            assert here.code == 0
            assert (here.code, here.stdout, here.stderr) == (there.code, there.stdout, there.stderr)


def test_results_are_merged_by_a_service(both: Compare, tmp_path: Path) -> None:
    (result,) = bodies()["import_profiles"]["results"]
    file, bad = tmp_path / result["name"], tmp_path / "bad.json"
    file.write_text(result["text"])
    bad.write_text("{}")
    command = ("profiles", "import", file, "--engine", "vllm", "--precision", "fp8")
    here, there = both(*command)
    assert (here.code, here.stdout, here.stderr) == (0, there.stdout, there.stderr)
    refused = both("profiles", "import", file, bad)
    assert [each.code for each in refused] == [2, 2]
    assert all("bad.json: is in no known format" in each.stderr for each in refused[1:])
    local = both(*command, "--gpus", file)[1]
    assert local.refused == ["--gpus is local, --url uses a service: give one of them"]


def test_coefficients_are_fitted_by_a_service(both: Compare, tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="fitting needs the extra `fit`")
    from planner.performance.aiconfigurator import COLUMNS  # noqa: PLC0415 - with scipy alone

    file = tmp_path / "points.csv"
    with file.open("w", newline="") as output:
        writer = csv.DictWriter(output, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(bodies()["fit_profiles"]["rows"])
    here, there = both("profiles", "fit", file, "--no-validate", "--date", "2026-11-21")
    assert (here.code, here.stdout) == (0, there.stdout)
