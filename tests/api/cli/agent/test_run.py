"""Errors of `fleetwright agent` before it starts: missing options, files and drivers, missing authentication."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deploy.node_agent.gpu.stub_driver import StubDriver
from tests.testbed.cli import Cli
from tests.testbed.processes import LOOPBACK, Process, free_ports

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "redfish"], "--device redfish: needs --redfish-url"),
        (["--device", "redfish", "--redfish-url", "http://127.0.0.1:9"], "--device redfish: /redfish/v1/: "),
        (["--device", "amd"], "--device amd: AMD GPUs need "),
        (["--device", "nvml", "--act"], "--act: needs --token-file or mutual TLS"),
        (["--device", "simulated", "--tls-cert", "x"], "--tls-cert, --tls-key and --client-ca: all three are needed"),
        (["--device", "simulated", "--socket", "none/here"], "cannot listen on none/here: No such file or directory"),
        (["--device", "simulated", "--gpu", "H1000"], "--device simulated: unknown GPU 'H1000'"),
    ],
)
def test_missing_options_are_reported_before_anything_starts(cli: Cli, options: list[str], message: str) -> None:
    done = cli("agent", "n1", "--port", "0", *options)
    assert done.code == 2
    assert done.refused[0].startswith(message), done.refused


@pytest.mark.parametrize("server", ["", "n" * 201])
def test_an_invalid_server_name_is_refused(cli: Cli, server: str) -> None:
    done = cli("agent", server, "--port", "0", "--device", "simulated")
    assert done.code == 2
    assert done.refused == [f"SERVER: must have 1 to 200 characters, got {len(server)}"]


def test_an_unwritable_state_file_is_refused_at_start(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, reason in (
        (tmp_path / "none" / "n1.json", "cannot be written: No such file or directory"),
        (tmp_path / "file" / "n1.json", "cannot be written: Not a directory"),
        (tmp_path, "[Errno 21] Is a directory"),
    ):
        done = cli("agent", "n1", "--port", "0", "--device", "simulated", "--state-file", place)
        assert done.code == 2
        assert done.refused[0].startswith(f"--state-file {place}: {reason}"), done.refused
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_nvidia_driver_is_reported() -> None:
    # In its own process: another test may have loaded a driver in this one.
    argv = [sys.executable, "-m", "api.cli", "agent", "n1", "--port", "0", "--device", "nvml"]
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": "/nonexistent"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60.0, check=False)
    if done.returncode != 2:
        pytest.skip("this machine has NVIDIA's driver")
    assert done.stderr.startswith("fleetwright: --device nvml: NV")  # no library, or no package


def test_unreadable_certificates_are_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no certificate")
    tls = [f"--{name}={tmp_path / 'x'}" for name in ("tls-cert", "tls-key", "client-ca")]
    done = cli("agent", "n1", "--port", "0", "--device", "simulated", *tls)
    assert done.code == 2
    assert done.refused[0].startswith("--tls-cert, --tls-key, --client-ca: ")


def report(url: str) -> Any:
    return httpx.get(f"{url}/v1/gpus", trust_env=False, timeout=10.0).json()


def is_serving(url: str) -> bool:
    try:
        return bool(report(url)["gpus"][0]["age_s"] is not None)
    except httpx.TransportError:
        return False


def test_without_act_the_agent_observes_real_gpus_and_sets_no_caps(tmp_path: Path) -> None:
    driver = StubDriver(tmp_path / "driver")
    (port,) = free_ports(1)
    url = f"http://{LOOPBACK}:{port}"
    argv = [sys.executable, "-m", "api.cli", "agent", "n1", "--device", "nvml", "--port", str(port)]
    environment = {"PATH": os.environ["PATH"], **driver.environment()}
    with Process.start(argv, name="agent", log_dir=tmp_path, env=environment, cwd=ROOT) as agent:
        agent.wait_ready(lambda: is_serving(url))
        status = report(url)
        assert (status["act"], status["driver"], status["clock_is_read_back"]) == ("observe", "nvml", False)
        gpu = status["gpus"][0]
        assert (gpu["planned"]["clock_mhz"], gpu["applied"]["clock_mhz"]) == (990, None)  # safe clocks, only planned
        assert gpu["power_w"] == 650.0
        assert agent.stop(grace_s=20.0) in (0, -signal.SIGTERM)
    assert (driver.gpu(0).power_writes, driver.gpu(0).clock_writes) == (0, 0)
    assert "observing: --act sets caps" in agent.log_path.read_text()
