"""The guard's process: the control loop, its HTTP server, and the budgets that it fetches.

A guard that discovers its agents starts when the first ones respond.  A new address of an agent is used at once.  When
a server joins or leaves the row, the loop starts again with the new row and the budget in force; the leases of the
agents last longer than that.
"""

import asyncio
import socket
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext

import structlog
from prometheus_client import CollectorRegistry

from deploy.common.clock import Clock
from deploy.common.credentials import read_token_file
from deploy.common.http_server import ServerTls, serve_beside
from deploy.power_guard.agent_client import Agents
from deploy.power_guard.agent_discovery import AgentFinder
from deploy.power_guard.config import BudgetsFrom, GuardFile
from deploy.power_guard.loop import GuardLoop
from deploy.power_guard.metrics import ForecastMetrics, GuardMetrics
from deploy.power_guard.routes import guard_app, waiting_app
from power.guard import Timetable
from power.policies.registry import policy_named

log = structlog.get_logger()


async def run_guard(config: GuardFile, listener: socket.socket, *, tls: ServerTls | None = None) -> None:
    """Run the guard of a row until it is stopped."""
    if config.discover is None:
        await _run_row(config, listener, tls=tls)
        return
    token = read_token_file(config.agent_token_file) if config.agent_token_file else None
    async with aclosing(AgentFinder(config.discover, tls=config.agent_tls, token=token)) as finder:
        budget = None
        while True:
            if not finder.entries():  # at the start, and after all agents have left
                await serve_beside(waiting_app(config.row), listener.dup(), finder.first(), tls=tls)
            row = config.with_agents(finder.entries())
            budget = await _run_row(row, listener.dup(), tls=tls, finder=finder, budget=budget)
            log.info("row_changed", row=config.row, servers=len(finder.entries()))


async def _run_row(
    config: GuardFile,
    listener: socket.socket,
    *,
    tls: ServerTls | None,
    finder: AgentFinder | None = None,
    budget: Timetable | None = None,
) -> Timetable | None:
    """Run until stopped, or until the finder's servers change; return the budget then in force."""
    registry = CollectorRegistry()
    loop, agents = guard_loop(config, registry=registry, server_name=finder.server_name if finder is not None else None)
    loop.budget = budget
    token = read_token_file(config.budget_token_file) if config.budget_token_file else None
    app = guard_app(loop, registry=registry, budget_token=token)
    work = loop.run() if finder is None else _until_changed(loop, finder, agents)
    async with aclosing(agents), _fetching(config.budgets_from, loop):
        await serve_beside(app, listener, work, tls=tls)
    return loop.budget


async def _until_changed(loop: GuardLoop, finder: AgentFinder, agents: Agents) -> None:
    running = asyncio.create_task(loop.run())
    try:
        await finder.changed(agents)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _fetching(config_: BudgetsFrom | None, loop: GuardLoop) -> AbstractAsyncContextManager[None]:
    if config_ is None:
        return nullcontext()
    from deploy.power_guard.budget_client import fetching_budgets  # noqa: PLC0415 - the client, large: only where it is needed

    return fetching_budgets(config_, loop=loop)


def guard_loop(
    config: GuardFile,
    *,
    registry: CollectorRegistry,
    clock: Clock | None = None,
    server_name: str | None = None,
) -> tuple[GuardLoop, Agents]:
    """Build a loop and its agents; the caller closes the agents."""
    clock = clock or Clock()
    row = config.servers()
    metrics = GuardMetrics(registry, row=config.row, full_clock_hz=row.models[0].full_clock_mhz * 1e6)
    token = read_token_file(config.agent_token_file) if config.agent_token_file else None
    policy = policy_named(config.policy, kinds=row.models, command_delay_s=config.command_delay_s)
    agents = Agents(config=config, token=token, metrics=metrics, steady_s=clock.steady_s, server_name=server_name)
    forecast_metrics = ForecastMetrics(registry, row=config.row, period_s=config.settings.period_s)
    loop = GuardLoop(
        config=config, policy=policy, agents=agents, metrics=metrics, forecast_metrics=forecast_metrics, clock=clock
    )
    return loop, agents
