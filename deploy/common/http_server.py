"""An HTTP server and its background work in one process: either ends with the other."""

import asyncio
import os
import socket
import ssl
import stat
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from fastapi import FastAPI

GRACE_S = 2  # for responses in flight
KEEP_ALIVE_S = 65  # longer than a guard's longest period


class MutualTls(NamedTuple):
    """The certificate of a server, and the authority of the client certificates that it requires."""

    certificate: Path
    key: Path
    client_authority: Path


def server_of(app: FastAPI, *, tls: MutualTls | None = None) -> uvicorn.Server:
    """Return a server without access log and without a Server header."""
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
    """Serve until a signal; a failure of the work ends the server and is raised."""
    server = server_of(app)
    task = asyncio.create_task(work)
    task.add_done_callback(lambda _done: setattr(server, "should_exit", True))
    await server.serve(sockets=[listener])
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return


def unix_listener(path: Path, *, mode: int) -> socket.socket:
    """Return a Unix socket that never had more permissions than `mode`; the file of a dead process is replaced."""
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
