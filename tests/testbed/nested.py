"""Runs pytest inside a test: for fixtures on a machine that lacks their part, or a killed run."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType


def run_pytest(
    source: str, *, folder: Path, plugins: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """Run the tests in `source` in their own process, with the fixtures of `plugins`; warnings are errors."""
    path = folder / "test_nested.py"
    path.write_text(dedent(source))
    named = [argument for plugin in plugins for argument in ("-p", plugin)]
    argv = [sys.executable, "-m", "pytest", "-rs", "-W", "error", "-p", "no:cacheprovider", *named, str(path)]
    return subprocess.run(
        argv, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
