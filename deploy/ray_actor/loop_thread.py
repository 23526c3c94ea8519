"""Asynchronous work in a thread of its own, which begins again after whatever ends it, until it is told to stop.

An actor answers in its own threads; the work's event loop is not theirs, so neither waits for the other.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, cast

import structlog

from deploy.ray_actor.messages import HostState

log = structlog.get_logger()

AGAIN_S: Final = 5.0  # after a failure
STOP_S: Final = 30.0  # for the work to end well

Work = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]


class LoopThread:
    """Runs `work(begun)` for ever: it calls `begun` once it is set up, and ends well when it is cancelled.

    Of both words the last one holds, and there are never two at work: where a start comes while work that was told to
    stop has yet to end, it begins anew right after that end, however long it takes.
    """

    def __init__(
        self, work: Work, *, again_s: float = AGAIN_S, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._work, self._again_s, self._sleep = work, again_s, sleep
        self._lock = threading.Lock()  # of these three
        self._wanted = False
        self._thread: threading.Thread | None = None  # until it has seen that it is not wanted
        self._cancel: Callable[[], object] | None = None  # what is at work, and has not been told to stop
        self.state = HostState.STARTING
        self.error: str | None = None

    def start(self) -> None:
        """Begin; again does no harm."""
        with self._lock:
            if self._wanted:
                return
            self._wanted, self.state, self.error = True, HostState.STARTING, None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="controller", daemon=True)
                self._thread.start()

    def stop(self, *, timeout_s: float = STOP_S) -> bool:
        """End well; whether it has ended.  Again does no harm: what is about to end well is not disturbed."""
        with self._lock:
            self._wanted = False
            thread, cancel, self._cancel = self._thread, self._cancel, None
            if thread is None:
                self.state = HostState.STOPPED
                return True
            if cancel is not None:
                cancel()
        thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        try:
            while self._goes_on():
                asyncio.run(self._life())
        except BaseException as error:
            with self._lock:
                self._wanted, self._thread = False, None
            self._failed(reason_of(error))
            raise

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._wanted:
                self._thread, self.state = None, HostState.STOPPED
            return self._wanted

    async def _life(self) -> None:
        """Until told to stop."""
        loop, task = asyncio.get_running_loop(), cast("asyncio.Task[None]", asyncio.current_task())
        with self._lock:
            if not self._wanted:
                return
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            while True:
                reason = await self._once()
                if task.cancelling():
                    return  # told to stop, whatever the work has made of that
                self._failed(reason)
                await self._sleep(self._again_s)
        except asyncio.CancelledError:
            return
        finally:
            with self._lock:
                self._cancel = None

    async def _once(self) -> str:
        """Why it ended: whatever it was but being told to does not end the thread."""
        try:
            await self._work(self._begun)
        except Exception as error:  # noqa: BLE001 - the next try may do better, and nobody else would make one
            return reason_of(error)
        return "it ended by itself"

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
