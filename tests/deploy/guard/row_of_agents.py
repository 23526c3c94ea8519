"""Agents with simulated devices, each behind a real socket on loopback, in a thread of this process."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from deploy.guard.agent import NodeAgent
from deploy.guard.agent_app import agent_app
from deploy.guard.agents import Agents
from deploy.guard.config import GuardFile
from deploy.guard.device import SimulatedDevice
from deploy.guard.loop import GuardLoop
from deploy.guard.process import guard_loop, server_of
from power.actuation import ActuatorFaults
from power.guard import Mode, NodeClocks
from power.levers import Phase
from tests.testbed.processes import LOOPBACK
from tests.testbed.waiting import wait_for

SAFE = NodeClocks(0.6, 0.5)
AGENT_TOKEN = "of-the-agents-of-one-row"


@dataclass
class Node:
    """One agent, its device, and the way to cut it off."""

    name: str
    listener: socket.socket
    device: SimulatedDevice
    agent: NodeAgent
    app: FastAPI
    end: Callable[[], None] = lambda: None  # told to
    stop: Callable[[], None] = lambda: None  # and waited for

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.listener.getsockname()[1]}"

    @property
    def clocks(self) -> NodeClocks:
        """Enforced now."""
        return self.device.read().clocks

    @property
    def braked(self) -> bool:
        return self.device.read().braked

    def serve(self) -> None:
        """From now on, until `stop`."""
        server = server_of(self.app)
        thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[self.listener]),), daemon=True)
        thread.start()
        wait_for(lambda: server.started, what=f"agent {self.name}")

        def end() -> None:
            server.should_exit = server.force_exit = True

        def stop() -> None:
            end()
            thread.join(10)

        self.end, self.stop = end, stop


@dataclass
class AgentRow:
    """All of them."""

    nodes: list[Node] = field(default_factory=list)

    def config(self, **said: Any) -> GuardFile:
        """A guard's file for them; a fast one."""
        settings = {"rating_w": 5000.0 * len(self.nodes), "telemetry_delay_s": 0.0, "period_s": 0.5, "margin_s": 0.5}
        entries = [
            {"name": node.name, "url": node.url, "duty": "low" if at % 2 else "high"}
            for at, node in enumerate(self.nodes)
        ]
        basic = {
            "row": "row-a",
            "agents": entries,
            "mode": "apply",
            "policy": "none",
            "command_delay_s": 0.1,
            "lease_s": 1.5,
            "answer_s": 0.25,
        }
        merged = basic | said
        merged["settings"] = settings | said.get("settings", {})
        return GuardFile.model_validate(merged)


@contextmanager
def agent_row(
    count: int, *, faults: ActuatorFaults | None = None, phase: Phase = Phase.TOKEN, token: str | None = None
) -> Iterator[AgentRow]:
    """So many agents, serving."""
    row = AgentRow()
    with ExitStack() as stopping:
        for at in range(count):
            name = f"n{at}"
            device = SimulatedDevice(
                name=name, now_s=time.monotonic, rng=np.random.default_rng(at), phase=phase, faults=faults
            )
            agent = NodeAgent(server=name, device=device, safe=SAFE, now_s=time.monotonic)
            listener = socket.create_server((LOOPBACK, 0))
            node = Node(name, listener, device, agent, agent_app(agent, token=token))
            node.serve()
            stopping.callback(node.listener.close)
            stopping.callback(node.stop)
            row.nodes.append(node)
        yield row
        for node in row.nodes:
            node.end()  # all at once: each takes a moment


@dataclass
class Guarding:
    """A guard's loop on a real network, led by the test round by round."""

    loop: GuardLoop
    agents: Agents
    registry: CollectorRegistry

    def mode(self) -> Mode:
        """The state that the guard is in."""
        return self.loop.state.mode

    def sample(self, name: str, **labels: str) -> float:
        """A metric of the row."""
        value = self.registry.get_sample_value(f"fleetwright_{name}", {"row": self.loop.config.row, **labels})
        assert value is not None, name
        return value

    async def rounds(self, count: int, *, every_s: float = 0.1) -> None:
        """Some rounds."""
        for _ in range(count):
            await self.loop.run_round()
            await asyncio.sleep(every_s)


def guarding(config: GuardFile) -> Guarding:
    """A guard for this file."""
    registry = CollectorRegistry()
    loop, agents = guard_loop(config, registry=registry)
    return Guarding(loop, agents, registry)
