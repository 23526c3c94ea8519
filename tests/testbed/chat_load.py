"""Runs background callers of a chat service, each with one request at a time, and records their responses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import httpx

from tests.testbed.waiting import PATIENCE_S

CALLERS = 6


@dataclass(kw_only=True)
class ChatLoad:
    http: httpx.AsyncClient
    url: str
    tokens: int  # of a response
    streams: tuple[bool, ...] = (True, False)  # alternating: streamed, not streamed
    headers: Mapping[str, str] = field(default_factory=dict)
    on_response: Callable[[dict[str, Any]], object] | None = (
        None  # receives each complete response that is not streamed
    )
    whole: int = 0
    faults: list[str] = field(default_factory=list)
    over: bool = False

    async def some_more(self) -> None:
        """Wait until each caller has completed one more request, or one has failed."""
        enough = self.whole + 2 * CALLERS
        async with asyncio.timeout(PATIENCE_S):
            while self.whole < enough and not self.faults:
                await asyncio.sleep(0.05)

    async def keep_calling(self) -> None:
        for stream in cycle(self.streams):
            if self.over:
                return
            try:
                await self._call(stream=stream)
            except httpx.HTTPError as error:
                self.faults.append(repr(error))

    async def first_answer(self) -> None:
        """Wait until the router knows the running replicas, which it polls every second."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.http.get(f"{self.url}/v1/models")).status_code != 200:
                await asyncio.sleep(0.1)

    async def _call(self, *, stream: bool) -> None:
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": self.tokens}
        response = await self.http.post(
            f"{self.url}/v1/chat/completions", json=body | {"stream": stream}, headers=self.headers
        )
        if response.status_code != 200 or not is_whole(response, tokens=self.tokens):
            self.faults.append(f"{response.status_code}: {response.text[-300:]}")
            return
        self.whole += 1
        if self.on_response is not None and not stream:
            self.on_response(response.json())


def is_whole(response: httpx.Response, *, tokens: int) -> bool:
    """Check that the response has all its tokens and, if it is a stream, its end."""
    if response.headers["content-type"] == "text/event-stream":
        events, deltas = response.text.count("data: {"), response.text.count('"delta"')
        return events == deltas == tokens and response.text.endswith("data: [DONE]\n\n")
    return bool(response.json()["usage"]["completion_tokens"] == tokens)


@asynccontextmanager
async def calling(load: ChatLoad) -> AsyncIterator[ChatLoad]:
    """Run all callers from the first response on; each finishes its current request at the end."""
    await load.first_answer()
    callers = [asyncio.create_task(load.keep_calling()) for _ in range(CALLERS)]
    try:
        yield load
    finally:
        load.over = True
        await asyncio.gather(*callers)
