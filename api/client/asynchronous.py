"""Provides the client for asyncio code, with the methods, arguments and errors of the blocking client."""

import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self, TypeVar

import httpx

from api.client.calls import Call, connection_errors, next_page
from api.client.methods import AsyncSender, Methods
from api.client.retries import Retries
from api.client.tokens import token_from_environment
from api.client.transport import Timeouts, make_connection, url_from_environment
from api.schemas.pages import Page

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")


class AsyncClient(AsyncSender, Methods):
    """A connection to the service; close it, or use it in an `async with` block.

    `transport` replaces the network: `httpx.ASGITransport(app)` calls a service inside this process.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._connection = make_connection(url=url, token=token, timeouts=timeouts, retries=retries)
        self._http = httpx.AsyncClient(**self._connection.http_options(), transport=transport)

    @classmethod
    def from_environment(cls) -> Self:
        """Read the URL from FLEETWRIGHT_URL, and the token from FLEETWRIGHT_TOKEN or FLEETWRIGHT_TOKEN_FILE."""
        return cls(url_from_environment(os.environ), token=token_from_environment(os.environ))

    def __repr__(self) -> str:
        return f"AsyncClient({str(self._connection.url)!r})"

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
        with connection_errors(call):
            response = await self._http.request(**self._connection.request_options(call))
        return call.answer(response)
