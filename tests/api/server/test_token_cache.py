"""Token records are kept for a second, and a revocation of the same process applies at once."""

import pytest

from api.schemas.tokens import TokenScope
from api.server.token_cache import KEPT_S, TokenCache
from api.store import Store
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio


async def made_token(running: RunningService) -> tuple[str, str]:
    async with running.client(TokenScope.ADMIN) as admin:
        answer = await admin.post("/v1/tokens", json={"name": "reader", "scopes": ["read"]})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    return made["info"]["id"], made["secret"]


async def test_a_revocation_applies_to_the_next_request(service: RunningService) -> None:
    token_id, token = await made_token(service)
    async with service.client(None) as reader, service.client(TokenScope.ADMIN) as admin:
        reader.headers["Authorization"] = f"Bearer {token}"
        assert [(await reader.get("/v1/freeze")).status_code for _each in range(3)] == [200] * 3
        assert (await admin.delete(f"/v1/tokens/{token_id}")).status_code == 204
        assert (await reader.get("/v1/freeze")).status_code == 401


async def test_a_revocation_elsewhere_applies_within_a_second(service: RunningService) -> None:
    token_id, token = await made_token(service)
    store: Store = service.app.state.service.store
    async with service.client(None) as reader:
        reader.headers["Authorization"] = f"Bearer {token}"
        assert (await reader.get("/v1/freeze")).status_code == 200
        async with store.transaction() as tx:
            await tx.tokens.revoke(token_id, at=service.clock.now())
        service.clock.elapsed_s += KEPT_S
        assert (await reader.get("/v1/freeze")).status_code == 401


async def test_an_expired_token_is_refused_although_it_is_kept(service: RunningService) -> None:
    async with service.client(TokenScope.ADMIN) as admin:
        made = (await admin.post("/v1/tokens", json={"name": "r", "scopes": ["read"], "expires_in_s": 60})).json()
    async with service.client(None) as reader:
        reader.headers["Authorization"] = f"Bearer {made['secret']}"
        assert (await reader.get("/v1/freeze")).status_code == 200
        service.clock.advance(60)
        service.clock.elapsed_s -= 60
        assert (await reader.get("/v1/freeze")).status_code == 401


async def test_a_record_that_was_read_before_a_revocation_is_not_kept(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revocation ends while the read is on its way."""
    token_id, _token = await made_token(service)
    store: Store = service.app.state.service.store
    cache = TokenCache(store=store, monotonic_s=service.clock.monotonic_s)
    reading, reads = store.reading, 0

    def counted(*, single: bool = False) -> object:
        nonlocal reads
        reads += single  # background work reads in transactions
        if reads == 1:
            cache.clear()
        return reading(single=single)

    monkeypatch.setattr(store, "reading", counted)
    for _each in range(3):
        found = await cache.get(token_id)
        assert found is not None
        assert found.id == token_id
    assert reads == 2
