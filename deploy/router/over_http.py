"""Engines on HTTP, each replica at its own address.

aiohttp comes with the extra `ray` and uses a fifth of httpx's CPU time for these requests.  Responses are not
decompressed, redirects are not followed, and cookies are not kept.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from deploy.common.backoff import Backoff
from deploy.common.clock import Clock
from deploy.router.errors import UpstreamError
from deploy.router.openai import Question
from deploy.router.upstream import Head

CONNECT_S = 3.0
KEEP_ALIVE_S = 4.0  # less than the 5 s after which uvicorn, which most engines run on, closes an idle connection
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.5, 10.0  # of an address that did not respond
_OUR_OWN = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")  # headers that aiohttp would add


class HttpAnswer:
    """A response that aiohttp reads."""

    def __init__(self, response: Any, *, name: str, ended: Callable[[], None]) -> None:
        self.head = Head(status=response.status, headers=response.raw_headers)
        self._response = response
        self._name = name
        self._ended: Callable[[], None] | None = ended

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except _failures() as error:
            raise UpstreamError(f"{self._name} failed during its response: {_reason(error)}") from error

    def close(self) -> None:
        """Close the connection where the response has not ended."""
        self._response.close()
        if self._ended is not None:
            self._ended()
            self._ended = None


class HttpUpstream:
    """Sends requests to one deployment of engines on HTTP."""

    def __init__(self, name: str, urls: Sequence[str], *, silence_s: float, clock: Clock | None = None) -> None:
        """`silence_s`: the longest time between two parts of a response, the first included."""
        import aiohttp  # noqa: PLC0415 - an extra

        self._name = name
        self._clock = clock or Clock()
        self._in_flight = dict.fromkeys((url.rstrip("/") for url in urls), 0)
        self._backoff = Backoff(first_s=FIRST_BACKOFF_S, most_s=MAX_BACKOFF_S)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s),
            auto_decompress=False,
            skip_auto_headers=_OUR_OWN,
            trust_env=False,
        )

    async def ask(self, question: Question) -> HttpAnswer:
        """Send to the address with the fewest requests in flight, among those that responded last time."""
        url = self._least_loaded()
        self._in_flight[url] += 1
        try:
            response = await self._request(url, question)
        except _failures() as error:
            self._in_flight[url] -= 1
            self._backoff.failed(url, now_s=self._clock.steady_s())
            raise UpstreamError(f"{self._name} did not respond: {_reason(error)}") from error
        except BaseException:
            self._in_flight[url] -= 1
            raise
        self._backoff.succeeded(url)
        return HttpAnswer(response, name=self._name, ended=lambda: self._ended(url))

    def abandon(self) -> None:
        """Connections of engines that are gone close by themselves."""

    async def close(self) -> None:
        """Close idle connections too."""
        await self._session.close()

    async def _request(self, url: str, question: Question) -> Any:
        from yarl import URL  # noqa: PLC0415 - comes with aiohttp

        return await self._session.request(
            question.method,
            _address(URL(url), question.target),
            headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in question.headers],
            data=question.body or None,
            allow_redirects=False,
        )

    def _least_loaded(self) -> str:
        now_s = self._clock.steady_s()
        awake = [url for url in self._in_flight if self._backoff.is_due(url, now_s=now_s)]
        return min(awake or self._in_flight, key=self._in_flight.__getitem__)

    def _ended(self, url: str) -> None:
        self._in_flight[url] -= 1


def _address(base: Any, target: str) -> Any:
    """Return the target below the replica's address; the target cannot change scheme, host or port."""
    path, _, query = target.partition("?")
    below = f"{base.raw_path.rstrip('/')}/{path.removeprefix('/')}"
    return type(base).build(
        scheme=base.scheme, authority=base.raw_authority, path=below, query_string=query, encoded=True
    )


def _failures() -> tuple[type[Exception], ...]:
    import aiohttp  # noqa: PLC0415 - an extra

    return aiohttp.ClientError, OSError, asyncio.TimeoutError


def _reason(error: Exception) -> str:
    """Return the reason without the address, which callers must not get."""
    return type(error).__name__
