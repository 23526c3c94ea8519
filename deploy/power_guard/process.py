"""A server and the work beside it, in one process: either ends with the other."""

import asyncio
import os
import socket
import ssl
import stat
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from deploy.common.clock import Clock
from deploy.common.token_file import read_token_file
from deploy.node_agent.agent import NodeAgent
from deploy.node_agent.gpu.node import GpuNode
from deploy.node_agent.routes import agent_app
from deploy.power_guard.agent_client import Agents
from deploy.power_guard.config import BudgetsFrom, GuardFile
from deploy.power_guard.forecast_metrics import Outlook
from deploy.power_guard.loop import GuardLoop
from deploy.power_guard.metrics import GuardMetrics
from deploy.power_guard.routes import guard_app
from power.policies.registry import policy_named

GRACE_S = 2  # for answers in flight
KEEP_ALIVE_S = 65  # longer than a guard's longest period


class MutualTls(NamedTuple):
    """What a server shows, and whose clients it lets in: nobody without a certificate of that authority."""

    certificate: Path
    key: Path
    client_authority: Path


def server_of(app: FastAPI, *, tls: MutualTls | None = None) -> uvicorn.Server:
    """A quiet server that shows nothing of itself."""
    config = uvicorn.Config(
        app,
        ssl_certfile=tls and tls.certificate,
        ssl_keyfile=tls and tls.key,
        ssl_ca_certs=tls and str(tls.client_authority),
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls else ssl.CERT_NONE,
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


async def run_agent(
    agent: NodeAgent,
    listener: socket.socket,
    *,
    token: str | None,
    gpus: GpuNode | None = None,
    tls: MutualTls | None = None,
    beside: AbstractContextManager[None] | None = None,
) -> None:
    """The agent of a node, until told to end, and what runs beside it."""
    await server_of(agent_app(agent, token=token, gpus=gpus, beside=beside), tls=tls).serve(sockets=[listener])


def unix_listener(path: Path, *, mode: int) -> socket.socket:
    """A socket in the file system that was never open to more than `mode` says; what a killed process left goes."""
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        return asking.connect_ex(str(path)) == 0


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
    from deploy.power_guard.budget_client import asking  # noqa: PLC0415 - the client, large: only where it is needed

    return asking(said, loop=loop)


def guard_loop(
    config: GuardFile, *, registry: CollectorRegistry, clock: Clock | None = None
) -> tuple[GuardLoop, Agents]:
    """A loop and the agents that it speaks to; whoever runs it closes them."""
    clock = clock or Clock()
    row = config.servers()
    metrics = GuardMetrics(registry, row=config.row, full_clock_hz=row.models[0].full_clock_mhz * 1e6)
    token = read_token_file(config.agent_token_file) if config.agent_token_file else None
    policy = policy_named(config.policy, kinds=row.models, command_delay_s=config.command_delay_s)
    agents = Agents(config=config, token=token, metrics=metrics, steady_s=clock.steady_s)
    outlook = Outlook(registry, row=config.row, period_s=config.settings.period_s)
    loop = GuardLoop(config=config, policy=policy, agents=agents, metrics=metrics, outlook=outlook, clock=clock)
    return loop, agents
