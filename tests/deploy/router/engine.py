"""An engine double with the OpenAI protocol and without inference: an ASGI application, on a socket or in a replica.

`max_tokens` is the number of tokens, `x-token-ms` the time of each token, and `x-until` a file: until the file exists,
the engine sends no document and no token after the first.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Engine:
    """One replica; records the request bodies."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bodies: list[bytes] = []
        self.in_flight = 0
        self.cut = 0  # requests whose callers disconnected

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """The ASGI entry point."""
        if scope["type"] == "lifespan":
            return
        body = await whole_body(receive)
        self.in_flight += 1
        answering = asyncio.ensure_future(self._answer(dict(scope["headers"]), body, send))
        leaving = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            self.cut += not answering.done()
        except asyncio.CancelledError:
            self.cut += 1
            raise
        finally:
            self.in_flight -= 1
            answering.cancel()
            leaving.cancel()

    async def _answer(self, headers: dict[bytes, bytes], body: bytes, send: Send) -> None:
        began_ns = time.monotonic_ns()  # one clock for all processes of a machine
        self.bodies.append(body)
        request = json.loads(body or b"{}")
        token_s = float(headers.get(b"x-token-ms", b"0")) / 1000
        tokens = int(request.get("max_tokens", 3))
        usage = {"prompt_tokens": len(body) // 3, "completion_tokens": tokens, "total_tokens": len(body) // 3 + tokens}
        gate = headers.get(b"x-until", b"/").decode()
        if not request.get("stream"):
            await _wait_for_file(gate)
            await asyncio.sleep(token_s * tokens)
            text: dict[str, Any] = {
                "id": "1",
                "choices": [{"message": {"content": "x" * tokens}}],
                "usage": usage,
                "on": self.name,
            }
            text["began_ns"] = began_ns
            await _start(send, b"application/json")
            await send({"type": "http.response.body", "body": json.dumps(text).encode()})
            return
        await _start(send, b"text/event-stream")
        for at in range(tokens):
            if at:
                await _wait_for_file(gate)
            await asyncio.sleep(token_s)
            await _event(send, {"choices": [{"delta": {"content": f"t{at} "}}], "on": self.name})
        if (request.get("stream_options") or {}).get("include_usage"):
            await _event(send, {"choices": [], "usage": usage})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def _wait_for_file(gate: str) -> None:
    while not Path(gate).exists():  # noqa: ASYNC240 - on this machine, and now and then
        await asyncio.sleep(0.01)


async def whole_body(receive: Receive) -> bytes:
    """The whole body of a request."""
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send, kind: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})


async def _event(send: Send, content: dict[str, Any]) -> None:
    event = b"data: " + json.dumps(content).encode() + b"\n\n"
    await send({"type": "http.response.body", "body": event, "more_body": True})
