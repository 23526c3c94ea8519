"""Errors of `fleetwright guard` for an invalid file; other tests run it with agents."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.cli import Cli

GOOD = {"row": "r", "settings": {"rating_w": 1000.0}, "agents": [{"name": "a", "url": "http://x:1"}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"rating_w": -5.0}}, "settings.rating_w: input should be greater than 0, got -5.0"),
        ({"settings": {"rating_w": 100.0, "standing_w": 200.0}}, "standing_w: must be at most rating_w (100), got 200"),
        ({"policy": "laddr"}, "policy: must be one of none, threshold-low, threshold-all, polca, ladder, got 'laddr'"),
        ({"budgets_from": {"url": "x"}}, "budgets_from.url: string should match pattern"),
        ({"budgets_from": {"url": "http://x", "every_s": 0}}, "budgets_from.every_s: input should be greater than or"),
        ({"lease_s": 1.0}, "lease_s: must be at least two periods (4 s), got 1"),
        ({"answer_s": 1.5}, "answer_s: must be at most half a period (1 s), got 1.5"),
        ({"agents": [{"name": "a", "url": "ftp://x"}]}, "agents[0].url: string should match pattern"),
        ({"agents": [{"name": "a", "url": "http://x"}] * 2}, "agents[1].name: 'a' is there twice"),
        ({"agents": [{"name": "a", "url": "http://x", "model": "M"}]}, "agents[0].model: unknown model 'M'; known: 8x"),
    ],
)
def test_an_invalid_file_is_refused_by_field(cli: Cli, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = tmp_path / "guard.json"
    file.write_text(json.dumps(GOOD | change))
    done = cli("guard", "--config", file)
    assert done.code == 2
    (line,) = done.refused
    assert message in line


def test_an_unusable_address_and_missing_token_files_are_reported(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "guard.json"
    file.write_text(json.dumps(GOOD))
    done = cli("guard", "--config", file, "--host", "192.0.2.1")  # TEST-NET-1: on no machine
    assert done.code == 2
    assert "cannot listen on 192.0.2.1 port 9402" in done.refused[0]
    done = cli("agent", "n", "--device", "simulated", "--port", "0", "--token-file", tmp_path / "none")
    assert (done.code, done.refused) == (2, [f"{tmp_path / 'none'}: No such file or directory"])
    for field in ("agent_token_file", "budget_token_file"):
        file.write_text(json.dumps(GOOD | {field: str(tmp_path / "none")}))
        assert cli("guard", "--config", file).refused == done.refused
    file.write_text(json.dumps(GOOD | {"budgets_from": {"url": "http://x:1", "token_file": str(tmp_path / "none")}}))
    assert cli("guard", "--config", file).refused == done.refused


def test_an_agent_on_a_public_address_requires_a_token(cli: Cli) -> None:
    done = cli("agent", "n", "--device", "simulated", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "--host 0.0.0.0: needs --token-file too" in done.refused[0]


def test_the_guard_loads_neither_service_nor_database_nor_solver() -> None:
    code = "import sys, api.cli.power.guard; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & {"sqlalchemy", "alembic", "aiosqlite", "pulp", "highspy", "ray", "kubernetes", "planner"}
    assert "power" in loaded
