"""A page that all its readers share, for pages that anyone may read: however many ask, the work is bounded."""

import asyncio
from collections.abc import Awaitable, Callable


class SharedPage:
    """Renders a page at most once per interval.  Requests during a rendering wait for the same one."""

    def __init__(self, *, interval_s: float, monotonic_s: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._monotonic_s = monotonic_s
        self._started_s = 0.0
        self._rendering: asyncio.Future[bytes] | None = None

    async def get(self, render: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the newest page; a failed one is rendered again for the next request."""
        last = self._rendering
        if last is None or (last.done() and (self._is_old() or last.cancelled() or last.exception() is not None)):
            self._started_s = self._monotonic_s()
            last = self._rendering = asyncio.ensure_future(render())
        return await asyncio.shield(last)

    async def close(self) -> None:
        """Wait for the rendering in progress, whose readers may have left."""
        if self._rendering is not None:
            await asyncio.gather(self._rendering, return_exceptions=True)

    def _is_old(self) -> bool:
        return self._monotonic_s() - self._started_s >= self._interval_s
