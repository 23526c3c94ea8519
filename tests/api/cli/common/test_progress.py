"""The bar of a call without a job: only on a terminal, and only once the call takes longer than a second."""

import io
import re

import pytest
from rich.console import Console

from api.cli.common import progress
from tests.testbed.waiting import wait_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(terminal: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    console = Console(file=terminal, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "Console", lambda **_options: console)
    return terminal


def test_a_long_call_shows_its_time(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    with progress.waiting("checking the audit"):
        wait_for(lambda: "checking the audit" in shown(terminal), what="bar")


def test_a_short_call_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_S", 60.0)
    with progress.waiting("checking the audit"):
        pass
    assert terminal.getvalue() == ""


def test_an_output_that_is_no_terminal_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.waiting("checking the audit"):
        pass
    assert capsys.readouterr().err == ""
