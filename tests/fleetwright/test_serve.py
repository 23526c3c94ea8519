"""An engine's ASGI application called by a handle: the same response as on a socket, cancelled with its caller."""

import asyncio
import json
from typing import Any

import pytest

from fleetwright.serve import stream_response
from tests.deploy.router.engine import Engine
from tests.deploy.router.waiting import until

pytestmark = pytest.mark.anyio

BODY = b'{"max_tokens": 2, "stream": true}'


async def test_the_head_comes_first_and_then_the_body_parts_as_sent() -> None:
    engine = Engine("e")
    head, *body = [part async for part in stream_response(engine, "POST", "/v1/chat/completions", [], BODY)]
    assert head == (200, [(b"content-type", b"text/event-stream")])
    events = [json.loads(part.removeprefix(b"data: ")) for part in body[:-1] if isinstance(part, bytes)]
    assert [event["choices"][0]["delta"]["content"] for event in events] == ["t0 ", "t1 "]
    assert body[-1] == b"data: [DONE]\n\n"


async def test_the_application_receives_the_request_unchanged() -> None:
    received: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        received.update(scope, body=(await receive())["body"])
        await send({"type": "http.response.start", "status": 204})

    parts = [part async for part in stream_response(app, "PUT", "/v1/a%20b?q=%20", [(b"x", b"1")], b"raw")]
    assert parts == [(204, [])]
    assert (received["method"], received["path"], received["query_string"], received["body"]) == (
        "PUT",
        "/v1/a b",
        b"q=%20",
        b"raw",
    )
    assert (b"x", b"1") in received["headers"]


async def test_closing_the_response_cancels_the_request() -> None:
    engine = Engine("e")
    parts = stream_response(engine, "POST", "/", [(b"x-token-ms", b"1")], b'{"max_tokens": 100000, "stream": true}')
    await anext(parts)
    await anext(parts)
    assert engine.in_flight == 1
    await parts.aclose()  # type: ignore[attr-defined] # a generator, which Serve closes as well
    await until(lambda: engine.cut == 1)


async def test_an_exception_of_the_application_is_raised() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await asyncio.sleep(0)
        raise ValueError("out of memory")

    parts = stream_response(app, "POST", "/", [], b"")
    assert await anext(parts) == (200, [])
    with pytest.raises(ValueError, match="out of memory"):
        await anext(parts)
