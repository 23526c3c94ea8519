"""The agent's unit in examples/: options that the program has, a secret, a state file it may write, time to end."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli.app import app
from deploy.gpu.keeper import RESTORE_TRIES, SETTLE_PERIODS
from deploy.gpu.node import STALE_PERIODS

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "examples" / "fleetwright-agent.service"
SLOWEST_S = 2.0  # period of looks, that of a BMC


@pytest.fixture
def settings() -> dict[str, list[str]]:
    """Each setting's values, in order; sections do not matter, for no setting is in two."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if match := re.fullmatch(r"(\w+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def arguments(settings: dict[str, list[str]]) -> list[str]:
    (command,) = settings["ExecStart"]
    program, *rest = command.split()
    assert Path(program).name == "fleetwright"
    return rest


def test_the_command_line_knows_every_argument(settings: dict[str, list[str]]) -> None:
    done = CliRunner().invoke(app, [*arguments(settings), "--help"])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(app, [*arguments(settings), "--unknown", "--help"]).exit_code == 2


def test_it_acts_only_for_who_has_the_secret_and_remembers_where_it_may_write(settings: dict[str, list[str]]) -> None:
    said = arguments(settings)
    assert "--act" in said
    (credential,) = settings["LoadCredential"]
    assert said[said.index("--token-file") + 1] == f"%d/{credential.partition(':')[0]}"
    folder = Path(said[said.index("--state-file") + 1]).parent
    assert folder == Path("%S") / settings["StateDirectory"][0]
    assert settings["ProtectSystem"] == ["strict"]


def test_it_has_time_to_put_caps_back(settings: dict[str, list[str]]) -> None:
    longest_s = STALE_PERIODS * SLOWEST_S + 5.0 + RESTORE_TRIES * SETTLE_PERIODS * SLOWEST_S
    assert int(settings["TimeoutStopSec"][0]) >= longest_s
