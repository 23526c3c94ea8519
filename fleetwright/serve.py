"""Calls a Ray Serve deployment's ASGI application through a handle instead of HTTP, so that the router can use it.

    class Engine:
        def __init__(self) -> None:
            self._app = build_app(...)      # vLLM, SGLang, FastAPI: any ASGI application

        async def answer_openai(self, method, target, headers, body):
            async for part in answered(self._app, method, target, headers, body):
                yield part

The first part is (status, headers); the body follows as the application sends it.  A cancelled request cancels the
application's task.  The builder of the application runs its lifespan.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
Part = tuple[int, list[tuple[bytes, bytes]]] | bytes


async def answered(
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
    """Both directions of one request."""

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
