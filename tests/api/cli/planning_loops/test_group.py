"""`fleetwright planning-loops` against a service."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent

import pytest

from api.client import Client
from api.schemas.planning_loops import PlanningLoopStatus
from api.server.examples import bodies
from tests.api.cli.samples import REQUEST, TARGET
from tests.testbed.cli import Cli
from tests.testbed.server import ADMIN_TOKEN

DEMAND = """\
demand:
  sources:
    - kind: prometheus
      url: http://prometheus:9090
      profile: vllm
      parts: {H100: {model_name: llama}}
"""
LOOP = f"request:\n{indent(REQUEST, '  ')}targets: {{chat: chat}}\n"


@pytest.fixture
def loop(remote: Cli, tmp_path: Path) -> Iterator[str]:
    """A planning loop with its target, deleted after the test."""
    (tmp_path / "target.yaml").write_text(TARGET + DEMAND)
    (tmp_path / "loop.yaml").write_text(LOOP)
    assert remote("targets", "put", "chat", tmp_path / "target.yaml").code == 0
    made = remote("planning-loops", "put", "chat", tmp_path / "loop.yaml")
    assert (made.code, made.fields["mode"], made.fields["targets.chat"]) == (0, "observe", "chat"), made.stderr
    yield "chat"
    remote("planning-loops", "delete", "chat")
    remote("targets", "delete", "chat")


def test_a_loop_is_listed_shown_changed_and_deleted(remote: Cli, loop: str) -> None:
    assert remote("planning-loops", "list").stdout.splitlines()[1].split() == [
        *("chat", "observe", "chat", "no", "report", "yet", "-", "-", "-")
    ]
    assert remote("planning-loops", "set", loop, "--mode", "recommend").fields["mode"] == "recommend"
    shown = remote("planning-loops", "show", loop, "-o", "json").json
    assert (shown["version"], shown["spec"]["request"]["workloads"][0]["rate_rps"]) == (2, 10.0)
    assert remote("planning-loops", "delete", loop).stdout == "planning loop chat is deleted\n"
    missing = remote("planning-loops", "show", loop)
    assert (missing.code, "there is no planning loop 'chat'" in missing.refused[0]) == (1, True)


def test_the_status_shows_demand_decision_and_drift(remote: Cli, loop: str, service: str) -> None:
    nothing = remote("planning-loops", "status", loop)
    assert (nothing.code, nothing.stdout) == (0, "")
    assert "no report yet" in nothing.stderr
    example = bodies()["put_planning_loop_status"]
    demand = example["demand"]["chat"]
    tokens = {"mean": 1012.4, "p50": 800, "p99": 4100, "p99_at_least": 4000, "p99_at_most": 5000}
    report = example | {
        "phase": "holding",
        "observed_at": datetime.now(UTC).isoformat(),
        "message": "the last decision stays",
        "problems": ["chat: no samples"],
        "demand": {"chat": demand | {"input_tokens": tokens, "kv_usage": 0.624, "queued": 1.5}},
    }
    with Client(service, token=ADMIN_TOKEN) as client:
        client.report_planning_loop_status(loop, PlanningLoopStatus.model_validate(report))
    shown = remote("planning-loops", "status", loop)
    assert (shown.fields["phase"], shown.fields["message"]) == ("holding", "the last decision stays")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["problem:", "chat:", "no", "samples"] in lines
    chat = ["chat", "10.20", "10.10", "12.40", "1,012", "4,100", "-", "-", "-", "-", "-", "1.5", "62"]
    assert chat in lines
    assert ["chat", "H100", "3"] in lines
    assert lines[-1] == ["H100", "1.040", "-", "0.970", "no"]
    row = remote("planning-loops", "list").stdout.splitlines()[1]
    assert "holding" in row
    assert "chat 3 H100" in row


def test_a_wrong_loop_is_refused_by_field(remote: Cli, tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").write_text(LOOP.replace("{chat: chat}", "{search: chat}"))
    done = remote("planning-loops", "put", "x", tmp_path / "loop.yaml")
    assert done.code == 2
    assert any("targets.search: allowed: chat" in line for line in done.refused), done.refused
