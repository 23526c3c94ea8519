"""Provides `Client`, and `AsyncClient` for asyncio code, with the same methods, arguments and errors."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx

from api.client.calls import Call, call_span, connection_errors, next_page
from api.client.event_operations import EventStream
from api.client.methods import AsyncSender, Methods, Sender
from api.client.retries import Retries
from api.client.tokens import token_from_environment
from api.client.transport import Connection, Timeouts, make_connection, url_from_environment
from api.schemas.events import ChangeEvent
from api.schemas.pages import Page

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")


class _Connected:
    """Holds the connection of a client.  `transport` of a client replaces the network."""

    _connection: Connection

    def __init__(self, url: str, *, token: str | Path | None = None, project: str | None = None) -> None:
        raise NotImplementedError

    @classmethod
    def from_environment(cls) -> Self:
        """Read the URL from FLEETWRIGHT_URL, and the token from FLEETWRIGHT_TOKEN or FLEETWRIGHT_TOKEN_FILE."""
        return cls(url_from_environment(os.environ), token=token_from_environment(os.environ))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._connection.url)!r})"


class Client(_Connected, Sender, Methods):
    """A connection to the service; close it, or use it in a `with` block.

    `project` is the one of everything that the client reads and creates; None: that of the token, or all.
    `transport` replaces the network, for tests and for calls inside one process.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | Path | None = None,
        project: str | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._connection = make_connection(url=url, token=token, timeouts=timeouts, retries=retries, project=project)
        self._http = httpx.Client(**self._connection.http_options(), transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: Call[ResultT]) -> ResultT:
        """Send one call, and repeat it where that is safe."""
        for attempt in self._connection.retries.context(call):
            with attempt:
                return self._exchange(call)
        raise AssertionError("the last attempt returns or raises")

    def pages(self, call: Call[Page[ItemT]]) -> Iterator[ItemT]:
        """Iterate over the items of this page and of all that follow."""
        following: Call[Page[ItemT]] | None = call
        while following is not None:
            page = self.send(following)
            yield from page.items
            following = next_page(following, page)

    def events(self, stream: EventStream) -> Iterator[ChangeEvent]:
        """Iterate over the events of a stream, and connect again after a lost connection."""
        while True:
            with ExitStack() as connection:
                response = self._opened(stream.next_call(), connection)
                try:
                    for line in response.iter_lines():
                        yield from stream.events(line)
                    if not stream.follows:
                        return
                except httpx.RequestError:
                    pass  # the next connection resumes after the last event
            time.sleep(self._connection.retries.wait_first_s)

    def _opened(self, call: Call[ResultT], connection: ExitStack) -> httpx.Response:
        for attempt in self._connection.retries.context(call):
            with attempt, connection_errors(call):
                response = connection.enter_context(self._http.stream(**self._connection.request_options(call)))
                if response.status_code not in call.expects:
                    response.read()
                    call.result_of(response)  # raises
                return response
        raise AssertionError("the last attempt returns or raises")

    def _exchange(self, call: Call[ResultT]) -> ResultT:
        with call_span(call) as sent:
            with connection_errors(call):
                response = self._http.request(**self._connection.request_options(call))
            sent.set(http__response__status_code=response.status_code)
            return call.result_of(response)


class AsyncClient(_Connected, AsyncSender, Methods):
    """A connection to the service; close it, or use it in an `async with` block.

    `project` is the one of everything that the client reads and creates; None: that of the token, or all.
    `transport` replaces the network: `InProcessTransport(app)` calls a service inside this process.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | Path | None = None,
        project: str | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._connection = make_connection(url=url, token=token, timeouts=timeouts, retries=retries, project=project)
        self._http = httpx.AsyncClient(**self._connection.http_options(), transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: Call[ResultT]) -> ResultT:
        """Send one call, and repeat it where that is safe."""
        async for attempt in self._connection.retries.context(call):
            with attempt:
                return await self._exchange(call)
        raise AssertionError("the last attempt returns or raises")

    async def pages(self, call: Call[Page[ItemT]]) -> AsyncIterator[ItemT]:
        """Iterate over the items of this page and of all that follow."""
        following: Call[Page[ItemT]] | None = call
        while following is not None:
            page = await self.send(following)
            for item in page.items:
                yield item
            following = next_page(following, page)

    async def events(self, stream: EventStream) -> AsyncIterator[ChangeEvent]:
        """Iterate over the events of a stream, and connect again after a lost connection."""
        while True:
            async with AsyncExitStack() as connection:
                response = await self._opened(stream.next_call(), connection)
                try:
                    async for line in response.aiter_lines():
                        for event in stream.events(line):
                            yield event
                    if not stream.follows:
                        return
                except httpx.RequestError:
                    pass  # the next connection resumes after the last event
            await asyncio.sleep(self._connection.retries.wait_first_s)

    async def _opened(self, call: Call[ResultT], connection: AsyncExitStack) -> httpx.Response:
        async for attempt in self._connection.retries.context(call):
            with attempt, connection_errors(call):
                options = self._connection.request_options(call)
                response = await connection.enter_async_context(self._http.stream(**options))
                if response.status_code not in call.expects:
                    await response.aread()
                    call.result_of(response)  # raises
                return response
        raise AssertionError("the last attempt returns or raises")

    async def _exchange(self, call: Call[ResultT]) -> ResultT:
        with call_span(call) as sent:
            with connection_errors(call):
                response = await self._http.request(**self._connection.request_options(call))
            sent.set(http__response__status_code=response.status_code)
            return call.result_of(response)
