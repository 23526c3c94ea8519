"""Tests that a killed run's processes end with it, and that the next run removes the rest."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.testbed.lab import commands
from tests.testbed.lab.network import remove_stale
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
RANKS = 2
RUNS = """
import sys
from pathlib import Path
from tests.testbed.lab import leftovers
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.injections import Injection
from tests.testbed.lab.session import run_experiment
from tests.testbed.lab.workload import Workload
print(leftovers.owner(), flush=True)
flood = Injection(kind="flood", at_s=0.2, node=0, peer=1, seconds=60.0)
experiment = Experiment(name="killed", workload=Workload(ranks=2, duration_s=60.0), injections=(flood,), busy=1)
run_experiment(experiment, folder=Path(sys.argv[1]) / "run")
"""


def test_a_killed_run_leaves_no_process_and_the_next_run_removes_its_namespaces(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", RUNS, tmp_path], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        try:
            wait_for(lambda: len(living(owner)) >= 2 * RANKS, what="ranks and a flood", timeout_s=60.0)
            children = started_by(process.pid)
        finally:
            process.kill()
    assert len(children) >= 2 + RANKS  # the parent of the ranks, a busy loop, and both ends of the flood
    wait_for(lambda: not [pid for pid in children if is_there(pid)], what="end of all children", timeout_s=10.0)
    wait_for(lambda: not living(owner), what="end of all ranks", timeout_s=10.0)
    assert remaining(owner) != []
    remove_stale()
    assert remaining(owner) == []


def living(owner: str) -> list[int]:
    return [pid for name in commands.namespaces() if name.startswith(owner) for pid in commands.processes_in(name)]


def started_by(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_there(pid: int) -> bool:
    """Check that the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def remaining(owner: str) -> list[str]:
    names = [*commands.namespaces(), *(path.name for path in Path(tempfile.gettempdir()).iterdir())]
    return [name for name in names if name.startswith(f"{owner}-")]
