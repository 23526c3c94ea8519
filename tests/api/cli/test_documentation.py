"""docs/cli.md: every example there has just been run, and every command there exists.

A block of `console` is run as it stands and must print what stands below each command.  A block of YAML that begins
with a file's name is that file.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.cli.conftest import Cli

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "cli.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SOLVING_TIME = re.compile(r"(solved|simulated) in [\d.]+ s")


def blocks(language: str) -> Iterator[str]:
    """What stands in the page in one language."""
    yield from (text for found, text in BLOCK.findall(PAGE.read_text()) if found == language)


def commands() -> Iterator[list[str]]:
    """Every call of the program in the page, as words."""
    for text in (*blocks("sh"), *blocks("console")):
        for line in text.splitlines():
            for part in re.split(r"[|>]", line.removeprefix("$ ")):
                if part.split()[:1] == ["fleetwright"]:
                    yield shlex.split(part)[1:]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the page's files, the examples and the program, in which its blocks are run in turn."""
    directory = tmp_path_factory.mktemp("page")
    for text in blocks("yaml"):
        name, _, content = text.partition("\n")
        (directory / name.removeprefix("# ")).write_text(content)
    (directory / "examples").symlink_to(ROOT / "examples")
    program = directory / "bin" / "fleetwright"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m api.cli "$@"\n')
    program.chmod(0o755)
    return directory


@pytest.mark.parametrize("block", list(blocks("console")))
def test_an_example_prints_what_the_page_says(block: str, place: Path) -> None:
    lines = block.splitlines(keepends=True)
    script = "".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    expected = "".join(line for line in lines if not line.startswith("$ "))
    environment = {"PATH": f"{place}/bin:{os.environ['PATH']}", "HOME": str(place)}
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"],
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert SOLVING_TIME.sub("", done.stdout) == SOLVING_TIME.sub("", expected)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_a_command_of_the_page_exists_with_its_options(words: list[str], cli: Cli) -> None:
    options = [word for word in words if word.startswith("--")]
    first = next((position for position, word in enumerate(words) if word.startswith("-")), len(words))
    shown = next(done for length in range(first, -1, -1) if (done := cli(*words[:length], "--help")).code == 0)
    assert "COMMAND [ARGS]..." not in shown.stdout or not words[:first]
    assert all(option in shown.stdout for option in options)
