"""The systemd units in examples/, as far as a test asks for them."""

import re
from pathlib import Path

from typer.testing import CliRunner

from api.cli.app import app

EXAMPLES = Path(__file__).parents[3] / "examples"
Settings = dict[str, list[str]]


def settings_of(unit: str) -> Settings:
    """Each setting's values, in order; sections do not matter, for no setting is in two."""
    found: Settings = {}
    for line in (EXAMPLES / unit).read_text().splitlines():
        if match := re.fullmatch(r"(\w+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def arguments(settings: Settings) -> list[str]:
    """Of the program that it starts."""
    (command,) = settings["ExecStart"]
    program, *rest = command.split()
    assert Path(program).name == "fleetwright"
    return rest


def assert_known(said: list[str]) -> None:
    """The command line has every option; one that it has not would be said."""
    done = CliRunner().invoke(app, [*said, "--help"])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(app, [*said, "--unknown", "--help"]).exit_code == 2
