"""`fleetwright faults simulate`: its answer in JSON and as a table, and what it refuses."""

import contextlib
import io
import json

import pytest
from typer.testing import CliRunner

from api.cli.common.errors import CommandError
from api.cli.faults.simulate import app, print_score
from faults.simulator import simulate

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
    assert "0 false isolations in 0.03 h: at most" in told
    assert "95 % interval" in told


def test_without_faults_nothing_is_said_of_recall() -> None:
    answer = json.loads(_run("--scenario", "healthy", "--format", "json"))
    assert (answer["faults"], answer["recall"], answer["recall_interval"]) == (0, None, None)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--ranks", "1000", "expected a multiple of 64 from 128 to 131,072, got 1000; nearest: 960 or 1,024"),
        ("--ranks", "64", "expected a multiple of 64 from 128 to 131,072, got 64"),
        ("--hours", "0", "expected from a minute"),
        ("--seed", "-1", "expected 0 to 2,147,483,647, got -1"),
        ("--seed", "2147483648", "expected 0 to 2,147,483,647, got 2147483648"),
        ("--scenario", "congested", "unknown scenario 'congested'; nearest: congestion"),
        ("--scenario", "zzz", "nearest: healthy, mixed"),
    ],
)
def test_what_cannot_be_simulated_is_told_by_its_option(option: str, value: str, told: str) -> None:
    with pytest.raises(CommandError, match=option) as caught:
        CliRunner().invoke(app, [option, value], catch_exceptions=False)
    assert told in str(caught.value)


def test_the_largest_seed_is_one() -> None:
    assert json.loads(_run("--scenario", "healthy", "--seed", "2147483647", "--format", "json"))["seed"] == 2**31 - 1


def test_experts_need_ranks_for_whole_groups() -> None:
    with pytest.raises(CommandError, match="multiple of 512 with groups of 8"):
        CliRunner().invoke(app, ["--scenario", "experts", "--ranks", "576"], catch_exceptions=False)


def test_the_text_mentions_hidden_faults() -> None:
    found = simulate(ranks=256, hours=0.03, scenario="hangs", seed=5, clock_s=lambda: 0.0)
    hidden = found.model_copy(update={"hidden_faults": 1, "recall_visible": 1.0, "recall_visible_interval": (0.5, 1.0)})
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        print_score(hidden)
    assert "1 faults were hidden" in told.getvalue()
    assert "recall of the others 100.00% (50.0% to 100.0%)" in told.getvalue()
