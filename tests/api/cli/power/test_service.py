"""Power on a service from the command line: trees, budgets, simulations and plans of caps."""

import json
from pathlib import Path

import pytest

from tests.testbed.cli import Cli

TREE = """\
name: north
periods: 2
feeds:
  - {name: pdu-1, kind: pdu, limit_w: 500000}
  - {name: row-1, kind: row, parent: pdu-1, limit_w: 200000, oversubscription: 2}
groups:
  - name: chat
    power_domain: row-1
    server: 8xA100-80GB BLOOM-176B
    count: 40
    priority: low
    load: {p50: 0.5, p99: 0.8}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree.yaml"
    path.write_text(TREE)
    return path


class TestTrees:
    def test_a_tree_is_checked_locally(self, cli: Cli, tree: Path) -> None:
        rows = cli("power", "trees", "check", tree).stdout.splitlines()
        assert [row.split()[0] for row in rows] == ["feed", "pdu-1", "row-1"]
        assert rows[2].split() == ["row-1", "row", "pdu-1", "N", "200,000", "-", "40"]
        assert cli("power", "trees", "check", tree, "--format", "json").json["servers"] == 40

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("limit_w: 200000", "limit_w: 600000", "line 4: feeds[0].limit_w: pdu 'pdu-1' may carry 500,000 W"),
            ("limit_w: 200000", "limit_w: -1", "line 5: feeds[1].limit_w: input should be greater than 0, got -1"),
            ("limit_w: 200000", "limit_w: 200000, budget_w: 200001", "above the rating, allowed: 0 to 200,000 W"),
            ("power_domain: row-1", "power_domain: row-9", "row-1"),
        ],
    )
    def test_an_invalid_tree_is_reported_in_one_line(
        self, cli: Cli, tree: Path, old: str, new: str, message: str
    ) -> None:
        tree.write_text(TREE.replace(old, new))
        for verb in ("check", "push"):
            done = cli("power", "trees", verb, tree)
            assert done.code == 2
            assert message in done.refused[0]

    def test_a_tree_is_pushed_pulled_and_deleted(self, remote: Cli, tree: Path) -> None:
        first = remote("power", "trees", "push", tree, "--format", "json").json
        second = remote("power", "trees", "push", tree)
        assert (first["name"], second.stdout.startswith('power tree north: version "2-')) == ("north", True)
        assert remote("power", "trees", "list").stdout.splitlines()[1].split() == ["north", "2", "2", "40"]
        stale = remote("power", "trees", "push", tree, "--etag", first["etag"])
        assert stale.code == 1
        pulled = remote("power", "trees", "pull", "north")
        assert "version " in pulled.stderr
        tree.write_text(pulled.stdout)
        assert remote("power", "trees", "check", tree).code == 0
        assert remote("power", "trees", "delete", "north").stdout == "power tree north is deleted\n"
        assert remote("power", "trees", "list", "--format", "json").json == []


def test_budgets_are_set_refused_and_withdrawn(remote: Cli, tree: Path) -> None:
    remote("power", "trees", "push", tree)
    made = remote("power", "budgets", "set", "row-1", "190000", "--for-minutes", "5", "--format", "json").json
    assert (made["domain"], made["budget"]["limit_w"]) == ("row-1", 190_000.0)
    wrong = {
        ("row-1", "200001"): "limit_w: is above the rating of 'row-1'; allowed: 0 to 200,000 W, got 200,001",
        ("row-7", "5"): "unknown power domain 'row-7'; nearest: row-1",
        ("row-1", "--", "-5"): "limit_w: input should be greater than or equal to 0, got -5.0",
        ("row-1", "5", "--for-minutes", "0"): "expires_at: allowed: after ",
        ("row-1", "5", "--for-minutes", "nan"): "--for-minutes: must be above 0 and at most a week, got nan",
    }
    for arguments, message in wrong.items():
        done = remote("power", "budgets", "set", *arguments)
        assert done.code == 2, arguments
        assert message in done.refused[0]
    listed = remote("power", "budgets", "list").stdout.splitlines()[1].split()
    assert (listed[0], listed[1], listed[4]) == ("row-1", "190,000", "yes")
    assert remote("power", "budgets", "show", "row-1").fields["budget.limit_w"] == "190,000"
    held = remote("power", "trees", "delete", "north")
    assert (held.code, "delete that before the domain goes" in held.refused[0]) == (2, True)
    assert remote("power", "budgets", "withdraw", "row-1").stdout == "the budget of row-1 is withdrawn\n"
    assert remote("power", "budgets", "show", "row-1").code == 1
    remote("power", "trees", "delete", "north")


def test_simulations_are_created_listed_and_shown(remote: Cli, service: str, tmp_path: Path) -> None:
    policy = ("--policy", "threshold-all")
    row = ("--servers", "8", "--budget-servers", "6", *policy, "--days", "0.02", "--seed", "1", "--url", service)
    made = remote("power", "simulate", *row)
    assert made.code == 0, made.stderr
    name = made.stdout.split()[1].rstrip(",")
    listed = remote("power", "simulations", "list", "--format", "json").json
    assert [(one["id"], one["servers"], one["policy"]) for one in listed] == [(name, 8, "threshold-all")]
    assert f"\n{name} " in remote("power", "simulations", "list").stdout
    shown = remote("power", "simulations", "show", name).stdout
    assert shown.startswith(f"simulation {name}, ")
    assert made.stdout == shown
    record = remote("power", "simulations", "show", name, "--format", "json").json
    assert (record["request"]["days"], record["simulation"]["brakes"]) == (0.02, listed[0]["brakes"])
    trace = tmp_path / "trace.csv"
    trace.write_text("time,input_tokens,output_tokens\n0,100,10\n1,200,20\n3,150,15\n")
    traced = remote("power", "simulate", *row, "--trace", trace, "--format", "json").json
    assert [len(each["arrival_s"]) for each in traced["request"]["traces"]] == [3]
    drawn = remote("power", "simulate", *row, "--plot", tmp_path / "row.png")
    assert (drawn.code, drawn.refused) == (2, ["--plot: needs a local simulation, without --url"])


def test_plans_are_created_listed_and_shown(remote: Cli, service: str, tree: Path, tmp_path: Path) -> None:
    remote("power", "trees", "push", tree)
    made = remote("power", "plan", "north", "--risk", "0.01", "--url", service, "--format", "json").json
    assert (made["plan"]["status"], made["plan"]["risk"]) == ("optimal", 0.01)
    row = remote("power", "plans", "list").stdout.splitlines()[1].split()
    assert (row[0], row[4], row[6], row[7]) == (made["id"], "north", "0.01", "optimal")
    shown = remote("power", "plans", "show", made["id"]).stdout
    assert shown.startswith(f"plan {made['id']}, ")
    assert "\nnorth: loss 0 servers (gap 0.00 %), risk 0.01, no feed binds\n" in shown
    here = remote("power", "plan", tree, "--risk", "0.01").stdout
    assert shown.partition("\n\n")[2].strip() in here  # the same output as of the service
    (kept,) = remote("power", "trees", "list", "--format", "json").json
    assert remote("power", "plans", "list", "--format", "json").json[0]["tree_version"] == kept["version"]
    tight = {
        "name": "tight",
        "periods": 1,
        "feeds": [{"name": "row-2", "kind": "row", "limit_w": 300_000, "budget_w": 50_000}],
        "groups": [
            {
                "name": "chat",
                "power_domain": "row-2",
                "server": "8xA100-80GB BLOOM-176B",
                "count": 40,
                "priority": "low",
                "load": {"p50": 0.5},
            }
        ],
    }
    path = tmp_path / "tight.json"
    path.write_text(json.dumps(tight))
    impossible = remote("power", "plan", path, "--url", service)
    assert impossible.code == 1
    assert "row-2 may draw 50,000 W" in impossible.stdout
    remote("power", "trees", "delete", "north")
