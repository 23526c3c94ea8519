"""The pages under docs/: every example prints what the page shows, and every command exists with its options.

A block of `console` that begins with `$ ` runs as it is; its other lines are the output.  Blocks of a page run in
order in one directory.  A block of YAML that begins with a file name in a comment is written to that file.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.cli import Cli

ROOT = Path(__file__).parents[2]
GENERATED = {ROOT / "docs" / "reference" / name for name in ("cli.md", "api.md")}
PAGES = sorted(set((ROOT / "docs").rglob("*.md")) - GENERATED)
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w.-]+\.(?:yaml|json))\n")
SOLVING_TIME = re.compile(r"(solved|simulated|explained) in [\d.]+ s")


def blocks(page: Path, language: str) -> Iterator[str]:
    """The blocks of a page in one language."""
    for indent, found, text in BLOCK.findall(page.read_text()):
        if found == language:
            yield re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)


def executed(page: Path) -> list[str]:
    """The blocks of a page that run."""
    return [text for text in blocks(page, "console") if text.startswith("$ ")]


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of every call of the program on the page."""
    for text in (*blocks(page, "sh"), *blocks(page, "console")):
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"[|>&;()]|<\(", line.removeprefix("$ ")):
                if part.split()[:1] == ["fleetwright"]:
                    yield shlex.split(part, comments=True)[1:]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """For each page with examples: a directory with its files, the examples and the program."""
    found = {}
    for page in PAGES:
        if not executed(page):
            continue
        directory = found[page] = tmp_path_factory.mktemp("page")
        for text in blocks(page, "yaml"):
            if named := FILE.match(text):
                (directory / named[1]).write_text(text[named.end() :])
        (directory / "examples").symlink_to(ROOT / "examples")
        program = directory / "bin" / "fleetwright"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m api.cli "$@"\n')
        program.chmod(0o755)
    return found


@pytest.mark.parametrize(("page", "block"), [(page, block) for page in PAGES for block in executed(page)])
def test_an_example_prints_the_documented_output(page: Path, block: str, places: dict[Path, Path]) -> None:
    place = places[page]
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


@pytest.mark.parametrize("words", [words for page in PAGES for words in commands(page)], ids=" ".join)
def test_a_documented_command_exists_with_its_options(words: list[str], cli: Cli) -> None:
    options = [word for word in words if word.startswith("--")]
    first = next((position for position, word in enumerate(words) if word.startswith("-")), len(words))
    shown = next(done for length in range(first, -1, -1) if (done := cli(*words[:length], "--help")).code == 0)
    assert "COMMAND [ARGS]..." not in shown.stdout or not words[:first]
    assert all(option in shown.stdout for option in options)
