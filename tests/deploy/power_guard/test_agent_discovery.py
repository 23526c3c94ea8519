"""A guard finds its agents by the addresses of a name, and follows the row as servers join, move and leave."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.node_agent.agent import NodeAgent
from deploy.node_agent.routes import agent_app
from deploy.power_guard.agent_discovery import AgentFinder
from deploy.power_guard.config import AgentDiscovery, GuardFile
from tests.deploy.power_guard.row_of_agents import AGENT_TOKEN, SAFE, Guarding, ManualClock, Node, guarding
from tests.testbed.processes import free_ports
from tests.testbed.simulated_servers import SimulatedDevice

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
FORGET_S = 600.0


class Service:
    """A headless Service: its addresses, and the agents behind them."""

    def __init__(self, stopping: ExitStack) -> None:
        (self.port,) = free_ports(1)
        self.addresses: list[str] = []
        self.clock = ManualClock()
        self._stopping = stopping

    def start(self, name: str, address: str) -> Node:
        device = SimulatedDevice(name=name, now_s=self.clock.read_s, rng=np.random.default_rng(0))
        agent = NodeAgent(server=name, device=device, safe=SAFE, now_s=self.clock.read_s)
        listener = socket.create_server((address, self.port))
        node = Node(name, listener, device, agent, agent_app(agent, token=AGENT_TOKEN))
        node.serve()
        self._stopping.callback(listener.close)
        self._stopping.callback(node.stop)
        self.addresses.append(address)
        return node

    def finder(self, *, token: str | None = AGENT_TOKEN) -> AgentFinder:
        async def resolve(host: str, port: int) -> list[str]:
            assert (host, port) == ("agents.fleet.svc", self.port)
            return self.addresses

        async def no_wait(_seconds: float) -> None:
            """Refresh at once."""

        settings = AgentDiscovery(service="agents.fleet.svc", port=self.port, duty="low", forget_s=FORGET_S)
        return AgentFinder(settings, tls=None, token=token, resolve=resolve, steady_s=self.clock.read_s, sleep=no_wait)


@pytest.fixture
def service() -> Iterator[Service]:
    with ExitStack() as stopping:
        yield Service(stopping)


def file_of(service: Service, tmp_path: Path | None = None) -> GuardFile:
    found: dict[str, Any] = {
        "row": "row-a",
        "settings": {"rating_w": 15000.0, "period_s": 20.0, "margin_s": 20.0, "silent_after_s": 400.0},
        "discover": {"service": "agents.fleet.svc", "port": service.port, "duty": "low"},
        "mode": "apply",
        "policy": "none",
        "answer_s": 10.0,
        "lease_s": 60.0,
    }
    if tmp_path is not None:
        (tmp_path / "token").write_text(AGENT_TOKEN)
        found["agent_token_file"] = tmp_path / "token"
    return GuardFile.model_validate(found)


@contextmanager
def guard_of(service: Service, finder: AgentFinder) -> Iterator[Guarding]:
    file = file_of(service).with_agents(finder.entries())
    yield guarding(file, manual_clock=service.clock)


def test_agents_are_found_by_address_and_named_by_themselves(service: Service) -> None:
    for name, address in zip(("gpu-b", "gpu-a"), ADDRESSES, strict=False):
        service.start(name, address)

    async def found() -> list[tuple[str, str, str]]:
        async with aclosing(service.finder()) as finder:
            await finder.first()
            return [(entry.name, entry.url, entry.duty) for entry in finder.entries()]

    assert asyncio.run(found()) == [
        ("gpu-a", f"http://127.0.0.2:{service.port}", "low"),
        ("gpu-b", f"http://127.0.0.1:{service.port}", "low"),
    ]


def test_an_agent_that_rejects_the_token_is_not_in_the_row(service: Service) -> None:
    service.start("gpu-a", ADDRESSES[0])

    async def found() -> int:
        async with aclosing(service.finder(token="another")) as finder:
            await finder.refresh()
            return len(finder.entries())

    assert asyncio.run(found()) == 0


def test_a_server_that_moves_is_polled_at_its_new_address(service: Service, tmp_path: Path) -> None:
    first = service.start("gpu-a", ADDRESSES[0])

    async def run() -> tuple[bool, bool]:
        async with aclosing(service.finder()) as finder:
            await finder.first()
            file = file_of(service, tmp_path).with_agents(finder.entries())
            guard = guarding(file, manual_clock=service.clock)
            async with aclosing(guard.agents):
                await guard.reconcile(1)
                assert guard.agents.reports[0] is not None
                first.stop()
                service.addresses.clear()
                service.start("gpu-a", ADDRESSES[1])
                before = guard.agents.reports[0]
                await finder.refresh()
                await guard.agents.move({entry.name: entry.url for entry in finder.entries()})
                await guard.reconcile(1)
                return guard.agents.reports[0] is not before, len(finder.entries()) == 1

    assert asyncio.run(run()) == (True, True)


def test_a_server_without_an_address_leaves_the_row_only_after_a_while(service: Service) -> None:
    for name, address in zip(("gpu-a", "gpu-b"), ADDRESSES, strict=False):
        service.start(name, address)

    async def run() -> list[int]:
        counts = []
        async with aclosing(service.finder()) as finder:
            await finder.first()
            service.addresses.pop()
            for wait_s in (FORGET_S, 1.0):
                service.clock.advance(wait_s)
                await finder.refresh()
                counts.append(len(finder.entries()))
        return counts

    assert asyncio.run(run()) == [2, 1]


def test_a_joining_server_ends_the_wait_for_changes(service: Service) -> None:
    service.start("gpu-a", ADDRESSES[0])

    async def run() -> list[str]:
        async with aclosing(service.finder()) as finder:
            await finder.first()
            with guard_of(service, finder) as guard:
                async with aclosing(guard.agents):
                    service.start("gpu-b", ADDRESSES[1])
                    await asyncio.wait_for(finder.changed(guard.agents), timeout=30)
            return [entry.name for entry in finder.entries()]

    assert asyncio.run(run()) == ["gpu-a", "gpu-b"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agents": [{"name": "a", "url": "http://a"}]}, "expected either at least one agent, or discover"),
        ({"discover": None}, "expected either at least one agent, or discover"),
        ({"discover": {"service": "agents", "scheme": "https"}}, "expected https exactly with agent_tls"),
        ({"discover": {"service": "agents", "model": "other"}}, "unknown model 'other'"),
        ({"discover": {"service": "http://agents"}}, "service"),
    ],
)
def test_a_file_names_agents_or_where_to_find_them(service: Service, changes: dict[str, object], message: str) -> None:
    whole = file_of(service).model_dump(mode="json") | changes
    with pytest.raises(ValueError, match=message):
        GuardFile.model_validate(whole)
