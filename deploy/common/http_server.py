"""HTTP servers of processes: sockets, TLS, a bearer token, a limit on bodies, and background work beside the server."""

import asyncio
import hmac
import os
import socket
import ssl
import stat
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

GRACE_S = 2  # for responses in flight
KEEP_ALIVE_S = 65  # longer than a guard's longest period


class ServerTls(NamedTuple):
    """The certificate of a server, and the authority of the client certificates that it requires, if it does."""

    certificate: Path
    key: Path
    client_authority: Path | None = None


def server_of(app: FastAPI, *, tls: ServerTls | None = None) -> uvicorn.Server:
    """Return a server without access log and without a Server header."""
    config = uvicorn.Config(
        app,
        ssl_certfile=tls and tls.certificate,
        ssl_keyfile=tls and tls.key,
        ssl_ca_certs=str(tls.client_authority) if tls and tls.client_authority else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.client_authority else ssl.CERT_NONE,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    return uvicorn.Server(config)


async def serve_beside(
    app: FastAPI, listener: socket.socket, work: Coroutine[Any, Any, None], *, tls: ServerTls | None = None
) -> None:
    """Serve until a signal, or until the work ends; its failure is raised."""
    server = server_of(app, tls=tls)
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
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _accepts_connections(path):
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


def bearer(token: str | None) -> Callable[[Request], None]:
    """Return a FastAPI dependency that requires the token; without a token every request is accepted."""

    def check(request: Request) -> None:
        if token is None:
            return
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "expected the bearer token of this process", {"WWW-Authenticate": "Bearer"})

    return check


class BodyLimit:
    """Reject bodies over a size: at once by their Content-Length, else as soon as the limit is exceeded.

    Bodies are read before authentication.
    """

    def __init__(self, app: ASGIApp, *, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdigit() and int(announced[:20]) > self._limit_bytes:
            refusal = {"title": "Content Too Large", "status": 413, "detail": self._detail()}
            await JSONResponse(refusal, 413, {"Connection": "close"})(scope, receive, send)
            return
        seen_bytes = 0

        async def receive_limited() -> Message:
            nonlocal seen_bytes
            message = await receive()
            seen_bytes += len(message.get("body", b""))
            if seen_bytes > self._limit_bytes:
                # FastAPI does not convert this one type while it reads a body.
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._detail(), {"Connection": "close"})
            return message

        await self._app(scope, receive_limited, send)

    def _detail(self) -> str:
        return f"the body is over {self._limit_bytes} bytes"


def _accepts_connections(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0
