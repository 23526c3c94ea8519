"""A page that all its readers share, for pages that anyone may read: however many ask, the work is bounded."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Page = TypeVar("Page")


class SharedPage(Generic[Page]):
    """Renders a page at most once per interval.  Requests during a rendering wait for the same one."""

    def __init__(self, *, interval_s: float, monotonic_s: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._monotonic_s = monotonic_s
        self._started_s = 0.0
        self._rendering: asyncio.Future[Page] | None = None
        self.newest: Page | None = None  # for readers that prefer an old page to none

    async def get(self, render: Callable[[], Awaitable[Page]]) -> Page:
        """Return the newest page; a failed one is rendered again for the next request."""
        last = self._rendering
        if last is None or (last.done() and (self._is_old() or last.cancelled() or last.exception() is not None)):
            self._started_s = self._monotonic_s()
            last = self._rendering = asyncio.ensure_future(render())
        self.newest = await asyncio.shield(last)
        return self.newest

    async def close(self) -> None:
        """Wait for the rendering in progress, whose readers may have left."""
        if self._rendering is not None:
            await asyncio.gather(self._rendering, return_exceptions=True)

    def _is_old(self) -> bool:
        return self._monotonic_s() - self._started_s >= self._interval_s
