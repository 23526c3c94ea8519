"""Keeps a `fleetwright worker` as a child of the service on SQLite, so that one command does everything.

The child ends when its standard input closes, which the system does however the service ends.
"""

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import httpx
import structlog

from api.server import Settings

NAME: Final = "embedded"  # of the only worker on SQLite: after a kill the next one takes its jobs over at once
RESTART_S: Final = 1.0
END_S: Final = 10.0
METRICS_S: Final = 2.0
Page = Callable[[], Awaitable[bytes]]

log = structlog.get_logger(__name__)


async def keep_worker(settings: Settings, pages: list[Page]) -> None:
    """Run the worker until cancelled; start it again when it ends.  `pages` gets the page of its metrics."""
    port = free_port()
    pages.append(partial(_metrics, f"http://127.0.0.1:{port}/metrics"))
    environment = os.environ | {
        "FLEETWRIGHT_DATABASE_URL": settings.database_url.get_secret_value(),
        "FLEETWRIGHT_LOG_LEVEL": settings.log_level,
        "FLEETWRIGHT_LOG_FORMAT": settings.log_format.value,
    }
    shared = not environment["FLEETWRIGHT_DATABASE_URL"].startswith("sqlite")
    name = f"{NAME}-{secrets.token_hex(4)}" if shared else NAME
    arguments = ("-m", "api.cli", "worker", "--name", name, "--embedded", "--metrics-port", str(port))
    while True:
        child = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=asyncio.subprocess.PIPE, env=environment, start_new_session=True
        )
        try:
            code = await child.wait()
        except asyncio.CancelledError:
            await _end(child)
            raise
        log.warning("worker_ended", exit_code=code, restart_s=RESTART_S)
        await asyncio.sleep(RESTART_S)


async def _metrics(url: str) -> bytes:
    """Return the metrics of the worker; nothing while it starts."""
    try:
        async with httpx.AsyncClient(timeout=METRICS_S, trust_env=False) as client:
            response = await client.get(url)
    except httpx.HTTPError:
        return b""
    return response.content if response.is_success else b""


def free_port() -> int:
    """Return a port of loopback without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number: int = probe.getsockname()[1]
        return number


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.stdin is not None:
        child.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), END_S)
        return
    with suppress(ProcessLookupError):
        child.kill()
    await child.wait()
