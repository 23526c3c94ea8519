"""Agents with simulated devices, each behind a real socket on loopback, in a thread of this process.

With `staged` the test sets the time of the agents and the guard, so results do not depend on the speed of the machine;
requests over sockets have the longest timeout of a guard.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from deploy.common.clock import Clock
from deploy.common.http_server import server_of
from deploy.node_agent.agent import NodeAgent
from deploy.node_agent.routes import agent_app
from deploy.power_guard.agent_client import Agents
from deploy.power_guard.config import GuardFile
from deploy.power_guard.loop import GuardLoop
from deploy.power_guard.process import guard_loop
from power.controls import NodeClocks, Phase
from power.guard import GuardMode
from tests.testbed.processes import LOOPBACK
from tests.testbed.simulated_servers import ActuatorFaults, SimulatedDevice
from tests.testbed.waiting import PATIENCE_S, wait_for

PERIOD_S = 20.0
MAX_ANSWER_S = 10.0  # wall time
SAFE = NodeClocks(0.6, 0.5)
AGENT_TOKEN = "of-the-agents-of-one-row"


@dataclass
class ManualClock:
    """A clock that the test advances."""

    now_s: float = 1000.0

    def read_s(self) -> float:
        """Return the present time."""
        return self.now_s

    def advance(self, duration_s: float) -> None:
        """Advance the clock."""
        self.now_s += duration_s


@dataclass
class Node:
    """One agent, its device, and functions to stop it."""

    name: str
    listener: socket.socket
    device: SimulatedDevice
    agent: NodeAgent
    app: FastAPI
    end: Callable[[], None] = lambda: None  # signals the end
    stop: Callable[[], None] = lambda: None  # ends and waits

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.listener.getsockname()[1]}"

    @property
    def clocks(self) -> NodeClocks:
        """The enforced clocks."""
        return self.device.read().clocks

    @property
    def braked(self) -> bool:
        return self.device.read().braked

    def serve(self) -> None:
        """Serve until `stop`."""
        server = server_of(self.app)
        thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[self.listener]),), daemon=True)
        thread.start()
        wait_for(lambda: server.started, what=f"agent {self.name}")

        def end() -> None:
            server.should_exit = server.force_exit = True

        def stop() -> None:
            end()
            thread.join(PATIENCE_S)

        self.end, self.stop = end, stop


@dataclass
class AgentRow:
    """All agents of a row."""

    nodes: list[Node] = field(default_factory=list)
    manual_clock: ManualClock | None = None  # None: real time

    def config(self, **changes: Any) -> GuardFile:
        """The configuration of a guard for these agents."""
        settings = {
            "rating_w": 5000.0 * len(self.nodes),
            "telemetry_delay_s": 0.0,
            "period_s": PERIOD_S,
            "margin_s": PERIOD_S,
            "silent_after_s": 20 * PERIOD_S,
        } | changes.get("settings", {})
        entries = [
            {"name": node.name, "url": node.url, "duty": "low" if at % 2 else "high"}
            for at, node in enumerate(self.nodes)
        ]
        basic = {
            "row": "row-a",
            "agents": entries,
            "mode": "apply",
            "policy": "none",
            "command_delay_s": 0.2 * PERIOD_S,
            "lease_s": 3 * PERIOD_S,
            "answer_s": min(MAX_ANSWER_S, settings["period_s"] / 2),
        }
        return GuardFile.model_validate(basic | changes | {"settings": settings})

    def advance(self, duration_s: float) -> None:
        """Advance the clock of the row."""
        assert self.manual_clock is not None
        self.manual_clock.advance(duration_s)


@contextmanager
def agent_row(
    count: int,
    *,
    faults: ActuatorFaults | None = None,
    phase: Phase = Phase.TOKEN,
    token: str | None = None,
    manual_clock: ManualClock | None = None,
) -> Iterator[AgentRow]:
    """Serve `count` agents."""
    row = AgentRow(manual_clock=manual_clock)
    now_s = time.monotonic if manual_clock is None else manual_clock.read_s
    with ExitStack() as stopping:
        for at in range(count):
            name = f"n{at}"
            device = SimulatedDevice(name=name, now_s=now_s, rng=np.random.default_rng(at), phase=phase, faults=faults)
            agent = NodeAgent(server=name, device=device, safe=SAFE, now_s=now_s)
            listener = socket.create_server((LOOPBACK, 0))
            node = Node(name, listener, device, agent, agent_app(agent, token=token))
            node.serve()
            stopping.callback(node.listener.close)
            stopping.callback(node.stop)
            row.nodes.append(node)
        yield row
        for node in row.nodes:
            node.end()  # all at once, since each end takes a moment


@contextmanager
def staged(count: int, **more: Any) -> Iterator[AgentRow]:
    """Serve `count` agents at their safe clocks, in the time of the test."""
    with agent_row(count, manual_clock=ManualClock(), **more) as row:
        row.advance(0.1)  # the delay of a device
        yield row


@dataclass
class Guarding:
    """The loop of a guard on a real network; the test runs each reconcile."""

    loop: GuardLoop
    agents: Agents
    registry: CollectorRegistry
    manual_clock: ManualClock | None = None

    def mode(self) -> GuardMode:
        """The current mode of the guard."""
        return self.loop.state.mode

    def sample(self, name: str, **labels: str) -> float:
        """A metric of the row."""
        value = self.registry.get_sample_value(f"fleetwright_{name}", {"row": self.loop.config.row, **labels})
        assert value is not None, name
        return value

    async def reconcile(self, count: int, *, every_s: float | None = None) -> None:
        """Reconcile several times; five times a period by default."""
        for _ in range(count):
            await self.loop.reconcile()
            if self.manual_clock is None:
                await asyncio.sleep(0.1 if every_s is None else every_s)
            else:
                self.manual_clock.advance(PERIOD_S / 5 if every_s is None else every_s)


def guarding(config: GuardFile, *, manual_clock: ManualClock | None = None) -> Guarding:
    """A guard for this file, on `manual_clock` if given."""
    registry = CollectorRegistry()
    clock = Clock() if manual_clock is None else replace(Clock(), steady_s=manual_clock.read_s)
    loop, agents = guard_loop(config, registry=registry, clock=clock)
    return Guarding(loop, agents, registry, manual_clock)
