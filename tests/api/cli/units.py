"""Readers of the systemd units in examples/."""

import re
from pathlib import Path

from typer.testing import CliRunner

from api.cli.app import app

EXAMPLES = Path(__file__).parents[3] / "examples"
Settings = dict[str, list[str]]


def settings_of(unit: str) -> Settings:
    """Each setting's values in order.  Section names are ignored: no setting is in two sections."""
    found: Settings = {}
    for line in (EXAMPLES / unit).read_text().splitlines():
        if match := re.fullmatch(r"(\w+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def arguments(settings: Settings) -> list[str]:
    """The arguments of the program that the unit starts."""
    (command,) = settings["ExecStart"]
    program, *rest = command.split()
    assert Path(program).name == "fleetwright"
    return rest


def assert_known(argv: list[str]) -> None:
    """Assert that the command line has every option and refuses an unknown one."""
    done = CliRunner().invoke(app, [*argv, "--help"])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(app, [*argv, "--unknown", "--help"]).exit_code == 2
