"""`fleetwright guard` and `fleetwright agent` as processes: started from a file, stopped by a signal, killed."""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import httpx

from deploy.power_guard.config import AgentEntry, GuardFile
from deploy.power_guard.process import run_guard
from tests.deploy.power_guard.row_of_agents import SAFE, AgentRow, agent_row
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[2]
AGENT_TOKEN = "of-the-agents-of-one-row"
BUDGET_TOKEN = "of-the-planner-of-row-a"


def started(folder: Path, name: str, *args: str) -> Process:
    environment = {"PATH": os.environ["PATH"], "FLEETWRIGHT_LOG_LEVEL": "INFO"}
    argv = [sys.executable, "-m", "api.cli", *args]
    return Process.start(argv, name=name, log_dir=folder, env=environment, cwd=ROOT)


FULL = (1.0, 1.0)


def ended_well(process: Process) -> bool:
    """Stop the process by a signal; uvicorn then dies of the signal that it received."""
    return process.stop(grace_s=PATIENCE_S) in (0, -signal.SIGTERM) and "Traceback" not in process.log_tail()


def guard_file(folder: Path, config: GuardFile) -> Path:
    (folder / "agents").write_text(AGENT_TOKEN + "\n")
    (folder / "budget").write_text(BUDGET_TOKEN + "\n")
    files = {"agent_token_file": str(folder / "agents"), "budget_token_file": str(folder / "budget")}
    path = folder / "guard.json"
    path.write_text(json.dumps(config.model_dump(mode="json", exclude_defaults=True) | files))
    return path


def test_nodes_fall_to_safe_clocks_after_the_guard_is_killed(tmp_path: Path) -> None:
    agent_port, port = free_ports(2)
    base, url = f"http://{LOOPBACK}:{agent_port}", f"http://{LOOPBACK}:{port}"
    options = ("--port", str(agent_port), "--token-file", str(tmp_path / "agents"), "--safe-token", "0.75")
    with agent_row(3, token=AGENT_TOKEN) as row:
        file = guard_file(tmp_path, with_another(row, base))
        with (
            started(tmp_path, "agent", "agent", "n9", "--device", "simulated", *options) as agent,
            started(tmp_path, "guard", "guard", "--config", str(file), "--port", str(port)) as guard,
        ):
            guard.wait_ready(lambda: answers_ok(f"{url}/healthz"))
            request = {"domain": "row-a", "limits": [{"limit_w": 20_000.0}], "valid_s": 3000.0}
            headers = {"Authorization": f"Bearer {BUDGET_TOKEN}"}
            assert httpx.put(f"{url}/budget", json=request, headers=headers, timeout=PATIENCE_S).status_code == 200

            def clocks() -> list[tuple[float, ...]]:
                bearer = {"Authorization": f"Bearer {AGENT_TOKEN}"}
                remote = httpx.get(f"{base}/v1/telemetry", headers=bearer, timeout=PATIENCE_S).json()
                return [*(node.clocks for node in row.nodes), (remote["token_clock"], remote["prompt_clock"])]

            wait_for(lambda: clocks() == [FULL] * 4, what="nodes at full clocks")
            os.kill(guard.pid, signal.SIGKILL)
            # The time depends only on the lease; test_agent and test_loop cover it with a set clock.
            wait_for(lambda: clocks() == [SAFE] * 3 + [(0.75, 0.5)], what="nodes at safe clocks")
            assert ended_well(agent)
    for process in (agent, guard):
        assert AGENT_TOKEN not in process.log_path.read_text()
        assert BUDGET_TOKEN not in process.log_path.read_text()


def test_a_guard_outlives_the_last_agent_of_its_row(tmp_path: Path) -> None:
    agent_port, port = free_ports(2)
    url = f"http://{LOOPBACK}:{port}/healthz"
    options = ("--port", str(agent_port), "--token-file", str(tmp_path / "agents"), "--device", "simulated")
    discover = {"service": LOOPBACK, "port": agent_port, "every_s": 1.0, "forget_s": 0.0}
    settings = {"rating_w": 20_000.0, "period_s": 2.0, "margin_s": 2.0}
    config = {"row": "row-a", "settings": settings, "discover": discover, "lease_s": 5.0}
    file = guard_file(tmp_path, GuardFile.model_validate(config))

    def status() -> str:
        try:
            return str(httpx.get(url, timeout=PATIENCE_S).json()["status"])
        except httpx.TransportError:
            return "between two applications"

    waiting = "no agent of row-a responds yet"
    with started(tmp_path, "guard", "guard", "--config", str(file), "--port", str(port)) as guard:
        wait_for(lambda: status() == waiting, what="a guard without agents")
        with started(tmp_path, "agent", "agent", "n1", *options) as agent:
            wait_for(lambda: status() not in {waiting, "between two applications"}, what="a guard with an agent")
            assert ended_well(agent)
        wait_for(lambda: status() == waiting, what="a guard whose agents have left")
        assert ended_well(guard)


def with_another(row: AgentRow, url: str) -> GuardFile:
    """The configuration of a guard with one more agent."""
    config = row.config(settings={"rating_w": 20_000.0, "period_s": 1.0, "margin_s": 2.0}, lease_s=5.0)
    return config.model_copy(update={"agents": (*config.agents, AgentEntry(name="n9", url=url))})


def test_a_guard_ends_on_sigterm() -> None:
    signals: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        signals.append(number)

    with agent_row(1) as row, socket.create_server((LOOPBACK, 0)) as listener:
        before = signal.signal(signal.SIGTERM, note)
        try:
            asyncio.run(_guarded_until_commanded(row.config(), listener))
        finally:
            signal.signal(signal.SIGTERM, before)
    assert signals == [signal.SIGTERM]  # uvicorn re-raises its signal


async def _guarded_until_commanded(config: GuardFile, listener: socket.socket) -> None:
    """The process ends at the signal without a pending task, which would raise a warning and fail the test."""
    guard = asyncio.create_task(run_guard(config, listener))
    url = f"http://{LOOPBACK}:{listener.getsockname()[1]}/healthz"
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http, asyncio.timeout(PATIENCE_S):
        while (await http.get(url)).status_code != 200:
            await asyncio.sleep(0.02)
        signal.raise_signal(signal.SIGTERM)
        await guard
