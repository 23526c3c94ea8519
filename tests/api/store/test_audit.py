"""The audit chain: gapless, tamper-evident, append-only."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from api.store import AuditRecord, Store
from api.store.engine import make_migration_engine, parse_url

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 21, 6, 0, 0, 1, tzinfo=UTC)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    store = Store(database_url)
    yield store
    await store.close()


async def append(store: Store, *, subject: str = "plans/1", fail: bool = False) -> AuditRecord:
    async with store.transaction() as tx:
        entry = await tx.audit.append(
            at=NOW, actor="token:x", action="plan.created", subject=subject, detail={"b": 1, "a": "é"}, request_id=None
        )
        if fail:
            raise RuntimeError("after the entry")
        return entry


async def test_numbers_have_no_gap_with_concurrent_and_failing_writers(store: Store) -> None:
    await asyncio.gather(*(append(store, fail=number % 3 == 0) for number in range(30)), return_exceptions=True)
    async with store.reading() as tx:
        entries = await tx.audit.page(before_seq=None, limit=100)
        assert [entry.seq for entry in entries] == list(range(20, 0, -1))
        assert await tx.audit.length() == 20
        assert await tx.audit.first_broken() is None


async def test_several_entries_of_one_transaction_follow_each_other(store: Store) -> None:
    async with store.transaction() as tx:
        await tx.audit.lock()
        for number in range(3):
            await tx.audit.append(
                at=NOW, actor="x", action="plan.created", subject=f"plans/{number}", detail={}, request_id=None
            )
            await tx.audit.lock()
    await append(store)
    async with store.reading() as tx:
        assert await tx.audit.length() == 4
        assert await tx.audit.first_broken() is None


async def test_pages_are_newest_first(store: Store) -> None:
    for number in range(5):
        await append(store, subject=f"plans/{number}")
    async with store.reading() as tx:
        page = await tx.audit.page(before_seq=4, limit=2)
    assert [entry.subject for entry in page] == ["plans/2", "plans/1"]
    assert page[0].detail == {"a": "é", "b": 1}


def tamper(database_url: str, *statements: str) -> None:
    """Disable the triggers and write, as an administrator with SQL access could."""
    engine = make_migration_engine(parse_url(database_url))
    with engine.begin() as connection:
        _switch_triggers_off(connection)
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def _switch_triggers_off(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("ALTER TABLE audit DISABLE TRIGGER ALL"))
        return
    for verb in ("update", "delete"):
        connection.execute(text(f"DROP TRIGGER audit_no_{verb}"))


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        pytest.param("UPDATE audit SET actor = 'nobody' WHERE seq = 3", 3, id="changed"),
        pytest.param("UPDATE audit SET detail = '{}' WHERE seq = 1", 1, id="changed detail"),
        pytest.param("DELETE FROM audit WHERE seq = 2", 2, id="removed"),
        pytest.param("DELETE FROM audit WHERE seq = 5", 5, id="cut off"),
        pytest.param("UPDATE audit_head SET seq = 4 WHERE id = 1", 6, id="head turned back"),
    ],
)
async def test_tampering_is_detected(store: Store, database_url: str, statement: str, broken: int) -> None:
    for _ in range(5):
        await append(store)
    tamper(database_url, statement)
    async with store.reading() as tx:
        assert await tx.audit.first_broken() == broken


@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'nobody'", "DELETE FROM audit"])
async def test_the_database_refuses_to_change_the_audit(store: Store, database_url: str, statement: str) -> None:
    await append(store)
    engine = make_migration_engine(parse_url(database_url))
    with pytest.raises(DBAPIError, match="append-only"), engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


async def test_an_intact_chain_is_valid_during_concurrent_writes(store: Store) -> None:
    for _ in range(3):
        await append(store)
    writing = asyncio.Event()

    async def write() -> None:
        for _ in range(20):
            await append(store)
            writing.set()

    writer = asyncio.create_task(write())
    await writing.wait()
    checks = []
    while not writer.done():
        async with store.reading() as tx:
            checks.append(await tx.audit.first_broken())
    await writer
    assert set(checks) == {None}


async def test_a_read_transaction_has_a_consistent_snapshot(store: Store) -> None:
    await append(store)
    async with store.reading() as tx:
        before = await tx.audit.length()
        await append(store)
        assert await tx.audit.length() == before
