"""The guard's process: the control loop, its HTTP server, and the budgets that it fetches."""

import socket
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext

from prometheus_client import CollectorRegistry

from deploy.common.clock import Clock
from deploy.common.credentials import read_token_file
from deploy.common.http_server import serve_beside
from deploy.power_guard.agent_client import Agents
from deploy.power_guard.config import BudgetsFrom, GuardFile
from deploy.power_guard.loop import GuardLoop
from deploy.power_guard.metrics import ForecastMetrics, GuardMetrics
from deploy.power_guard.routes import guard_app
from power.policies.registry import policy_named


async def run_guard(config: GuardFile, listener: socket.socket) -> None:
    """Run the guard of a row until it is stopped."""
    registry = CollectorRegistry()
    loop, agents = guard_loop(config, registry=registry)
    token = read_token_file(config.budget_token_file) if config.budget_token_file else None
    app = guard_app(loop, registry=registry, budget_token=token)
    async with aclosing(agents), _fetching(config.budgets_from, loop):
        await serve_beside(app, listener, loop.run())


def _fetching(config_: BudgetsFrom | None, loop: GuardLoop) -> AbstractAsyncContextManager[None]:
    if config_ is None:
        return nullcontext()
    from deploy.power_guard.budget_client import fetching_budgets  # noqa: PLC0415 - the client, large: only where it is needed

    return fetching_budgets(config_, loop=loop)


def guard_loop(
    config: GuardFile, *, registry: CollectorRegistry, clock: Clock | None = None
) -> tuple[GuardLoop, Agents]:
    """Build a loop and its agents; the caller closes the agents."""
    clock = clock or Clock()
    row = config.servers()
    metrics = GuardMetrics(registry, row=config.row, full_clock_hz=row.models[0].full_clock_mhz * 1e6)
    token = read_token_file(config.agent_token_file) if config.agent_token_file else None
    policy = policy_named(config.policy, kinds=row.models, command_delay_s=config.command_delay_s)
    agents = Agents(config=config, token=token, metrics=metrics, steady_s=clock.steady_s)
    forecast_metrics = ForecastMetrics(registry, row=config.row, period_s=config.settings.period_s)
    loop = GuardLoop(
        config=config, policy=policy, agents=agents, metrics=metrics, forecast_metrics=forecast_metrics, clock=clock
    )
    return loop, agents
