"""ASGI applications on sockets of this machine, in the event loop of a test."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

LOOPBACK = "127.0.0.1"


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """Serve the application in the block and yield its address."""
    listener = socket.create_server((LOOPBACK, 0))
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined] # the test run keeps its own handlers
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


def nobody() -> str:
    """An address at which nothing listens."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        return f"http://{LOOPBACK}:{listener.getsockname()[1]}"
