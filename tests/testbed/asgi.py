"""Serves an ASGI application on loopback, in a thread of the test."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.testbed.processes import LOOPBACK
from tests.testbed.waiting import PATIENCE_S, wait_for


@contextmanager
def serving(app: Any, *beside: Callable[[], Awaitable[None]]) -> Iterator[str]:
    """Yield the URL of the application; `beside` runs in the same event loop until the end of the block."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined] # the test run keeps its own handlers

    async def serve(listener: socket.socket) -> None:
        tasks = [asyncio.ensure_future(work()) for work in beside]
        await server.serve(sockets=[listener])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with socket.create_server((LOOPBACK, 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(serve(listener)), daemon=True)
        thread.start()
        wait_for(lambda: server.started, what="server")
        try:
            yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=PATIENCE_S)
