"""Cost of the guard: one step of the pure function, and one step of the process over HTTP with its brake.

The step is timed in four situations of a row of 64 and of 1,000 servers, `time.process_time` around each call.  The
process talks to 64 agents on loopback in one other process, which share this machine's cores with the guard.  The brake
is timed from the start of the step that reads too much to the last server's read-back of the brake.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, aclosing
from typing import NamedTuple

import numpy as np
import uvicorn
from prometheus_client import CollectorRegistry

from bench.harness import Row, child
from deploy.node_agent.agent import DeviceState, NodeAgent
from deploy.node_agent.routes import agent_app
from deploy.power_guard.agent_client import Agents
from deploy.power_guard.config import GuardFile
from deploy.power_guard.loop import GuardLoop
from deploy.power_guard.process import guard_loop
from power.controls import UNTOUCHED, NodeClocks, Phase, Setting
from power.guard import BudgetRequest, Guard, GuardMode, GuardSettings, Servers, Telemetry
from power.guard import Row as GuardedRow
from power.guard.telemetry import BRAKE
from power.server_model import BLOOM_A100
from power.telemetry import Budget, Reading, RowObservation

STEPS, WARM_UP = 2000, 100
ROUNDS, BRAKES = 60, 5
AGENTS = 64
PER_SERVER_W = 5290.0  # of 40 servers behind the budget
OVERSUBSCRIBED = 1.45
LOOPBACK = "127.0.0.1"


class _Steady(NamedTuple):
    """A policy without cost, so that only the guard is timed."""

    name: str = "steady"
    command_delay_s: float = 1.0

    def start(self) -> int:
        return 0

    def decide(self, state: int, observed: RowObservation) -> tuple[int, Setting]:  # noqa: ARG002 - the port's
        return state, UNTOUCHED

    def calm_below_w(self, state: int, budget_w: float) -> float:  # noqa: ARG002 - the port's
        return budget_w


def run() -> list[Row]:
    steps = [_step(servers, situation, make) for servers in (64, 1000) for situation, make in SITUATIONS.items()]
    return [*steps, asyncio.run(_rounds())]


Make = Callable[[float, int, "_Bed"], Telemetry]


class _Bed:
    def __init__(self, servers: int) -> None:
        self.limit_w = PER_SERVER_W * servers / OVERSUBSCRIBED
        row = GuardedRow(models=(BLOOM_A100,), kind=np.zeros(servers, np.int64), duty=np.arange(servers) % 2)
        self.guard = Guard(policy=_Steady(), row=row, settings=GuardSettings(rating_w=self.limit_w))
        self.state = self.guard.start()
        self.held = np.vstack([np.ones((2, servers)), np.zeros(servers), np.ones(servers)])
        self.counts = np.zeros((1, 2, 5))
        self.rng = np.random.default_rng(0)

    def telemetry(self, now_s: float, *, age_s: float = 2.0) -> Telemetry:
        servers = Servers(np.full(self.held.shape[1], now_s), self.held.copy())
        reading = Reading(now_s - age_s, 0.8 * self.limit_w)
        return Telemetry(now_s, reading, self.counts, servers, Budget(self.limit_w, 1e9))

    def step(self, telemetry: Telemetry) -> float:
        started_s = time.process_time()
        self.state, commands = self.guard.step(self.state, telemetry)
        spent_s = time.process_time() - started_s
        self.held[:BRAKE, commands.command] = self.guard.row.clocks_of(commands.setting.clocks)[:, commands.command]
        self.held[BRAKE, commands.brake] = 1.0
        self.held[BRAKE, commands.release] = 0.0
        return spent_s


def _quiet(now_s: float, _at: int, bed: _Bed) -> Telemetry:
    return bed.telemetry(now_s)


def _ignored(now_s: float, _at: int, bed: _Bed) -> Telemetry:
    """A twentieth of the servers loses its caps, others each time."""
    lost = bed.rng.random(bed.held.shape[1]) < 0.05
    bed.held[:BRAKE, lost] = 0.5
    return bed.telemetry(now_s)


def _reloaded(now_s: float, at: int, bed: _Bed) -> Telemetry:
    bed.held[3] = at
    return bed.telemetry(now_s)


def _telemetry_lost(now_s: float, at: int, bed: _Bed) -> Telemetry:
    """The meter died after some readings."""
    return bed.telemetry(now_s, age_s=2.0 if at < WARM_UP // 2 else now_s - WARM_UP)


SITUATIONS: dict[str, Make] = {
    "quiet": _quiet,
    "5 % lose their caps at every step": _ignored,
    "every driver reloaded at every step": _reloaded,
    "telemetry lost": _telemetry_lost,
}


def _step(servers: int, situation: str, make: Make) -> Row:
    bed = _Bed(servers)
    spent_s = [bed.step(make(2.0 * at, at, bed)) for at in range(WARM_UP + STEPS)][WARM_UP:]
    return {
        "case": f"one step, {servers} servers, {situation}",
        "n": STEPS,
        "median_ms": 1000 * float(np.median(spent_s)),
        "p99_ms": 1000 * float(np.quantile(spent_s, 0.99)),
        "worst_ms": 1000 * max(spent_s),
    }


class _Server:
    """A device that reads prompts and enforces every command at once."""

    def __init__(self) -> None:
        self._clocks, self._braked = NodeClocks(), False

    def set_clocks(self, clocks: NodeClocks) -> None:
        self._clocks = clocks

    def brake(self, *, on: bool) -> None:
        self._braked = on

    def read(self) -> DeviceState:
        clock = min(self._clocks.prompt, BLOOM_A100.brake_clock if self._braked else 1.0)
        return DeviceState(BLOOM_A100.prompt_w(clock), self._clocks, self._braked, epoch=1, phase=Phase.PROMPT)


def _serve_agents(listeners: list[socket.socket]) -> None:
    async def serve() -> None:
        servers = []
        for at, listener in enumerate(listeners):
            agent = NodeAgent(server=f"n{at}", device=_Server(), safe=NodeClocks(0.5, 0.5), now_s=time.monotonic)
            config = uvicorn.Config(agent_app(agent, token=None), log_config=None, access_log=False)
            servers.append(_Quiet(config).serve(sockets=[listener]))
        await asyncio.gather(*servers)

    asyncio.run(serve())


class _Quiet(uvicorn.Server):
    """One of many in a process: signals are the process's."""

    def install_signal_handlers(self) -> None:
        """None."""


