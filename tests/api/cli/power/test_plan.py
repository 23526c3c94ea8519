"""`fleetwright power plan`: a tree in; clocks, budgets and headroom out; violations of a tree."""

from pathlib import Path

import pytest

from tests.testbed.cli import Cli

TREE = """
name: hall
periods: 2
period_h: 12
feeds:
- {name: ups, kind: ups, limit_w: 400000, redundancy: 2N, ride_through_share: 1.25, oversubscription: 2}
- {name: "row-[1-2]", kind: row, parent: ups, limit_w: 232000, oversubscription: 2}
groups:
- name: chat
  power_domain: row-[1-2]
  server: 8xA100-80GB BLOOM-176B
  count: 26
  priority: high
  load: {p50: [0.4, 0.7], p99: [0.5, 0.8]}
- name: batch
  power_domain: row-[1-2]
  server: 8xA100-80GB BLOOM-176B
  count: 26
  priority: low
  load: {p50: [0.4, 0.7], p99: [0.5, 0.8]}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree.yaml"
    path.write_text(TREE)
    return path


def test_a_plan_has_budgets_and_headroom(cli: Cli, tree: Path) -> None:
    answer = cli("power", "plan", tree, "--risk", "0.001", "--starts-at", "2026-11-21T00:00:00", "-o", "json").json
    assert answer["plan"]["status"] == "optimal"
    assert answer["plan"]["periods"][1]["lost_loss"] > 0 == answer["plan"]["periods"][1]["loss"]
    first = [budget for budget in answer["budgets"] if budget["valid_from_s"] == 1795219200]
    assert {budget["domain"] for budget in first} == {"ups", "row-1", "row-2"}
    assert {budget["expires_at_s"] - budget["valid_from_s"] for budget in first} == {12 * 3600}
    room = {one["feed"]: one for one in answer["room"]}
    assert room["row-1"]["capped"]["servers"]["mid"] >= room["row-1"]["uncapped"]["servers"]["mid"] > 0


def test_the_text_output_has_tables(cli: Cli, tree: Path) -> None:
    done = cli("power", "plan", tree, "--samples", "2000")
    assert done.code == 0
    assert done.stdout.startswith("hall: loss ")
    assert "more with caps" in done.stdout
    assert "\nbatch on row-1" in done.stdout


def test_an_infeasible_tree_prints_reasons_and_exits_with_1(cli: Cli) -> None:
    tight = TREE.replace("limit_w: 232000, oversubscription: 2", "limit_w: 60000, oversubscription: 9")
    done = cli("power", "plan", "-", stdin=tight.encode())
    assert done.code == 1
    assert "no budget is given, those in force stay" in done.stdout
    assert "period 1: row-1 may draw 60,000 W" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("parent: ups", "parent: ubs", "stdin: line 7: feeds[1].parent: no power domain 'ubs' in site 'hall'"),
        ("limit_w: 232000", "limit_w: 232000, budget_w: 300000", "is above the rating, allowed: 0 to 232,000 W"),
        ("limit_w: 232000", "limit_w: -1", "feeds[1].limit_w: input should be greater than 0, got -1"),
        ("limit_w: 232000, oversubscription: 2", "limit_w: 232000", "may carry 232,000 W"),
    ],
)
def test_an_invalid_tree_is_reported(cli: Cli, old: str, new: str, message: str) -> None:
    done = cli("power", "plan", "-", stdin=TREE.replace(old, new).encode())
    assert done.code == 2
    assert message in done.refused[0]


@pytest.mark.parametrize("risk", ["0", "0.7", "-1"])
def test_a_risk_out_of_range_is_reported(cli: Cli, tree: Path, risk: str) -> None:
    done = cli("power", "plan", tree, "--risk", risk)
    assert done.code == 2
    assert "--risk: must be from 1e-09 to 0.5" in done.refused[0]


def test_the_feeds_may_come_from_a_topology(cli: Cli, tmp_path: Path) -> None:
    feeds = TREE[TREE.index("- {name: ups") : TREE.index("groups:")].replace(" ride_through_share: 1.25,", "")
    power = "".join(f"    {line}\n" for line in feeds.splitlines())
    topology = tmp_path / "topology.yaml"
    topology.write_text(f"sites:\n  - name: west\n    power:\n{power}")
    rest = TREE.replace(TREE[TREE.index("feeds:") : TREE.index("groups:")], "")
    answer = cli("power", "plan", "-", "--topology", topology, "-o", "json", stdin=rest.encode()).json
    assert answer["plan"]["status"] == "optimal"
    both = cli("power", "plan", "-", "--topology", topology, stdin=TREE.encode())
    assert (both.code, "feeds: must be absent with --topology" in both.refused[0]) == (2, True)
