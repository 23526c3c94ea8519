"""Asynchronous work in a thread, restarted after a failure until it is stopped.

An actor's methods run in other threads than the work's event loop, so neither waits for the other.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, cast

import structlog

from deploy.common.text import reason_of
from deploy.ray_actor.messages import LoopState

log = structlog.get_logger()

RETRY_S: Final = 5.0  # after a failure
STOP_S: Final = 30.0  # for the work to end

Work = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]


class LoopThread:
    """Runs `work(begun)` for ever: the work calls `begun` once it is set up, and ends when it is cancelled.

    The last of `start` and `stop` holds, and the work never runs twice at once: where `start` comes while stopped work
    has not ended yet, the work starts again right after that end.
    """

    def __init__(
        self, work: Work, *, retry_s: float = RETRY_S, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._work, self._retry_s, self._sleep = work, retry_s, sleep
        self._lock = threading.Lock()  # of these three
        self._wanted = False
        self._thread: threading.Thread | None = None  # until it finds that it is not wanted
        self._cancel: Callable[[], object] | None = None  # of running work that was not stopped
        self.state = LoopState.STARTING
        self.error: str | None = None

    def start(self) -> None:
        with self._lock:
            if self._wanted:
                return
            self._wanted, self.state, self.error = True, LoopState.STARTING, None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="controller", daemon=True)
                self._thread.start()

    def stop(self, *, timeout_s: float = STOP_S) -> bool:
        """Stop the work; return whether it has ended.  A repeated call does not disturb work that is ending."""
        with self._lock:
            self._wanted = False
            thread, cancel, self._cancel = self._thread, self._cancel, None
            if thread is None:
                self.state = LoopState.STOPPED
                return True
            if cancel is not None:
                cancel()
        thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        try:
            while self._should_run():
                asyncio.run(self._run_until_stopped())
        except BaseException as error:
            with self._lock:
                self._wanted, self._thread = False, None
            self._failed(reason_of(error))
            raise

    def _should_run(self) -> bool:
        with self._lock:
            if not self._wanted:
                self._thread, self.state = None, LoopState.STOPPED
            return self._wanted

    async def _run_until_stopped(self) -> None:
        loop, task = asyncio.get_running_loop(), cast("asyncio.Task[None]", asyncio.current_task())
        with self._lock:
            if not self._wanted:
                return
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            while True:
                reason = await self._once()
                if task.cancelling():
                    return  # stopped, however the work reacted
                self._failed(reason)
                await self._sleep(self._retry_s)
        except asyncio.CancelledError:
            return
        finally:
            with self._lock:
                self._cancel = None

    async def _once(self) -> str:
        try:
            await self._work(self._begun)
        except Exception as error:  # noqa: BLE001 - the next attempt may succeed
            return reason_of(error)
        return "it ended by itself"

    def _begun(self) -> None:
        self.error, self.state = None, LoopState.RUNNING  # in this order, for readers of both

    def _failed(self, reason: str) -> None:
        self.error, self.state = reason, LoopState.FAILED
        log.error("controller_failed", reason=reason, retry_s=self._retry_s)
