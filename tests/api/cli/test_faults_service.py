"""Faults on a service from the command line: diagnoses with their bundles, rules, and operator actions."""

from pathlib import Path

import pytest

from tests.testbed.cli import Cli
from tests.testbed.fault_bundles import bundle_text

NAMES = [value for index in range(4) for value in ("--node", f"{index}=gpu-{index}")]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "hang.jsonl"
    path.write_text(bundle_text())
    return path


def test_a_bundle_is_reported_listed_shown_and_replayed(remote: Cli, bundle: Path, tmp_path: Path) -> None:
    (made,) = remote("faults", "diagnoses", "report", bundle, "--job", "llm-7b", *NAMES, "--format", "json").json
    name = made["id"]
    assert (made["node"], made["diagnosis"]["fault"], made["job"]) == ("gpu-2", "noncomm-hang", "llm-7b")
    row = remote("faults", "diagnoses", "list").stdout.splitlines()[1]
    assert row.startswith(name)
    assert [value in row for value in ("llm-7b", "noncomm-hang", "gpu-2")] == [True] * 3
    assert remote("faults", "diagnoses", "show", name).fields["reason"] == made["diagnosis"]["reason"]
    assert remote("faults", "diagnoses", "show", name, "--format", "json").json == made
    assert remote("faults", "diagnoses", "bundle", name).stdout == bundle_text()
    saved = tmp_path / "again.jsonl"
    assert remote("faults", "diagnoses", "bundle", name, "--save", saved).code == 0
    assert saved.read_bytes() == bundle.read_bytes()
    done = remote("faults", "diagnoses", "replay", name)
    assert (done.code, done.stdout.splitlines()[1:]) == (
        0,
        ["the same, bit for bit", "the reported fault is among them"],
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--node", "gpu-2"], "--node gpu-2: expected INDEX=NAME"),
        (["--node", "2=gpu 2"], "report: nodes"),
        ([], "report: nodes: must name node 2, the node of the diagnosis"),
        ([*NAMES, "--expires-in", "-1"], "report: expires_in_s: input should be greater than or equal to 0"),
        ([*NAMES, "--job", ""], "report: job"),
    ],
)
def test_an_invalid_report_is_refused_in_one_line(cli: Cli, bundle: Path, args: list[str], message: str) -> None:
    done = cli("faults", "diagnoses", "report", bundle, "--job", "llm-7b", *args)
    assert done.code == 2
    assert message in done.refused[0]


def test_an_invalid_bundle_is_refused_locally(cli: Cli, bundle: Path) -> None:
    bundle.write_text(bundle_text().replace('"enq"', "", 1)[:-20])
    done = cli("faults", "diagnoses", "report", bundle, "--job", "llm-7b", *NAMES)
    assert (done.code, str(bundle) in done.refused[0]) == (2, True)


def test_simulations_are_created_listed_and_shown(remote: Cli, service: str) -> None:
    options = ("--ranks", "128", "--hours", "0.05", "--scenario", "healthy", "--seed", "3")
    made = remote("faults", "simulate", *options, "--url", service)
    assert made.code == 0, made.stderr
    name = made.stdout.split()[1].rstrip(",")
    assert "\n128 ranks for 0.05 h, scenario healthy, seed 3\n" in made.stdout
    (listed,) = remote("faults", "simulations", "list", "--format", "json").json
    assert (listed["id"], listed["ranks"], listed["scenario"], listed["seed"]) == (name, 128, "healthy", 3)
    row = remote("faults", "simulations", "list").stdout.splitlines()[1].split()
    assert (row[0], row[-3]) == (name, str(listed["false_isolations"]))
    shown = remote("faults", "simulations", "show", name)
    assert shown.stdout.startswith(f"simulation {name}, ")
    assert shown.stdout.partition("\n\n")[2] == made.stdout.partition("\n\n")[2]
    record = remote("faults", "simulations", "show", name, "--format", "json").json
    assert (record["request"]["hours"], record["simulation"]["faults"]) == (0.05, listed["faults"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--ranks", "100"], "--ranks: input should be a multiple of 64"),
        (["--hours", "0"], "--hours: input should be greater than or equal to"),
        (["--scenario", "sunny"], "--scenario: input should be 'healthy'"),
        (["--seed", "-1"], "--seed: expected 0 to 2,147,483,647, got -1"),
    ],
)
def test_an_invalid_request_is_refused_in_one_line(remote: Cli, service: str, args: list[str], message: str) -> None:
    done = remote("faults", "simulate", *args, "--url", service)
    assert done.code == 2
    assert message in done.refused[0]


def test_rules_are_printed_and_set(remote: Cli, tmp_path: Path) -> None:
    printed = remote("faults", "quarantine", "rules")
    assert "version " in printed.stderr
    file = tmp_path / "rules.yaml"
    assert "mode: observe\n" in printed.stdout
    file.write_text(printed.stdout.replace("rate_count: 3\n", "rate_count: 2\n"))
    done = remote("faults", "quarantine", "set", file, "--mode", "recommend")
    assert done.stdout.endswith(", mode recommend\n")
    stored = remote("faults", "quarantine", "rules", "--format", "json").json
    assert (stored["rate_count"], stored["mode"]) == (2, "recommend")
    assert (
        remote("faults", "quarantine", "set", "--mode", "observe", "--format", "json").json["rules"]["rate_count"] == 2
    )
    assert remote("faults", "quarantine", "set", "--mode", "apply", "--etag", '"1-0000000000000000"').code == 1
    file.write_text("rate_count: 0\n")
    wrong = remote("faults", "quarantine", "set", file)
    assert (wrong.code, "line 1: rate_count: input should be" in wrong.refused[0]) == (2, True)


def test_an_operator_action_needs_an_evaluation_first(remote: Cli) -> None:
    assert remote("faults", "quarantine", "show").fields["breaker"] == "closed"
    for verb in ("approve", "decline", "release", "cordon"):
        done = remote("faults", "quarantine", verb, "gpu-2")
        assert (done.code, "there is no node 'gpu-2'" in done.refused[0]) == (1, True)
    done = remote("faults", "quarantine", "reset-breaker")
    assert (done.code, "the breaker is closed" in done.refused[0]) == (1, True)
