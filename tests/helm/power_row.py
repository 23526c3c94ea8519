"""A row as Prometheus sees it: a real guard over real agents, and the gate of a router."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from functools import cache

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from deploy.routing_metrics import RoutingMetrics
from fleet.documents import RuleError
from power.admission import Gate
from power.controls import Priority
from power.guard import BudgetOrder
from tests.deploy.power_guard.row_of_agents import Guarding, agent_row, guarding

ORDER = {"domain": "row-a", "limits": [{"limit_w": 9000.0}], "valid_s": 600.0}


@cache
def guard_page() -> bytes:
    """What a guard exports after some rounds."""
    with agent_row(2) as row:
        # Forecasts look 20 periods ahead: 40 s.
        guard = guarding(row.config(settings={"period_s": 2.0}, lease_s=4.0))
        asyncio.run(_rounds(guard))
    return generate_latest(guard.registry)


def beside_page() -> bytes:
    """What is exported beside the guard: a router's gate."""
    registry = CollectorRegistry()
    registry.register(_Used())
    return generate_latest(registry)


def use_gate(metrics: RoutingMetrics) -> None:
    """Let a prompt of each priority through and serve it; hold another back."""
    gate: Gate[object] = Gate(low_hold_w=8000.0, high_hold_w=9000.0)
    for priority in Priority:
        gate.offer("first", priority=priority, step_w=1000.0, now_s=0.0)
    for prompt in gate.release(row_w=5000.0, now_s=0.5):
        metrics.started(prompt)
        metrics.served(prompt.priority, latency_s=10.2, uncapped_s=10.0)
    gate.offer("second", priority=Priority.LOW, step_w=5000.0, now_s=1.0)
    metrics.waiting(gate)


@contextlib.contextmanager
def beside(host: str, port: int) -> Iterator[None]:
    """The same behind a socket, growing all the time."""
    registry = CollectorRegistry()
    registry.register(_Used())
    server, thread = start_http_server(port, addr=host, registry=registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Used(Collector):
    """Serves some prompts before each scrape."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._metrics = RoutingMetrics(self._registry, row="row-a")

    def collect(self) -> Iterable[Metric]:
        """After one more use."""
        use_gate(self._metrics)
        return self._registry.collect()


async def _rounds(guard: Guarding) -> None:
    async with guard.agents:
        await guard.rounds(3)  # without a budget: cautious, which is an event
        guard.loop.take(BudgetOrder.model_validate(ORDER))
        with contextlib.suppress(RuleError):
            guard.loop.take(BudgetOrder.model_validate(ORDER | {"domain": "another"}))
        await guard.rounds(3)
