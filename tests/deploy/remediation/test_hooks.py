"""Hook commands: they receive the node, and are killed with all child processes after the timeout."""

import os
import sys
from pathlib import Path

import pytest

from deploy.common.errors import ActuationError
from deploy.remediation.hooks import Hooks

pytestmark = pytest.mark.anyio


def python(code: str) -> str:
    return f"{sys.executable} -c '{code}'"


async def test_a_hook_receives_its_node_and_its_output_is_returned() -> None:
    code = 'import os; print(os.environ["FLEETWRIGHT_NODE"], os.environ["FLEETWRIGHT_CASE"])'
    hooks = Hooks(commands={"release": python(code)})
    assert await hooks.run("release", node="gpu-3", case_id="v-1") == "gpu-3 v-1"
    assert await hooks.run("replace", node="gpu-3", case_id="v-1") == ""


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (python('print("no quota"); raise SystemExit(3)'), "ended with status 3: no quota"),
        ("/nowhere/at/all", "cannot be started"),
        ("'", "cannot be started"),
    ],
)
async def test_the_error_of_a_failed_hook_contains_the_reason(command: str, message: str) -> None:
    with pytest.raises(ActuationError, match=message):
        await Hooks(commands={"replace": command}).run("replace", node="n", case_id="c")


async def test_a_timeout_kills_all_processes_of_a_hook(tmp_path: Path) -> None:
    """The child has the write end of a pipe, so the reader notices the end of the child."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f'import subprocess, time; subprocess.Popen(["sleep", "600"], stdout=open("{fifo}", "w")); time.sleep(600)'
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    hooks = Hooks(commands={"replace": python(code)}, timeout_s=2.0)
    with pytest.raises(ActuationError, match="did not end within 2 s and was killed"):
        await hooks.run("replace", node="n", case_id="c")
    os.set_blocking(reading, True)
    assert os.read(reading, 1) == b""
    os.close(reading)
