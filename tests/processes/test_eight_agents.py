"""Eight agents as processes, each with `nvidia-ml-py` over its own stub driver, under a guard and another holder:
restarts, kills, ignored writes and reloads; and the guard without one of them.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.node_agent.schemas import CAPS_PATH, GPUS_PATH, PHASE_PATH
from deploy.power_guard.config import GuardFile
from deploy.power_guard.metrics import Source
from power.guard import BudgetRequest, GuardMode
from power.guard.budgets import Entry
from tests.deploy.node_agent.gpu.stub_driver import StubDriver, stub_library
from tests.deploy.power_guard.row_of_agents import Guarding, ManualClock, guarding
from tests.testbed.processes import LOOPBACK, Process, free_ports
from tests.testbed.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[2]
TOKEN = "of-the-agents-of-one-row"
NODES = 8
PERIOD_S = 20.0  # of the guard, so that an agent has 10 s of real time to respond


@dataclass
class Agent:
    """One agent process and its driver."""

    name: str
    folder: Path
    port: int
    driver: StubDriver
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self, *options: str) -> None:
        environment = {"PATH": os.environ["PATH"], **self.driver.environment()}
        argv = [sys.executable, "-m", "api.cli", "agent", self.name, "--device", "nvml", "--act"]
        argv += ["--port", str(self.port), "--token-file", str(self.folder / "token")]
        argv += ["--state-file", str(self.folder / f"{self.name}.state"), *options]
        self.process = Process.start(argv, name=self.name, log_dir=self.folder, env=environment, cwd=ROOT)

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.popen.wait()

    def end(self) -> int:
        assert self.process is not None
        return self.process.stop(grace_s=PATIENCE_S)

    def call(self, method: str, path: str, **body: Any) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answer = httpx.request(method, self.url + path, json=body or None, headers=headers, timeout=PATIENCE_S)
        return answer.raise_for_status().json()

    def is_ready(self) -> bool:
        try:
            return bool(self.call("GET", GPUS_PATH))
        except httpx.HTTPError:
            return False

    def caps(self, cap_state: str) -> set[tuple[Any, ...]]:
        """Planned, applied and enforced caps of every GPU."""
        gpus = self.call("GET", GPUS_PATH)["gpus"]
        return {tuple(gpu[source][cap_state] for source in ("planned", "applied", "enforced")) for gpu in gpus}


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Agent]]:
    """Eight agents, not started."""
    folder = tmp_path_factory.mktemp("row")
    stub_library()
    (folder / "token").write_text(TOKEN)
    ports = free_ports(NODES)
    found = [Agent(f"n{at}", folder, ports[at], StubDriver(folder / f"n{at}.driver")) for at in range(NODES)]
    yield found
    running = [agent.process for agent in found if agent.process is not None and agent.process.running()]
    for process in running:
        os.kill(process.pid, signal.SIGTERM)  # all at once, since each end takes a moment
    for process in running:
        process.stop(grace_s=PATIENCE_S)


@pytest.fixture
def agents(row: list[Agent]) -> list[Agent]:
    """Eight running agents."""
    for agent in row:
        if agent.process is None or not agent.process.running():
            agent.start("--unguarded")
    for agent in row:
        assert agent.process is not None
        agent.process.wait_ready(agent.is_ready)
    return row


def hold(agent: Agent, watts: float, mhz: int = 1500) -> None:
    agent.call("PUT", CAPS_PATH, holder="planner", lease_s=600.0, power_limit_w=watts, clock_mhz=mhz)


def all_agree(agents: list[Agent], watts: float, mhz: int = 1500) -> bool:
    """Planned = applied = enforced, in the agents' reports and in the drivers."""
    reported = all(a.caps("power_limit_w") == {(watts,) * 3} and a.caps("clock_mhz") == {(mhz,) * 3} for a in agents)
    return reported and all(a.driver.limits_w == [watts] * 2 and a.driver.locks_mhz == [mhz] * 2 for a in agents)


