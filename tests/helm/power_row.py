"""Produces the metrics of a guard over agents, of an agent with GPUs, and of a router before scripted engines."""

import asyncio
import contextlib
from functools import cache

from prometheus_client import CollectorRegistry, generate_latest

from deploy.node_agent.gpu.factory import DriverName, DriverOptions, Simulation, node_of, open_gpus
from deploy.node_agent.gpu.reporting import GpuMetrics
from fleet.documents import RuleError
from power.controls import NodeClocks
from power.guard import BudgetRequest
from tests.deploy.power_guard.row_of_agents import Guarding, agent_row, guarding
from tests.deploy.router.asgi import EVENTS, Bed, Scripted, bed
from tests.deploy.router.tables import table

REQUEST = {"domain": "row-a", "limits": [{"limit_w": 9000.0}], "valid_s": 600.0}
STREAM = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true}'
TOKENS = [b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'] * 3
PRIORITIES = (b"low", b"high")


@cache
def guard_page() -> bytes:
    """Return the metrics of a guard after some reconciles."""
    with agent_row(2) as row:
        # Forecasts have a horizon of 20 periods: 40 s.
        guard = guarding(row.config(settings={"period_s": 2.0}, lease_s=4.0))
        asyncio.run(_rounds(guard))
    return generate_latest(guard.registry)


@cache
def router_page() -> bytes:
    """Return the metrics of a router after a request of each priority."""
    found = _routed()
    asyncio.run(_requests(found))
    return generate_latest(found.registry)


def agent_page() -> bytes:
    """Return the metrics of an agent with two simulated GPUs after their first poll and a cap."""
    simulation = Simulation(count=2)
    driver = open_gpus(DriverName.SIMULATED, DriverOptions(simulation=simulation))
    node = node_of(driver, acting=True, state_file=None, safe_share=0.7)
    node.set_clocks(NodeClocks(0.7, 0.5))
    node.refresh()
    node.cap_controller.reconcile()
    registry = CollectorRegistry()
    registry.register(GpuMetrics(node, server="n1"))
    return generate_latest(registry)


def _routed() -> Bed:
    engine = Scripted(parts=[*TOKENS, b"data: [DONE]\n\n"], headers=[EVENTS])
    return bed(table(weights={"a": 1.0}), {"a": engine})


async def _requests(found: Bed) -> None:
    for priority in PRIORITIES:
        await found.post(STREAM, headers=[(b"x-fleetwright-priority", priority)])
    found.router.tick()


async def _rounds(guard: Guarding) -> None:
    async with contextlib.aclosing(guard.agents):
        await guard.reconcile(3)  # without a budget, which is an event
        guard.loop.set_budget(BudgetRequest.model_validate(REQUEST))
        with contextlib.suppress(RuleError):
            guard.loop.set_budget(BudgetRequest.model_validate(REQUEST | {"domain": "another"}))
        await guard.reconcile(3)
