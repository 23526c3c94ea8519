"""Idempotency records."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from api.store import KeyReusedError, KeyTakenError, NewReply, SavedReply, Store

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 21, tzinfo=UTC)
REPLY = NewReply(
    actor="token:x",
    key="k",
    fingerprint="f",
    status=201,
    headers={"Location": "/v1/plans/1"},
    body="{}",
    expires_at=NOW + timedelta(days=1),
)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    store = Store(database_url)
    async with store.transaction() as tx:
        await tx.replies.save(REPLY, now=NOW)
    yield store
    await store.close()


async def find(
    store: Store, *, fingerprint: str = "f", actor: str = "token:x", now: datetime = NOW
) -> SavedReply | None:
    async with store.reading() as tx:
        return await tx.replies.find(actor=actor, key="k", fingerprint=fingerprint, now=now)


async def test_the_same_request_gets_the_same_response(store: Store) -> None:
    assert await find(store) == SavedReply(status=201, headers={"Location": "/v1/plans/1"}, body="{}")


async def test_a_key_belongs_to_its_actor(store: Store) -> None:
    assert await find(store, actor="token:y") is None


async def test_a_key_used_for_another_request_is_refused(store: Store) -> None:
    with pytest.raises(KeyReusedError):
        await find(store, fingerprint="g")


async def test_an_expired_key_is_free_again(store: Store) -> None:
    later = NOW + timedelta(days=2)
    assert await find(store, now=later) is None
    async with store.transaction() as tx:
        await tx.replies.save(REPLY, now=later)


async def test_a_key_taken_by_another_writer_rolls_the_transaction_back(store: Store) -> None:
    with pytest.raises(KeyTakenError):
        async with store.transaction() as tx:
            await tx.documents.add_version(kind="k", name="n", after=0, body="", created_at=NOW, created_by="x")
            await tx.replies.save(REPLY, now=NOW)
    async with store.reading() as tx:
        assert await tx.documents.head(kind="k", name="n") is None


async def test_a_save_clears_a_few_expired_responses_and_that_of_its_own_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.store.repositories.CLEARED_PER_REPLY", 10)
    keys = [f"k{number:02}" for number in range(25)]
    for number, key in enumerate(keys):
        async with store.transaction() as tx:
            later = timedelta(seconds=number)
            await tx.replies.save(replace(REPLY, key=key, expires_at=REPLY.expires_at + later), now=NOW)
    left = []
    for key in ("k24", "new"):
        async with store.transaction() as tx:
            now = NOW + timedelta(days=2)
            await tx.replies.save(replace(REPLY, key=key, body="new", expires_at=now + timedelta(days=1)), now=now)
        async with store.reading() as tx:
            found = [await tx.replies.find(actor="token:x", key=key, fingerprint="f", now=NOW) for key in keys]
        left.append([reply.body for reply in found if reply is not None])
    assert left == [["{}"] * 15 + ["new"], ["{}"] * 5 + ["new"]]
