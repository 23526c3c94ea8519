"""A database that hangs fails a request in time: a stopped server, a slow statement, a lock, a busy writer."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import text

from api.store import DatabaseUnavailableError, Failure, Store
from api.store.engine import POOL_LIMIT
from api.store.time_limits import SERVER_LIMITS_MS
from tests.testbed.postgres import PostgresPrograms, PostgresServer, running_postgres
from tests.testbed.proc import descendants

pytestmark = pytest.mark.anyio
LIMITS = {name: f"{limit_ms // 1000}s".replace("60s", "1min") for name, limit_ms in SERVER_LIMITS_MS.items()}
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> float:
    """Use a limit that a test can wait for."""
    monkeypatch.setattr("api.store.time_limits.STATEMENT_LIMIT_S", 0.5)
    return 0.5


async def run(store: Store, statement: str, *, single: bool = False) -> object:
    async with store.reading(single=single) as tx:
        return (await tx._connection.execute(text(statement))).scalar_one()


async def failure_of(store: Store, statement: str) -> Failure:
    with pytest.raises(DatabaseUnavailableError) as caught:
        await run(store, statement)
    return caught.value.failure


@pytest.fixture
def own_server(postgres_programs: PostgresPrograms, tmp_path: Path) -> Iterator[PostgresServer]:
    """Run a server that the test may stop."""
    with running_postgres(postgres_programs, log_dir=tmp_path, fsync=False) as server:
        yield server


@pytest.mark.postgres
async def test_a_stopped_server_fails_open_connections_in_time_and_serves_again_once_it_continues(
    own_server: PostgresServer, short_limit: float
) -> None:
    store = Store(own_server.url())
    assert await asyncio.gather(*(run(store, "SELECT 1") for _ in range(3))) == [1, 1, 1]
    stopped = [own_server.pid, *descendants(own_server.pid)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    started_s = time.monotonic()
    try:
        failures = await asyncio.gather(*(failure_of(store, "SELECT 1") for _ in range(3)))
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert set(failures) == {Failure.UNAVAILABLE}
    assert short_limit <= time.monotonic() - started_s < 10 * short_limit
    assert await run(store, "SELECT 2") == 2
    assert store.pool_usage().in_use == 0
    await store.close()


@pytest.mark.postgres
async def test_every_connection_of_postgresql_has_the_limits_of_the_server(migrated_postgres_url: str) -> None:
    store = Store(migrated_postgres_url)
    for _transaction in range(2):  # on a new connection, then on the same one after a rollback
        found = {name: await run(store, f"SELECT current_setting('{name}')") for name in LIMITS}
        assert found == LIMITS
    await store.close()


@pytest.mark.postgres
async def test_single_reads_have_the_same_limits_and_survive_a_cancelled_one(migrated_postgres_url: str) -> None:
    store = Store(migrated_postgres_url)
    read = partial(run, store, single=True)
    assert {name: await read(f"SELECT current_setting('{name}')") for name in LIMITS} == LIMITS
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await read("SELECT pg_sleep(5)")
    assert await asyncio.gather(*(read("SELECT 2") for _read in range(2 * POOL_LIMIT))) == [2] * 2 * POOL_LIMIT
    assert store.pool_usage().in_use == 0
    await store.close()


@pytest.mark.postgres
async def test_a_connection_that_the_server_has_ended_is_replaced(migrated_postgres_url: str) -> None:
    store, other = Store(migrated_postgres_url), Store(migrated_postgres_url)
    ended = await run(store, "SELECT pg_backend_pid()")
    assert await run(other, f"SELECT pg_terminate_backend({ended}, 10000)") is True
    assert await run(store, "SELECT pg_backend_pid()") != ended
    await store.close()
    await other.close()


async def test_a_statement_that_never_ends_is_interrupted(sqlite_url: str, short_limit: float) -> None:
    store = Store(sqlite_url)
    started_s = time.monotonic()
    assert await failure_of(store, ENDLESS) is Failure.TIMEOUT
    assert time.monotonic() - started_s < 20 * short_limit
    assert await run(store, "SELECT 3") == 3
    await store.close()


async def test_statements_below_the_limit_are_not_interrupted(database_url: str, short_limit: float) -> None:
    """The limit is for one statement: a transaction may take longer."""
    store = Store(database_url)
    async with store.reading() as tx:
        for _statement in range(4):
            await tx.audit.length()
            await asyncio.sleep(short_limit / 2)
    await store.close()


async def test_a_writer_of_sqlite_does_not_wait_for_ever_for_another_one(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.store.store.LOCK_WAIT_S", 0.2)
    store = Store(sqlite_url)
    async with store.transaction():
        with pytest.raises(DatabaseUnavailableError) as caught:
            async with store.transaction():
                pytest.fail("two writers at once")
    assert caught.value.failure is Failure.TIMEOUT
    async with store.transaction() as tx:
        await tx.audit.lock()
    await store.close()


async def test_a_new_connection_of_a_reader_waits_for_no_writer(sqlite_url: str) -> None:
    writer, reader = Store(sqlite_url), Store(sqlite_url)
    async with writer.transaction() as tx, asyncio.timeout(5.0):  # a wait would take ten seconds
        await tx.audit.lock()
        assert await run(reader, "PRAGMA auto_vacuum") == 2  # incremental, from the first connection on
    await writer.close()
    await reader.close()


@pytest.mark.postgres
async def test_readers_get_connections_while_many_writers_wait_for_the_audit(migrated_postgres_url: str) -> None:
    holder, store = Store(migrated_postgres_url), Store(migrated_postgres_url)

    async def write() -> None:
        async with store.transaction() as tx:
            await tx.audit.lock()

    async with holder.transaction() as tx:
        await tx.audit.lock()
        writers = [asyncio.create_task(write()) for _each in range(3 * POOL_LIMIT)]
        async with asyncio.timeout(5.0):  # a reader without a connection waits for six seconds, then fails
            assert await asyncio.gather(*(run(store, "SELECT 1") for _each in range(20))) == [1] * 20
    await asyncio.gather(*writers)
    await holder.close()
    await store.close()