async def _rounds() -> Row:
    listeners = [socket.create_server((LOOPBACK, 0)) for _ in range(AGENTS)]
    with ExitStack() as stack:
        for listener in listeners:
            stack.enter_context(listener)
        stack.enter_context(child(_serve_agents, listeners, method="fork"))
        return await _measured(listeners)


async def _measured(listeners: list[socket.socket]) -> Row:
    entries = [
        {"name": f"n{at}", "url": f"http://{LOOPBACK}:{listener.getsockname()[1]}", "duty": "high" if at % 2 else "low"}
        for at, listener in enumerate(listeners)
    ]
    config = GuardFile.model_validate(
        {
            "row": "row-a",
            "mode": "apply",
            "policy": "none",
            # Shorter hold times than in production, to brake often; neither delays the brake.
            "settings": {"rating_w": 6000.0 * AGENTS, "brake_hold_s": 0.5, "release_hold_s": 0.0},
            "agents": entries,
            "lease_s": 60.0,
        }
    )
    loop, agents = guard_loop(config, registry=CollectorRegistry())
    async with aclosing(agents):
        return await _timed_rounds(loop, agents)


async def _timed_rounds(loop: GuardLoop, agents: Agents) -> Row:
    _budget(loop, 6000.0)
    while _mode(loop) is not GuardMode.NORMAL or loop.state.commands.open:
        await loop.reconcile()
        await asyncio.sleep(0.2)
    timed = [await _timed(loop) for _ in range(ROUNDS)]
    rounds_s, cpu_s = [wall_s for wall_s, _ in timed], [spent_s for _, spent_s in timed]
    brakes_s: list[float] = []
    for _ in range(BRAKES):
        _budget(loop, 5000.0)  # 64 servers reading prompts draw 5.7 kW each
        started_s = time.perf_counter()
        await loop.reconcile()
        assert _mode(loop) is GuardMode.BRAKED
        while any(received is None or not received.report.braked for received in agents.reports):
            await agents.poll()
        brakes_s.append(time.perf_counter() - started_s)
        _budget(loop, 6000.0)
        while _mode(loop) is not GuardMode.NORMAL:
            await loop.reconcile()
            await asyncio.sleep(0.5)
    return {
        "case": f"one round over HTTP, {AGENTS} agents",
        "n": ROUNDS,
        "median_ms": 1000 * float(np.median(rounds_s)),
        "p99_ms": 1000 * float(np.quantile(rounds_s, 0.99)),
        "worst_ms": 1000 * max(rounds_s),
        "guard_cpu_median_ms": 1000 * float(np.median(cpu_s)),
        "brake_median_ms": 1000 * float(np.median(brakes_s)),
        "brake_worst_ms": 1000 * max(brakes_s),
    }


def _mode(loop: GuardLoop) -> GuardMode:
    return loop.state.mode


def _budget(loop: GuardLoop, per_server_w: float) -> None:
    limits = [{"limit_w": per_server_w * AGENTS}]
    request = {"domain": "row-a", "limits": limits, "valid_s": 3600.0, "at_once": True}
    loop.set_budget(BudgetRequest.model_validate(request))


async def _timed(loop: GuardLoop) -> tuple[float, float]:
    """Wall time, and the guard's own processor time: the agents' share of this machine is not in it."""
    started_s, spent_s = time.perf_counter(), time.process_time()
    await loop.reconcile()
    return time.perf_counter() - started_s, time.process_time() - spent_s
