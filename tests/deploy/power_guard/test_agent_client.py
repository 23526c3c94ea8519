"""The guard with agents that never respond, and with a newer one."""

import asyncio
from collections.abc import Hashable, Iterable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from deploy.node_agent.schemas import NodeTelemetry
from deploy.power_guard import agent_client
from deploy.power_guard.agent_client import AgentReport, Agents
from deploy.power_guard.metrics import GuardMetrics
from power.controls import NodeClocks
from tests.deploy.power_guard.row_of_agents import PERIOD_S, AgentRow

pytestmark = pytest.mark.anyio


class UnresponsiveAgents(Agents):
    """Agents that never respond; each wait takes the whole timeout, on a clock that only waits advance."""

    now_s = 0.0

    async def _answer(self, *_request: Any) -> None:
        await asyncio.get_running_loop().create_future()

    async def _wait(self, kinds: Iterable[Hashable], *, timeout_s: float) -> None:
        assert [kind for kind in kinds if kind in self._in_flight]
        self.now_s += timeout_s


async def test_a_cycle_ends_within_its_period_despite_pending_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents = {"agents": [{"name": f"n{at}", "url": f"http://n{at}:1"} for at in range(3)]}
    config = AgentRow().config(settings={"rating_w": 15_000.0}, **agents)
    metrics = GuardMetrics(CollectorRegistry(), row="row-a", full_clock_hz=1e9)
    unresponsive = UnresponsiveAgents(config=config, token=None, metrics=metrics)
    monkeypatch.setattr(agent_client, "time", SimpleNamespace(monotonic=lambda: unresponsive.now_s))
    async with aclosing(unresponsive):
        for _ in range(3):
            began_s = unresponsive.now_s
            await unresponsive.poll()
            await unresponsive.send(brake=[0, 1, 2], release=[], command=dict.fromkeys(range(3), NodeClocks(0.5, 0.5)))
            assert unresponsive.now_s - began_s <= PERIOD_S
        assert len(unresponsive._in_flight) == 9, (
            "one poll, one brake and one command per agent: requests do not accumulate"
        )


async def test_fields_that_a_newer_agent_reports_are_ignored() -> None:
    config = AgentRow().config(settings={"rating_w": 15_000.0}, agents=[{"name": "n0", "url": "http://n0:1"}])
    metrics = GuardMetrics(CollectorRegistry(), row="row-a", full_clock_hz=1e9)
    telemetry = NodeTelemetry(
        server="n0", epoch=1, phase="token", power_w=3000.0, age_s=0.5, token_clock=1.0, prompt_clock=1.0, braked=False
    )
    response = httpx.Response(200, json=telemetry.model_dump(mode="json") | {"added_later": 1})
    async with aclosing(Agents(config=config, token=None, metrics=metrics)) as agents:
        agents._note(0, config.agents[0], response, 100.0)
    assert agents.reports == [AgentReport(99.5, telemetry)]
