"""`fleetwright faults simulate`: its output in JSON and as a table, and refusals."""

import contextlib
import io
import json

import pytest
from typer.testing import CliRunner

from api.cli.common.errors import CommandError
from api.cli.faults.simulate import app, print_score
from faults.simulator import simulate

SMALL = ("--ranks", "256", "--hours", "0.03", "--seed", "5")
CONTRACT_KEYS = {"recall", "precision", "false_isolations", "ttd_s", "compute_s_per_window"}


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*SMALL, *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_json_has_the_keys_of_the_contract() -> None:
    answer = json.loads(_run("--scenario", "hangs", "--format", "json"))
    assert answer.keys() >= CONTRACT_KEYS
    low, high = answer["recall_interval"]
    assert 0.0 <= low <= answer["recall"] <= high <= 1.0
    assert all(times.keys() == {"p50", "p95", "max"} for times in answer["ttd_s"].values())
    assert answer["faults"] == sum(kind["faults"] for kind in answer["by_kind"].values())
    assert answer["compute_s_per_window"] >= 0.0


def test_the_text_output_has_intervals_and_a_bound_on_false_isolations() -> None:
    text = _run("--scenario", "hangs")
    assert text.startswith("256 ranks for 0.03 h, scenario hangs, seed 5\n")
    assert "0 false isolations in 0.03 h: at most" in text
    assert "95 % interval" in text


def test_without_faults_the_recall_is_null() -> None:
    answer = json.loads(_run("--scenario", "healthy", "--format", "json"))
    assert (answer["faults"], answer["recall"], answer["recall_interval"]) == (0, None, None)


@pytest.mark.parametrize(
    ("option", "value", "text"),
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
def test_an_invalid_option_is_reported_by_name(option: str, value: str, text: str) -> None:
    with pytest.raises(CommandError, match=option) as caught:
        CliRunner().invoke(app, [option, value], catch_exceptions=False)
    assert text in str(caught.value)


def test_the_largest_seed_is_accepted() -> None:
    assert json.loads(_run("--scenario", "healthy", "--seed", "2147483647", "--format", "json"))["seed"] == 2**31 - 1


def test_experts_need_ranks_for_whole_groups() -> None:
    with pytest.raises(CommandError, match="multiple of 512 with groups of 8"):
        CliRunner().invoke(app, ["--scenario", "experts", "--ranks", "576"], catch_exceptions=False)


def test_the_text_mentions_hidden_faults() -> None:
    found = simulate(ranks=256, hours=0.03, scenario="hangs", seed=5, clock_s=lambda: 0.0)
    hidden = found.model_copy(update={"hidden_faults": 1, "recall_visible": 1.0, "recall_visible_interval": (0.5, 1.0)})
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print_score(hidden)
    assert "1 faults were hidden" in text.getvalue()
    assert "recall of the others 100.00% (50.0% to 100.0%)" in text.getvalue()
