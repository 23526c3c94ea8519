"""The audit of refused requests and of reads."""

import asyncio
from typing import Any

import pytest

from api.schemas.tokens import TokenScope
from api.server.access_audit import MAX_PENDING, Access, AccessAudit
from api.server.settings import AuditLevel
from api.store import Store
from tests.testbed.service import RunningService, StartService, SteppedClock
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


async def use(running: RunningService) -> None:
    """Reads, refusals and a write."""
    async with running.client(TokenScope.READ) as reader, running.client(None) as stranger:
        for _ in range(3):
            assert (await reader.get("/v1/gpus")).status_code == 200
        assert (await reader.get("/v1/freeze")).status_code == 200
        assert (await reader.get("/v1/targets/nobody")).status_code == 404
        assert (await reader.get("/v1/tokens")).status_code == 403
        for number in range(3):
            assert (await stranger.get(f"/v1/targets/guess-{number}")).status_code == 401
        assert (await stranger.get("/readyz")).status_code == 200
    async with running.client(TokenScope.OPERATE) as operator:
        await operator.put("/v1/freeze", json={"frozen": True}, headers={"If-Match": "*"})


async def entries(running: RunningService, count: int) -> list[dict[str, Any]]:
    """The entries of requests, once there are so many."""
    async with running.client() as admin, asyncio.timeout(PATIENCE_S):
        while True:
            found = (await admin.get("/v1/audit", params={"limit": 100})).json()["items"]
            found = [each for each in reversed(found) if each["action"].startswith("request.")]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


async def test_the_audit_has_only_writes_by_default(service: RunningService) -> None:
    await use(service)
    await asyncio.sleep(1.2)
    assert await entries(service, 0) == []


async def test_refusals_are_recorded_with_their_number(start_service: StartService, database_url: str) -> None:
    async with start_service(database_url, audit_level="refusals") as running:
        await running.first_token_stored()
        await use(running)
        found = await entries(running, 2)
    shown = [(each["actor"], each["action"], each["subject"], each["detail"]["count"]) for each in found]
    assert shown == [
        ("token:read", "request.refused", "/v1/tokens", 1),
        ("address:127.0.0.1", "request.refused", "/v1/targets/guess-0", 3),
    ]
    assert found[0]["detail"]["status"] == 403
    assert found[0]["request_id"] is not None


async def test_reads_are_recorded_too(start_service: StartService, database_url: str) -> None:
    async with start_service(database_url, audit_level="reads") as running:
        await running.first_token_stored()
        await use(running)
        found = await entries(running, 4)
        async with running.client() as admin:
            assert (await admin.get("/v1/audit/check")).json()["intact"] is True
    read = [(each["subject"], each["detail"]["count"]) for each in found if each["actor"] == "token:read"]
    assert read == [("/v1/gpus", 3), ("/v1/freeze", 1), ("/v1/tokens", 1)]
    assert {each["subject"] for each in found}.isdisjoint({"/readyz", "/v1/targets/nobody"})


async def test_what_was_noted_is_appended_when_the_service_stops(start_service: StartService, sqlite_url: str) -> None:
    async with start_service(sqlite_url, audit_level="refusals") as running:
        await running.first_token_stored()
        await use(running)
    async with start_service(sqlite_url) as running:
        assert len(await entries(running, 2)) == 2


async def test_a_flood_is_counted_but_not_kept(sqlite_url: str) -> None:
    store = Store(sqlite_url)
    audit = AccessAudit(store=store, level=AuditLevel.READS, now=SteppedClock().now)
    for number in range(MAX_PENDING + 7):
        audit.observe(
            Access(
                actor="token:a",
                address="192.0.2.1",
                method="GET",
                route="/v1/targets/{name}",
                path=f"/v1/targets/t-{number}",
                status=200,
                request_id=None,
            )
        )
    await audit.append()
    await audit.append()
    async with store.reading() as tx:
        (newest, *_) = await tx.audit.page(before_seq=None, limit=1)
        assert await tx.audit.length() == MAX_PENDING + 1
        assert await tx.audit.first_broken() is None
    await store.close()
    assert (newest.action, newest.detail) == ("request.not-recorded", {"count": 7})
