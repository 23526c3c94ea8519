"""Reports whether the database takes writes, for `/readyz` and `/metrics`.

A database that is read-only or has a full disk still answers every read.  So each process writes a row of its own from
time to time, and reports the cause until a write succeeds again.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from api.store import DatabaseUnavailableError, Store

PROBE_INTERVAL_S: Final = 10.0
REPEAT_INTERVAL_S: Final = 1.0  # after a failed write, so that readiness returns soon
LOG_INTERVAL_S: Final = 60.0

log = structlog.get_logger(__name__)


def replica_name() -> str:
    """Name this process among those that use one database."""
    return f"{socket.gethostname()[:50]}-{os.getpid()}"


class DatabaseHealth:
    """Writes at most every `PROBE_INTERVAL_S`, however many requests ask."""

    def __init__(self, store: Store, *, now: Callable[[], datetime], monotonic_s: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._monotonic_s = monotonic_s
        self._replica = replica_name()
        self._one_at_a_time = asyncio.Lock()
        self._next_probe_s = float("-inf")
        self._failure: DatabaseUnavailableError | None = None
        self._next_log_s = float("-inf")

    async def check_writable(self) -> None:
        """Raise the error of the last write, which is at most `PROBE_INTERVAL_S` old."""
        async with self._one_at_a_time:
            if self._monotonic_s() >= self._next_probe_s:
                self._failure = await self._failed_write()
                interval_s = PROBE_INTERVAL_S if self._failure is None else REPEAT_INTERVAL_S
                self._next_probe_s = self._monotonic_s() + interval_s
        if (failure := self._failure) is not None:
            raise DatabaseUnavailableError(str(failure), failure=failure.failure, cause=failure.cause)

    async def is_writable(self) -> bool:
        try:
            await self.check_writable()
        except DatabaseUnavailableError as error:
            self.log_failure(error)
            return False
        return True

    def log_failure(self, error: DatabaseUnavailableError) -> None:
        """Log the cause of a failure that no request reports, at most once per `LOG_INTERVAL_S`."""
        if self._monotonic_s() >= self._next_log_s:
            self._next_log_s = self._monotonic_s() + LOG_INTERVAL_S
            log.warning("database_failed", failure=error.failure.value, cause=error.cause)

    async def _failed_write(self) -> DatabaseUnavailableError | None:
        try:
            async with self._store.transaction() as tx:
                await tx.write_probe.put(replica=self._replica, at=self._now())
        except DatabaseUnavailableError as error:
            return error
        return None
