"""Exports how a process of the service runs: memory, processor time, open files, event loop, database connections.

The names `process_…` are those of every Prometheus client.  The delay of the event loop is how much later than
requested a short sleep ends: so long every request of the process waits too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector

from api.store import Store

LOOP_INTERVAL_S: Final = 0.25
DELAY_BUCKETS_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class ProcessMetrics:
    def __init__(self, registry: CollectorRegistry, store: Store) -> None:
        ProcessCollector(registry=registry)
        self._loop_delays = Histogram(
            "fleetwright_event_loop_delay_seconds",
            "How late the event loop runs what is due.",
            buckets=DELAY_BUCKETS_S,
            registry=registry,
        )
        used = Gauge("fleetwright_database_connections_in_use", "Database connections in use.", registry=registry)
        used.set_function(lambda: store.pool_usage().in_use)
        limit = Gauge("fleetwright_database_connections_limit", "Maximum database connections.", registry=registry)
        limit.set_function(lambda: store.pool_usage().limit)
        waits = Histogram(
            "fleetwright_database_connection_wait_seconds",
            "Time that a transaction waited for a connection of the pool.",
            buckets=DELAY_BUCKETS_S,
            registry=registry,
        )
        store.observe_wait_s = waits.observe
        locks = Histogram(
            "fleetwright_database_lock_wait_seconds",
            "Time that a writing transaction waited for others: of its process, or for the lock of the audit.",
            ["lock"],
            buckets=DELAY_BUCKETS_S,
            registry=registry,
        )
        for lock in ("process", "audit"):
            locks.labels(lock=lock)
        store.observe_lock_wait_s = lambda lock, wait_s: locks.labels(lock=lock).observe(wait_s)

    async def measure_loop(self, *, stopped_within: Callable[[float], Awaitable[bool]]) -> None:
        """Measure the delay of this event loop until stopped."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + LOOP_INTERVAL_S
        while not await stopped_within(LOOP_INTERVAL_S):
            now_s = loop.time()
            self._loop_delays.observe(max(0.0, now_s - due_s))
            due_s = now_s + LOOP_INTERVAL_S
