"""Tests the first steps of a new user: clone, `make run`, two curls; with an empty home, python3, git and make."""

import os
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.server import ROOT

INSTALL_S = 600.0  # the packages of the lock file, from any mirror


@pytest.mark.timeout(INSTALL_S + 60)
def test_a_fresh_clone_serves_after_one_command(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout, so there is nothing to clone")
    clone, home, (port,) = tmp_path / "clone", tmp_path / "home", free_ports(1)
    home.mkdir()
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("FLEETWRIGHT_", "VIRTUAL"))
    }
    environment |= {"HOME": str(home), "FLEETWRIGHT_LOG_FORMAT": "json"}
    url = f"http://{LOOPBACK}:{port}"
    with Process.start(
        ["make", "run", f"PORT={port}"], name="make", log_dir=tmp_path, env=environment, cwd=clone
    ) as run:
        run.wait_ready(lambda: answers_ok(f"{url}/readyz"), timeout_s=INSTALL_S)
        gpus = httpx.get(f"{url}/v1/gpus").json()["gpus"]
        run.wait_ready(lambda: "admin token" in run.log_tail(200))
        output = run.log_tail(200)
    assert "H100-SXM" in {gpu["name"] for gpu in gpus}
    assert f"curl {url}/v1/gpus" in output
    assert (clone / "var" / "fleetwright.db").exists()
    assert not list(home.glob("[!.]*")), "nothing is installed outside the checkout"
