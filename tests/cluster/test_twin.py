"""Tests `fleetwright demo` from a shell: its own Ray cluster, all acts, no process left."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.testbed.ray_cluster import check_machine
from tests.testbed.requirements import skipping_where_unavailable
from tests.testbed.server import ROOT
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.ray


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder for all output; its path is short, because Ray creates sockets below it."""
    with tempfile.TemporaryDirectory(prefix="fw-") as folder:
        yield Path(folder)


def test_the_demonstration_applies_every_plan_and_cleans_up(folder: Path) -> None:
    with skipping_where_unavailable("ray", what="Ray"):
        check_machine()
    mark = f"FLEETWRIGHT_DEMO_MARK={uuid4()}"
    options = ["--seconds", "1", "--time-scale", "2", "--format", "json"]
    output = json_output([sys.executable, "-m", "api.cli", "demo", *options], folder, mark)
    assert output["ok"] is True
    planned = [act["planned"] for act in output["acts"]]
    assert planned == [{"A100-80GB-SXM": 1}, {"H100-SXM": 1, "L4": 3}, {"H100-SXM": 1}]
    assert [act["applied"] for act in output["acts"]] == planned
    assert [act["lost"] for act in output["acts"]] == [0, 0, 0]
    assert [act["clocks"] for act in output["acts"]] == [{}, {}, {"H100-SXM": 0.7}]
    assert all(act["requests"] > 0 and act["power_w"] > 0 for act in output["acts"])
    assert list(folder.iterdir()) == [], "the scratch folders are removed"
    assert processes_with(mark) == []


def json_output(argv: list[str], folder: Path, mark: str) -> Any:
    """Return the command's stdout as JSON."""
    name, _, value = mark.partition("=")
    environment = os.environ | {"TMPDIR": str(folder), name: value}
    process = subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        stdout, stderr = process.communicate(timeout=4 * PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # SIGTERM also removes everything
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, stderr[-3000:] + stdout
    return json.loads(stdout)


def processes_with(mark: str) -> list[str]:
    """Return the running processes with this value in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue  # it has ended meanwhile, or is not ours
    return found
