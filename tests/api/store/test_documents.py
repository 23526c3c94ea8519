"""Versioned documents: no update is lost, and old versions stay readable."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from api.store import ConflictError, DocumentRecord, Store

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 21, 6, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    store = Store(database_url)
    yield store
    await store.close()


async def add(store: Store, *, name: str = "a", after: int, body: str | None = "{}") -> DocumentRecord:
    async with store.transaction() as tx:
        return await tx.documents.add_version(
            kind="gpus", name=name, after=after, body=body, created_at=NOW, created_by="token:x"
        )


async def test_versions_count_up_from_one_and_stay_readable(store: Store) -> None:
    for number in range(3):
        await add(store, after=number, body=f'{{"n":{number}}}')
    async with store.reading() as tx:
        head = await tx.documents.head(kind="gpus", name="a")
        first = await tx.documents.get(kind="gpus", name="a", version=1)
        listed = await tx.documents.versions(kind="gpus", name="a", before=3, limit=10)
    assert head is not None
    assert (head.version, head.body, head.created_at) == (3, '{"n":2}', NOW)
    assert first is not None
    assert first.body == '{"n":0}'
    assert [version.version for version in listed] == [2, 1]


@pytest.mark.parametrize("after", [0, 1])
async def test_a_version_is_added_once(store: Store, after: int) -> None:
    await add(store, after=0)
    await add(store, after=1)
    with pytest.raises(ConflictError, match="gpus/a has changed"):
        await add(store, after=after)


async def test_exactly_one_of_many_writers_of_a_version_succeeds(store: Store) -> None:
    outcomes = await asyncio.gather(*(add(store, after=0) for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(outcome, DocumentRecord) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 19


async def test_every_page_of_heads_has_the_newest_versions_that_are_not_deleted(store: Store) -> None:
    histories = {"a": "vdv", "b": "d", "c": "vd", "d": "vvv", "e": "vvd", "f": "d", "g": "v", "h": "vd"}
    for name, history in histories.items():
        for number, step in enumerate(history):
            await add(store, name=name, after=number, body="{}" if step == "v" else None)
    expected = [(name, len(history)) for name, history in histories.items() if history.endswith("v")]
    for after in (None, *histories):
        for limit in range(1, len(histories) + 2):
            async with store.reading() as tx:
                found = await tx.documents.heads(kind="gpus", after=after, limit=limit)
            later = [(name, version) for name, version in expected if after is None or name > after]
            assert [(head.name, head.version) for head in found] == later[:limit]


async def test_heads_are_listed_by_name_without_deleted_ones(store: Store) -> None:
    for name in ("b", "a", "d", "c"):
        await add(store, name=name, after=0)
    await add(store, name="c", after=1, body=None)
    async with store.reading() as tx:
        first = await tx.documents.heads(kind="gpus", after=None, limit=2)
        rest = await tx.documents.heads(kind="gpus", after="b", limit=10)
        other_kind = await tx.documents.heads(kind="models", after=None, limit=10)
    assert [document.name for document in first] == ["a", "b"]
    assert [document.name for document in rest] == ["d"]
    assert other_kind == []


async def test_a_failed_transaction_leaves_nothing(store: Store) -> None:
    with pytest.raises(RuntimeError, match="rolled back"):
        async with store.transaction() as tx:
            await tx.documents.add_version(
                kind="gpus", name="a", after=0, body="{}", created_at=NOW, created_by="token:x"
            )
            raise RuntimeError("rolled back")
    async with store.reading() as tx:
        assert await tx.documents.head(kind="gpus", name="a") is None


async def test_unusual_text_reads_back_equal(store: Store) -> None:
    body = '{"name":"\\u0000 \\ud800 \\u00e9 😀 \' \\" ; DROP TABLE documents"}'
    await add(store, after=0, body=body)
    async with store.reading() as tx:
        head = await tx.documents.head(kind="gpus", name="a")
    assert head is not None
    assert head.body == body
