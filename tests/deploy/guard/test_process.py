"""`fleetwright guard` and `fleetwright agent` as processes: started from a file, killed, started again."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.deploy.guard.row_of_agents import SAFE, agent_row
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.waiting import wait_for

ROOT = Path(__file__).parents[3]
AGENT_TOKEN = "of-the-agents-of-one-row"
BUDGET_TOKEN = "of-the-planner-of-row-a"


def started(folder: Path, name: str, *args: str) -> Process:
    environment = {"PATH": os.environ["PATH"], "FLEETWRIGHT_LOG_LEVEL": "INFO"}
    argv = [sys.executable, "-m", "api.cli", *args]
    return Process.start(argv, name=name, log_dir=folder, env=environment, cwd=ROOT)


def ended_well(process: Process) -> bool:
    """Told to end, it ends by itself; uvicorn then dies of the very signal that it was sent."""
    return process.stop(grace_s=20.0) in (0, -signal.SIGTERM) and "Traceback" not in process.log_tail()


def guard_file(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "agents").write_text(AGENT_TOKEN + "\n")
    (folder / "budget").write_text(BUDGET_TOKEN + "\n")
    files = {"agent_token_file": str(folder / "agents"), "budget_token_file": str(folder / "budget")}
    path = folder / "guard.json"
    path.write_text(json.dumps(config | files))
    return path


def test_a_killed_guard_leaves_its_nodes_slow_and_a_new_one_takes_over(tmp_path: Path) -> None:
    with agent_row(4, token=AGENT_TOKEN) as row:
        file = guard_file(tmp_path, row.config().model_dump(mode="json", exclude_defaults=True))
        (port,) = free_ports(1)
        url = f"http://{LOOPBACK}:{port}"
        order = {"domain": "row-a", "limits": [{"limit_w": 20_000.0}], "valid_s": 60.0}
        with started(tmp_path, "first", "guard", "--config", str(file), "--port", str(port)) as guard:
            guard.wait_ready(lambda: answers_ok(f"{url}/healthz"))
            headers = {"Authorization": f"Bearer {BUDGET_TOKEN}"}
            assert httpx.put(f"{url}/budget", json=order, headers=headers).status_code == 200
            wait_for(lambda: all(node.clocks == (1.0, 1.0) for node in row.nodes), what="nodes at full clocks")
            os.kill(guard.pid, signal.SIGKILL)
            killed_s = time.monotonic()
            wait_for(lambda: all(node.clocks == SAFE for node in row.nodes), what="nodes at safe clocks", timeout_s=10)
            assert time.monotonic() - killed_s < 3.0  # a lease of 1.5 s, a tick, a busy machine
        with started(tmp_path, "second", "guard", "--config", str(file), "--port", str(port)) as guard:
            guard.wait_ready(lambda: answers_ok(f"{url}/healthz"))
            wait_for(lambda: all(node.clocks != SAFE for node in row.nodes), what="nodes with a guard again")
            assert httpx.get(f"{url}/state").json()["state"] == "cautious"  # no budget yet
            assert ended_well(guard)


def test_an_agent_as_a_process_answers_and_obeys(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "agents").write_text(AGENT_TOKEN)
    options = ("--device", "simulated", "--port", str(port), "--token-file", str(tmp_path / "agents"))
    with started(tmp_path, "agent", "agent", "n0", *options) as agent:
        headers = {"Authorization": f"Bearer {AGENT_TOKEN}"}
        url = f"http://{LOOPBACK}:{port}/v1"

        def telemetry() -> Any:
            try:
                return httpx.get(f"{url}/telemetry", headers=headers).json()
            except httpx.TransportError:
                return None

        agent.wait_ready(telemetry)
        body = {"guard": "g", "lease_s": 30.0, "token_clock": 0.75, "prompt_clock": 0.5}
        assert httpx.put(f"{url}/clocks", json=body, headers=headers).status_code == 200
        wait_for(lambda: telemetry()["token_clock"] == 0.75, what="the clock that was told")
        assert ended_well(agent)
