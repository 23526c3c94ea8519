"""Provides the command line in this process and as a separate process."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
import stamina

from api.cli import main
from tests.testbed.logs import logging_put_back

COMMAND = (sys.executable, "-m", "api.cli")


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        assert self.code == 0, self.stderr
        return json.loads(self.stdout)

    @property
    def fields(self) -> dict[str, str]:
        """The first table on stdout, field by field."""
        assert self.code == 0, self.stderr
        rows = self.stdout.partition("\n\n")[0].splitlines()
        return dict(row.split(maxsplit=1) for row in rows)

    @property
    def refused(self) -> list[str]:
        """The lines of a failure: nothing on stdout, every line on stderr under the program's name."""
        assert self.stdout == ""
        lines = self.stderr.splitlines()
        assert lines
        assert all(line.startswith("fleetwright: ") for line in lines), self.stderr
        return [line.removeprefix("fleetwright: ") for line in lines]


class Cli(Protocol):
    """Runs one command."""

    def __call__(self, *args: str | Path, stdin: bytes = b"") -> Done: ...


class Shell(Protocol):
    """Runs one command in a separate process with only the given environment."""

    def __call__(self, *args: str | Path, **environment: str) -> Done: ...


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """The command line in this process: fast, for tests that need no separate process."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer sets its own

    def run(*args: str | Path, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["fleetwright", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Done(code, captured.out, captured.err)

    with logging_put_back():
        yield run
    stamina.instrumentation.set_on_retry_hooks(None)


@pytest.fixture
def bare_environment(tmp_path: Path) -> Mapping[str, str]:
    """An environment without settings."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}


@pytest.fixture
def shell(bare_environment: Mapping[str, str], tmp_path: Path) -> Shell:
    """The command line as a process."""

    def run(*args: str | Path, **environment: str) -> Done:
        done = subprocess.run(
            [*COMMAND, *map(str, args)],
            env={**bare_environment, **environment},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run
