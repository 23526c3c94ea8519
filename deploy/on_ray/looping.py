"""Asynchronous work in a thread of its own, which begins again after whatever ends it, until it is told to stop.

An actor answers in its own threads; the work's event loop is not theirs, so neither waits for the other.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog

from deploy.on_ray.wire import HostState

log = structlog.get_logger()

AGAIN_S: Final = 5.0  # after a failure
STOP_S: Final = 30.0  # for the work to end well

Work = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]


class LoopThread:
    """Runs `work(begun)` for ever: it calls `begun` once it is set up, and ends well when it is cancelled."""

    def __init__(
        self, work: Work, *, again_s: float = AGAIN_S, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._work, self._again_s, self._sleep = work, again_s, sleep
        self._lock = threading.Lock()  # of start and stop
        self._thread: threading.Thread | None = None
        self._cancel: Callable[[], object] | None = None
        self._ready = threading.Event()
        self.state = HostState.STARTING
        self.error: str | None = None

    def start(self) -> None:
        """Begin; again does no harm."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            self.state, self.error = HostState.STARTING, None
            self._ready.clear()
            self._thread = threading.Thread(target=self._run, name="controller", daemon=True)
            self._thread.start()

    def stop(self, *, timeout_s: float = STOP_S) -> bool:
        """End well; whether it has ended.  Again does no harm."""
        with self._lock:
            thread = self._thread
            if thread is None or not thread.is_alive():
                self.state = HostState.STOPPED
                return True
            self._ready.wait(timeout_s)
            if self._cancel is not None:
                self._cancel()
            thread.join(timeout_s)
            return not thread.is_alive()

    def _run(self) -> None:
        asyncio.run(self._for_ever())
        self.state = HostState.STOPPED

    async def _for_ever(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        self._ready.set()
        try:
            while True:
                await self._once()
                await self._sleep(self._again_s)
        except asyncio.CancelledError:
            return  # told to stop

    async def _once(self) -> None:
        """Whatever ends it but being told to is told, and does not end the thread."""
        try:
            await self._work(self._begun)
            self._failed("it ended by itself")
        except Exception as error:  # noqa: BLE001 - the next try may do better, and nobody else would make one
            self._failed(reason_of(error))

    def _begun(self) -> None:
        self.error, self.state = None, HostState.RUNNING  # whoever sees a state sees what belongs to it

    def _failed(self, reason: str) -> None:
        self.error, self.state = reason, HostState.FAILED
        log.error("controller_failed", reason=reason, again_s=self._again_s)


def reason_of(error: BaseException) -> str:
    """In one line; of several the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
