"""A server and the work beside it, in one process: either ends with the other."""

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from deploy.guard.agent import NodeAgent
from deploy.guard.agent_app import agent_app
from deploy.guard.agents import Agents
from deploy.guard.bearer import read_token_file
from deploy.guard.config import BudgetsFrom, GuardFile
from deploy.guard.guard_app import guard_app
from deploy.guard.loop import GuardLoop
from deploy.guard.metrics import GuardMetrics
from deploy.outlook import Outlook
from power.policies.registry import policy_named

GRACE_S = 2  # for answers in flight
KEEP_ALIVE_S = 65  # longer than a guard's longest period


def server_of(app: FastAPI) -> uvicorn.Server:
    """A quiet server that shows nothing of itself."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    return uvicorn.Server(config)


async def serve_beside(app: FastAPI, listener: socket.socket, work: Coroutine[Any, Any, None]) -> None:
    """Serve until told to end; a failure of the work ends the process, and its reason is raised."""
    server = server_of(app)
    task = asyncio.create_task(work)
    task.add_done_callback(lambda _done: setattr(server, "should_exit", True))
    await server.serve(sockets=[listener])
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return


async def run_agent(agent: NodeAgent, listener: socket.socket, *, token: str | None) -> None:
    """The agent of a node, until told to end."""
    await server_of(agent_app(agent, token=token)).serve(sockets=[listener])


async def run_guard(config: GuardFile, listener: socket.socket) -> None:
    """The guard of a row, until told to end."""
    registry = CollectorRegistry()
    loop, agents = guard_loop(config, registry=registry)
    token = read_token_file(config.budget_token_file) if config.budget_token_file else None
    app = guard_app(loop, registry=registry, budget_token=token)
    async with agents, _fetching(config.budgets_from, loop):
        await serve_beside(app, listener, loop.run())


def _fetching(said: BudgetsFrom | None, loop: GuardLoop) -> AbstractAsyncContextManager[None]:
    if said is None:
        return nullcontext()
    from deploy.guard.asking import asking  # noqa: PLC0415 - the client, large: only where it is needed

    return asking(said, loop=loop)


def guard_loop(config: GuardFile, *, registry: CollectorRegistry) -> tuple[GuardLoop, Agents]:
    """A loop and the agents that it speaks to; whoever runs it closes them."""
    row = config.servers()
    metrics = GuardMetrics(registry, row=config.row, full_clock_hz=row.models[0].full_clock_mhz * 1e6)
    token = read_token_file(config.agent_token_file) if config.agent_token_file else None
    policy = policy_named(config.policy, kinds=row.models, command_delay_s=config.command_delay_s)
    agents = Agents(config=config, token=token, metrics=metrics)
    outlook = Outlook(registry, row=config.row, period_s=config.settings.period_s)
    return GuardLoop(config=config, policy=policy, agents=agents, metrics=metrics, outlook=outlook), agents
