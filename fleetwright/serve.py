"""Calls a Ray Serve deployment's ASGI application through a handle instead of HTTP, so that the router can use it.

    class Engine:
        def __init__(self) -> None:
            self._app = build_app(...)      # vLLM, SGLang, FastAPI: any ASGI application

        async def answer_openai(self, method, target, headers, body):
            async for part in stream_response(self._app, method, target, headers, body):
                yield part

The first part is (status, headers); the body follows as the application sends it.  A cancelled request cancels the
application's task.  The builder of the application runs its lifespan.  `is_request_for` and `send_json` help small ASGI
applications.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

METHOD = "answer_openai"  # of a deployment whose application the router uses

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]
Part = tuple[int, list[tuple[bytes, bytes]]] | bytes


async def stream_response(
    app: AsgiApp, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> AsyncIterator[Part]:
    """Run one request.  Raise what the application raises."""
    call = _Call(body)
    running = asyncio.ensure_future(app(_scope(method, target, headers), call.receive, call.send))
    running.add_done_callback(lambda _done: call.sent.put_nowait(None))
    try:
        while (part := await call.sent.get()) is not None:
            yield part
        await running
    finally:
        running.cancel()


class _Call:
    def __init__(self, body: bytes) -> None:
        self.sent: asyncio.Queue[Part | None] = asyncio.Queue()
        self._body: bytes | None = body

    async def receive(self) -> Message:
        """Return the whole body; the caller ends a request by cancellation."""
        if self._body is None:
            await asyncio.get_running_loop().create_future()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Queue the status line with headers, and parts of the body."""
        if message["type"] == "http.response.start":
            self.sent.put_nowait((message["status"], [(bytes(n), bytes(v)) for n, v in message.get("headers", ())]))
        elif message["type"] == "http.response.body" and message.get("body"):
            self.sent.put_nowait(bytes(message["body"]))


def below(root: str, path: str) -> str:
    """Return the path without the prefix of the mount point."""
    root = root.rstrip("/")
    return path[len(root) :] or "/" if root and (path + "/").startswith(root + "/") else path


def is_request_for(path: str, scope: Mapping[str, Any]) -> bool:
    """Return whether this is a request for exactly this path of the application."""
    return scope["type"] == "http" and below(scope.get("root_path", ""), str(scope.get("path", ""))) == path


async def send_json(send: Send, status: int, body: Mapping[str, Any]) -> None:
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


def _scope(method: str, target: str, headers: list[tuple[bytes, bytes]]) -> MutableMapping[str, Any]:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "root_path": "",
        "query_string": query.encode("latin-1"),
        "headers": [*headers, (b"host", b"router")],
        "client": None,
        "server": None,
    }
