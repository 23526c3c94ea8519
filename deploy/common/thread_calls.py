"""Calls that may wait long for somebody else, from an event loop: in threads, of each kind at most one at a time.

A call cannot be taken back: whoever waits for it may give up, its thread goes on.  So the next of its kind is not
begun before it has returned, however long the other end is silent.  A thread each would add up, and in the loop's own
pool keep out all else that needs one, name lookups among it.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from deploy.common.errors import UnreachableError

LIMIT_S: Final = 20.0  # for a call and its turn; Ray itself gives up after 60

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class BlockingCalls:
    """Of one event loop."""

    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._in_flight: dict[str, asyncio.Future[Any]] = {}

    async def call(self, kind: str, work: Callable[Given, Answer], *args: Given.args, **named: Given.kwargs) -> Answer:
        """What it answers or raises; UnreachableError when that, or the end of the one before it, takes too long."""
        try:
            async with asyncio.timeout(self._limit_s):
                while (before := self._in_flight.get(kind)) is not None:
                    await asyncio.wait([before])
                answer = self._begun(kind, partial(work, *args, **named))
                await asyncio.wait([answer])
        except TimeoutError as error:
            raise UnreachableError(f"{kind}: no answer within {self._limit_s:g} s") from error
        return answer.result()

    def _begun(self, kind: str, work: Callable[[], Answer]) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()

        def run() -> None:
            try:
                tell = partial(answer.set_result, work())
            except BaseException as error:  # noqa: BLE001 - whoever waits is told, whatever it is
                tell = partial(answer.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._ended, kind, answer, tell)

        # A daemon: what never returns must not keep the process from ending.
        threading.Thread(target=run, name=f"call: {kind}", daemon=True).start()
        self._in_flight[kind] = answer
        return answer

    def _ended(self, kind: str, answer: asyncio.Future[Any], tell: Callable[[], None]) -> None:
        del self._in_flight[kind]
        tell()
        answer.exception()  # seen, also where everybody has given up
