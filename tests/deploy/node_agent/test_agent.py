"""The node agent: leases, refusals and access.  The test sets the time."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

from deploy.node_agent.agent import NodeAgent
from deploy.node_agent.cap_lease import HeldByAnotherError
from deploy.node_agent.routes import agent_app
from deploy.node_agent.schemas import BRAKE_PATH, CLOCKS_PATH, TELEMETRY_PATH, Beat, BrakeCommand, ClocksCommand
from power.controls import NodeClocks, Phase
from power.server_model import BLOOM_A100
from tests.testbed.simulated_servers import ActuatorFaults, SimulatedDevice
from tests.testbed.waiting import PATIENCE_S

SAFE = NodeClocks(0.6, 0.5)
BEAT: dict[str, Any] = {"guard": "g", "lease_s": 10.0}


@dataclass
class Node:
    now_s: float = 0.0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        self.device = SimulatedDevice(name="n", now_s=lambda: self.now_s, rng=rng, phase=Phase.PROMPT)
        self.agent = NodeAgent(server="n", device=self.device, safe=SAFE, now_s=lambda: self.now_s)

    def at(self, now_s: float) -> NodeClocks:
        """Return the enforced clocks after one tick and the delay of the device."""
        self.now_s = now_s
        self.agent.tick()
        self.now_s += 0.1
        return self.device.read().clocks


def clocks_order(token: float, prompt: float) -> ClocksCommand:
    return ClocksCommand(**BEAT, token_clock=token, prompt_clock=prompt)


def test_clocks_hold_until_the_lease_expires() -> None:
    node = Node()
    node.agent.set_clocks(clocks_order(0.9, 0.8))
    assert node.at(9.0) == NodeClocks(0.9, 0.8)
    assert node.at(10.0) == SAFE
    assert node.agent.telemetry().expired
    node.agent.renew(Beat(guard="g", lease_s=10.0))
    assert node.at(11.0) == NodeClocks(0.9, 0.8)


def test_a_brake_stays_after_the_lease_of_the_guard() -> None:
    node = Node()
    node.agent.brake(BrakeCommand(**BEAT, on=True))
    node.at(1000.0)
    assert node.agent.telemetry().braked
    assert node.agent.telemetry().power_w == pytest.approx(BLOOM_A100.prompt_w(BLOOM_A100.brake_clock))


def test_any_guard_may_brake_but_only_the_holder_may_release() -> None:
    node = Node()
    node.agent.renew(Beat(guard="g", lease_s=10.0))
    other: dict[str, Any] = {"guard": "other", "lease_s": 10.0}
    with pytest.raises(HeldByAnotherError):
        node.agent.brake(BrakeCommand(**other, on=True))
    node.now_s = 1.0
    assert node.agent.telemetry().braked
    with pytest.raises(HeldByAnotherError):
        node.agent.brake(BrakeCommand(**other, on=False))
    node.now_s = 2.0
    assert node.agent.telemetry().braked


def test_a_refused_command_is_retried() -> None:
    node = Node()
    node.device.actuator.faults = ActuatorFaults(refused_share=1.0)
    node.agent.set_clocks(clocks_order(0.9, 0.8))
    assert node.at(1.0) == NodeClocks(1.0, 1.0)
    node.device.actuator.faults = ActuatorFaults()
    assert node.at(2.0) == NodeClocks(0.9, 0.8)


@pytest.mark.anyio
async def test_http_requests_need_the_token_and_a_valid_body() -> None:
    node = Node()
    app = agent_app(node.agent, token="a-secret-of-the-row")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://n") as http:
        assert (await http.get(TELEMETRY_PATH)).status_code == 401
        assert (await http.get(TELEMETRY_PATH, headers={"Authorization": "Bearer wrong"})).status_code == 401
        http.headers["Authorization"] = "Bearer a-secret-of-the-row"
        assert (await http.get(TELEMETRY_PATH)).json()["server"] == "n"
        for bad in ({"token_clock": 0.0}, {"token_clock": 1.5}, {"lease_s": -1.0}, {"more": 1}, {"token_clock": "1"}):
            body = BEAT | {"token_clock": 0.5, "prompt_clock": 0.5} | bad
            assert (await http.put(CLOCKS_PATH, json=body)).status_code == 422, bad
        assert node.device.read().clocks == NodeClocks()
        done = await http.put(CLOCKS_PATH, json=BEAT | {"token_clock": 0.5, "prompt_clock": 0.5})
        assert done.json()["holder"] == "g"
        other = await http.post(BRAKE_PATH, json={"guard": "h", "lease_s": 1.0, "on": False})
        assert other.status_code == 409
        assert "guard 'g' holds this node" in other.json()["detail"]


@pytest.mark.anyio
async def test_an_unexpected_device_error_does_not_disable_the_dead_mans_switch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    node.agent.set_clocks(clocks_order(0.9, 0.8))
    monkeypatch.setattr("deploy.node_agent.routes.TICK_S", 0.001)
    failed: list[NodeClocks] = []

    def failing(clocks: NodeClocks) -> None:
        failed.append(clocks)
        raise ValueError("a driver of another version")

    app = agent_app(node.agent, token=None)
    async with app.router.lifespan_context(app):
        with monkeypatch.context() as broken:
            broken.setattr(node.device, "set_clocks", failing)
            node.now_s = 20.0  # the lease has expired
            await wait_until(lambda: failed)
        await wait_until(lambda: node.agent._commanded == SAFE)
    node.now_s += 0.1
    assert node.device.read().clocks == SAFE


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)
