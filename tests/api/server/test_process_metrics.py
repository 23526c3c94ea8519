"""Metrics of the process: memory, event loop, connections of the pool, waits for locks, refusals by cause."""

import asyncio
import re
import time

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from api.jobs.process_metrics import LOOP_INTERVAL_S, ProcessMetrics
from api.schemas.tokens import TokenScope
from api.store import Store
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio


def value(page: str, sample: str) -> float:
    found = re.search(rf"^{re.escape(sample)} (\S+)$", page, re.MULTILINE)
    assert found is not None, sample
    return float(found[1])


async def test_memory_files_and_connections_are_exported(service: RunningService) -> None:
    async with service.client(TokenScope.READ) as client:
        page = (await client.get("/metrics")).text
    assert value(page, "process_resident_memory_bytes") > 10_000_000
    assert value(page, "process_open_fds") > 3
    assert value(page, "fleetwright_database_connections_limit") in {10.0, 15.0}
    assert value(page, "fleetwright_database_connections_in_use") <= 15
    assert value(page, "fleetwright_database_connection_wait_seconds_count") > 0
    assert value(page, 'fleetwright_database_lock_wait_seconds_count{lock="process"}') > 0


async def test_a_writer_that_waits_for_another_is_measured(database_url: str) -> None:
    """On SQLite for the writer of the process, on PostgreSQL for the head of the audit."""
    registry, store = CollectorRegistry(), Store(database_url)
    ProcessMetrics(registry, store)
    holds, may_end = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with store.transaction() as tx:
            await tx.audit.lock()
            holds.set()
            await may_end.wait()

    async def wait() -> None:
        async with store.transaction() as tx:
            await tx.audit.lock()

    holding = asyncio.create_task(hold())
    await holds.wait()
    waiting = asyncio.create_task(wait())
    done, _pending = await asyncio.wait([waiting], timeout=0.15)
    assert not done
    may_end.set()
    await asyncio.gather(holding, waiting)
    await store.close()
    page = generate_latest(registry).decode()
    lock = "process" if database_url.startswith("sqlite") else "audit"
    assert value(page, f'fleetwright_database_lock_wait_seconds_bucket{{le="0.1",lock="{lock}"}}') == 1  # the first
    assert value(page, f'fleetwright_database_lock_wait_seconds_count{{lock="{lock}"}}') == 2


async def test_a_blocked_event_loop_is_measured(sqlite_url: str) -> None:
    registry, store = CollectorRegistry(), Store(sqlite_url)
    pauses = iter([False, True])

    async def stopped_within(seconds: float) -> bool:
        time.sleep(seconds + 0.2)  # noqa: ASYNC251 - blocks the loop on purpose
        return next(pauses)

    await ProcessMetrics(registry, store).measure_loop(stopped_within=stopped_within)
    await store.close()
    page = generate_latest(registry).decode()
    assert value(page, 'fleetwright_event_loop_delay_seconds_bucket{le="0.1"}') == 0
    assert 0.2 <= value(page, "fleetwright_event_loop_delay_seconds_sum") < LOOP_INTERVAL_S + 1


async def test_refusals_are_counted_by_the_kind_of_the_problem(start_service: StartService, sqlite_url: str) -> None:
    async with (
        start_service(sqlite_url, rate_limit_per_s=1.0, rate_limit_burst=16) as running,
        running.client(TokenScope.READ) as client,
    ):
        for _ in range(20):
            await client.get("/v1/gpus")
        async with running.client(None) as probe:
            page = (await probe.get("/metrics")).text
    assert value(page, 'fleetwright_refused_requests_total{reason="rate-limited"}') >= 3
    assert value(page, 'fleetwright_refused_requests_total{reason="over-quota"}') == 0
