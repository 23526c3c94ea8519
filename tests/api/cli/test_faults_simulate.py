"""`fleetwright faults simulate`: its answer in JSON and as a table, and what it refuses."""

import json

import pytest
from typer.testing import CliRunner

from api.cli.failures import CommandError
from api.cli.faults_simulate import app

SMALL = ("--ranks", "256", "--hours", "0.03", "--seed", "5")
PROMISED = {"recall", "precision", "false_isolations", "ttd_s", "compute_s_per_window"}


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*SMALL, *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_json_holds_what_is_promised() -> None:
    answer = json.loads(_run("--scenario", "hangs", "--format", "json"))
    assert answer.keys() >= PROMISED
    low, high = answer["recall_interval"]
    assert 0.0 <= low <= answer["recall"] <= high <= 1.0
    assert all(times.keys() == {"p50", "p95", "max"} for times in answer["ttd_s"].values())
    assert answer["faults"] == sum(kind["faults"] for kind in answer["by_kind"].values())
    assert answer["compute_s_per_window"] >= 0.0


def test_people_get_a_row_per_kind_of_fault_and_what_it_means() -> None:
    told = _run("--scenario", "hangs")
    assert told.startswith("256 ranks for 0.03 h, scenario hangs, seed 5\n")
    assert "false isolations: at most" in told
    assert "95 % interval" in told


def test_without_faults_nothing_is_said_of_recall() -> None:
    answer = json.loads(_run("--scenario", "healthy", "--format", "json"))
    assert (answer["faults"], answer["recall"], answer["recall_interval"]) == (0, None, None)


@pytest.mark.parametrize(("option", "value"), [("--ranks", "1000"), ("--hours", "0"), ("--seed", "-1")])
def test_what_cannot_be_simulated_is_told_by_its_option(option: str, value: str) -> None:
    with pytest.raises(CommandError, match=option):
        CliRunner().invoke(app, [option, value], catch_exceptions=False)
