"""Blocking calls from an event loop: in threads, at most one call of each kind at a time.

A call cannot be cancelled: its caller may give up, and its thread continues.  So the next call of its kind starts only
after it has returned.  One thread per call would accumulate threads, and the loop's own pool would run out of threads
for other work such as name lookups.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from deploy.common.errors import UnreachableError

LIMIT_S: Final = 20.0  # for a call and the wait for its turn; Ray itself gives up after 60

Params = ParamSpec("Params")
Result = TypeVar("Result")


class BlockingCalls:
    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._in_flight: dict[str, asyncio.Future[Any]] = {}

    async def call(
        self, kind: str, work: Callable[Params, Result], *args: Params.args, **named: Params.kwargs
    ) -> Result:
        """Return the result of `work`.  Raise UnreachableError where `work`, or the call before it, takes too long."""
        try:
            async with asyncio.timeout(self._limit_s):
                while (before := self._in_flight.get(kind)) is not None:
                    await asyncio.wait([before])
                future = self._begun(kind, partial(work, *args, **named))
                await asyncio.wait([future])
        except TimeoutError as error:
            raise UnreachableError(f"{kind}: no response within {self._limit_s:g} s") from error
        return future.result()

    def _begun(self, kind: str, work: Callable[[], Result]) -> asyncio.Future[Result]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def run() -> None:
            try:
                settle = partial(future.set_result, work())
            except BaseException as error:  # noqa: BLE001 - passed on to the caller
                settle = partial(future.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._ended, kind, future, settle)

        # A daemon thread: a call that never returns must not block the end of the process.
        threading.Thread(target=run, name=f"call: {kind}", daemon=True).start()
        self._in_flight[kind] = future
        return future

    def _ended(self, kind: str, future: asyncio.Future[Any], settle: Callable[[], None]) -> None:
        del self._in_flight[kind]
        settle()
        future.exception()  # retrieved, so that asyncio does not log it
