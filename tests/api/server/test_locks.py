"""Locks on PostgreSQL: writers take them in one order, and a request that ends a deadlock is repeated."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import psycopg
import pytest

from api.schemas.tokens import TokenScope
from tests.api.server.test_targets import CREATE, SPEC, STATUS
from tests.testbed.service import RunningService, StartService
from tests.testbed.waiting import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

LOCK_STATUS = "SELECT * FROM target_status WHERE target = 'chat' FOR UPDATE"
LOCK_AUDIT = "SELECT * FROM audit_head FOR UPDATE"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
async def running(start_service: StartService, migrated_postgres_url: str) -> AsyncIterator[RunningService]:
    """Run the service with a target that has a report."""
    async with start_service(migrated_postgres_url) as running, running.client(TokenScope.OPERATE) as operator:
        await running.first_token_stored()
        assert (await operator.put("/v1/targets/chat", json=SPEC, headers=CREATE)).status_code == 201
        assert (await operator.put("/v1/targets/chat/status", json=STATUS)).status_code == 204
        yield running


@pytest.fixture
async def other(migrated_postgres_url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """Connect another writer, in a transaction of its own."""
    url = migrated_postgres_url.replace("+psycopg", "")
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@pytest.fixture
async def waiting(migrated_postgres_url: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Wait until this number of transactions wait for a lock."""
    url = migrated_postgres_url.replace("+psycopg", "")
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:

        async def wait(count: int) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while (await (await connection.execute(WAITING)).fetchone()) != (count,):
                    await asyncio.sleep(0.01)

        yield wait


async def test_a_deletion_locks_the_audit_before_the_report(
    running: RunningService, other: psycopg.AsyncConnection, waiting: Callable[[int], Awaitable[None]]
) -> None:
    async with running.client(TokenScope.OPERATE) as operator:
        await other.execute(LOCK_AUDIT)
        deletion = asyncio.create_task(operator.delete("/v1/targets/chat", headers={"If-Match": "*"}))
        await waiting(1)
        await other.execute(f"{LOCK_STATUS} NOWAIT")
        await other.commit()
        assert (await deletion).status_code == 204


@pytest.mark.parametrize(("lock_timeout_ms", "failure"), [(200, "locked"), (10_000, "deadlock")])
async def test_a_request_that_the_database_ends_for_a_deadlock_is_repeated(
    *,
    running: RunningService,
    other: psycopg.AsyncConnection,
    waiting: Callable[[int], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
    lock_timeout_ms: int,
    failure: str,
) -> None:
    """Its lock timeout ends the request before that.  With a long one, PostgreSQL ends it as the first to check."""
    monkeypatch.setattr("api.store.audit.ROW_LOCK_TIMEOUT_MS", lock_timeout_ms)
    async with running.client() as admin:
        await other.execute("SET LOCAL deadlock_timeout = '30s'")
        await other.execute(LOCK_STATUS)
        report = asyncio.create_task(admin.put("/v1/targets/chat/status", json=STATUS | {"phase": "applied"}))
        await waiting(1)
        await other.execute(LOCK_AUDIT)
        await other.commit()
        answer: httpx.Response = await report
        found = await admin.get("/v1/targets/chat/status")
        metrics = await admin.get("/metrics")
    assert (answer.status_code, found.json()["phase"]) == (204, "applied")
    counted = re.findall(r'fleetwright_database_failures_total\{failure="(\w+)"\} [1-9]', metrics.text)
    assert counted == [failure]