def test_planned_applied_and_enforced_caps_agree_after_failures(agents: list[Agent]) -> None:
    for agent in agents:
        hold(agent, 450.0)
    wait_for(lambda: all_agree(agents, 450.0), what="caps on eight nodes")

    agents[0].kill()
    agents[1].kill()
    for agent in agents[:2]:
        agent.start("--unguarded")
    agents[2].driver.state.ignore_power = 2
    agents[3].driver.state.ignore_clocks = 2
    for agent in agents[2:4]:
        hold(agent, 440.0, 1485)  # the drivers ignore the first writes
    agents[4].driver.reload()
    agents[5].driver.reload()
    agents[6].driver.gpu(0).limit_mw = 700_000  # another writer
    for agent in agents[:2]:
        assert agent.process is not None
        agent.process.wait_ready(agent.is_ready)
    others = [*agents[:2], *agents[4:]]
    wait_for(lambda: all_agree(others, 450.0) and all_agree(agents[2:4], 440.0, 1485), what="every cap after all of it")
    assert (agents[2].driver.state.ignore_power, agents[3].driver.state.ignore_clocks) == (0, 0)  # they were ignored

    assert [agent.end() in (0, -signal.SIGTERM) for agent in agents[:2]] == [True, True]
    assert [agent.driver.limits_w for agent in agents[:2]] == [[700.0, 700.0]] * 2
    assert [agent.driver.locks_mhz for agent in agents[:2]] == [[0, 0]] * 2
    assert not list(agents[0].folder.glob("n[01].state"))
    agents[7].kill()
    assert agents[7].driver.limits_w == [450.0, 450.0]
    assert (agents[7].folder / "n7.state").exists()


def guard_file(agents: list[Agent]) -> GuardFile:
    rating_w = 6500.0 * NODES
    return GuardFile.model_validate(
        {
            "row": "row-a",
            # A command may take an hour of the guard's time to show, in which the agent polls hundreds of times.
            "settings": {"rating_w": rating_w, "telemetry_delay_s": 0.0, "period_s": PERIOD_S, "margin_s": 3600.0},
            "agents": [{"name": agent.name, "url": agent.url} for agent in agents],
            "agent_token_file": str(agents[0].folder / "token"),
            "mode": "apply",
            "policy": "none",
            "lease_s": 600.0,
            "answer_s": PERIOD_S / 2,
        }
    )


def caps_enforced(guard: Guarding) -> bool:
    """By the guard's metrics: applied equals enforced."""
    return all(
        guard.sample("power_cap_watts", server=f"n{at}", source=Source.APPLIED.value)
        == pytest.approx(guard.sample("power_cap_watts", server=f"n{at}", source=Source.ENFORCED.value))
        for at in range(NODES)
    )


@pytest.mark.anyio
async def test_the_guard_falls_back_within_two_periods_after_an_agent_is_lost(agents: list[Agent]) -> None:
    """Agents run in real time; the test advances the guard's periods."""
    for agent in agents:
        agent.call("PUT", PHASE_PATH, worker="w", phase="token", lease_s=600.0)
    config, manual_clock = guard_file(agents), ManualClock()
    guard = guarding(config, manual_clock=manual_clock)
    async with aclosing(guard.agents):
        request = BudgetRequest(domain="row-a", limits=(Entry(limit_w=config.settings.rating_w),), valid_s=3600.0)
        guard.loop.set_budget(request)
        await guard.reconcile(1, every_s=0.5)
        async with asyncio.timeout(PATIENCE_S):
            while guard.mode() is not GuardMode.NORMAL or not caps_enforced(guard):
                await guard.reconcile(1, every_s=0.5)
                await asyncio.sleep(0.1)
        await guard.reconcile(1, every_s=0.0)
        last_report_s = manual_clock.now_s
        agents[3].kill()
        while guard.mode() is GuardMode.NORMAL:
            manual_clock.advance(PERIOD_S)
            assert manual_clock.now_s <= last_report_s + 2 * PERIOD_S
            await guard.reconcile(1, every_s=0.0)
        assert guard.mode() is GuardMode.TELEMETRY_LOST
        assert guard.sample("guard_events_total", kind="mode") >= 1
        assert [at for at, report in enumerate(guard.agents.reports) if report and report.at_s <= last_report_s] == [3]
