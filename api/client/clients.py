"""Provides `Client`, and `AsyncClient` for asyncio code, with the same methods, arguments and errors."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx

from api.client.calls import Call, call_span, connection_errors, next_page
from api.client.methods import AsyncSender, Methods, Sender
from api.client.retries import Retries
from api.client.tokens import token_from_environment
from api.client.transport import Connection, Timeouts, make_connection, url_from_environment
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

    async def _exchange(self, call: Call[ResultT]) -> ResultT:
        with call_span(call) as sent:
            with connection_errors(call):
                response = await self._http.request(**self._connection.request_options(call))
            sent.set(http__response__status_code=response.status_code)
            return call.result_of(response)
