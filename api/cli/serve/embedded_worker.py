"""Keeps a `fleetwright worker` as a child of the service on SQLite, so that one command does everything.

The child ends when its standard input closes, which the system does however the service ends.
"""

import asyncio
import os
import sys
from contextlib import suppress
from typing import Final

import structlog

from api.server import Settings

NAME: Final = "embedded"
RESTART_S: Final = 1.0
END_S: Final = 10.0

log = structlog.get_logger(__name__)


async def keep_worker(settings: Settings) -> None:
    """Run the worker until cancelled; start it again when it ends."""
    environment = os.environ | {
        "FLEETWRIGHT_DATABASE_URL": settings.database_url.get_secret_value(),
        "FLEETWRIGHT_LOG_LEVEL": settings.log_level,
        "FLEETWRIGHT_LOG_FORMAT": settings.log_format.value,
    }
    arguments = ("-m", "api.cli", "worker", "--name", NAME, "--ends-with-stdin", "--metrics-port", "0")
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


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.stdin is not None:
        child.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), END_S)
        return
    with suppress(ProcessLookupError):
        child.kill()
    await child.wait()
