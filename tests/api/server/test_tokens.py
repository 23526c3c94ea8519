"""Access control: tokens, scopes, the first token, and disabled authentication."""

import asyncio
from pathlib import Path

import pytest
from fastapi import FastAPI
from pydantic import ValidationError
from starlette.types import Message

from api.schemas.tokens import TokenScope
from api.server import Settings
from api.server.tokens import BootstrapTokenError
from api.store import Store
from tests.testbed.service import TOKENS, RunningService, StartService
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_the_first_start_prints_an_admin_token_once(start_service: StartService, database_url: str) -> None:
    async with start_service(database_url) as running:
        await running.first_token_stored()
        (token,) = running.shown_tokens
        async with running.client(None, params=None) as client:
            answer = await client.get("/v1/tokens", headers={"Authorization": f"Bearer {token}"})
    assert [info["name"] for info in answer.json()["items"]] == ["first admin"]
    assert token not in answer.text
    async with start_service(database_url) as running, running.client() as client:
        assert len((await client.get("/v1/tokens")).json()["items"]) == 1
        assert running.shown_tokens == []


async def test_replicas_that_start_together_create_one_token(start_service: StartService, database_url: str) -> None:
    async with start_service(database_url) as one, start_service(database_url) as other, one.client() as client:
        async with asyncio.timeout(PATIENCE_S):
            while not (await client.get("/v1/tokens")).json()["items"]:
                await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len(one.shown_tokens) + len(other.shown_tokens) == 1


async def test_a_bootstrap_file_provides_the_first_token(
    start_service: StartService, database_url: str, tmp_path: Path
) -> None:
    secret = "fw_abcdefghijkl_" + "A" * 43
    file = tmp_path / "token"
    file.write_text(secret + "\n")
    for _ in range(2):
        async with start_service(database_url, bootstrap_token_file=file) as running, running.client(None) as client:
            async with asyncio.timeout(PATIENCE_S):
                while (
                    await client.get("/v1/tokens", headers={"Authorization": f"Bearer {secret}"})
                ).status_code != 200:
                    await asyncio.sleep(0)
            assert running.shown_tokens == []


@pytest.mark.parametrize("content", ["", "fw_short", "fw_ABCDEFGHIJKL_" + "A" * 43, "é"])
async def test_an_invalid_bootstrap_file_stops_the_start(
    start_service: StartService, sqlite_url: str, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(BootstrapTokenError, match="bootstrap_token_file") as caught:
        async with start_service(sqlite_url, bootstrap_token_file=file):
            pass
    assert content == "" or content not in str(caught.value)


@pytest.mark.parametrize(
    "header", ["", "Basic YTpi", "Bearer", "Bearer x", f"Bearer fw_{'a' * 12}_{'b' * 43}", "Bearer é"]
)
async def test_a_request_without_a_valid_token_is_unauthorized(service: RunningService, header: str) -> None:
    async with service.client(None) as client:
        answer = await client.get("/v1/gpus", headers=[(b"Authorization", header.encode())] if header else [])
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["type"] == "urn:fleetwright:problem:unauthorized"


async def sends(app: FastAPI, path: str, *, token: str | None) -> tuple[int, int]:
    """The status, and the number of body parts that the application received."""
    headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
    headers += [(b"authorization", f"Bearer {token}".encode())] if token is not None else []
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, "client": ("192.0.2.1", 1), "server": ("localhost", 80), "scheme": "http"}
    received_parts, status = 0, 0

    async def receive() -> Message:
        nonlocal received_parts
        received_parts += 1
        return {"type": "http.request", "body": b"[" * 1000, "more_body": received_parts < 3}

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)

    await app({**scope, "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"}}, receive, send)
    return status, received_parts


async def test_a_body_is_read_only_after_authorization(sqlite_service: RunningService) -> None:
    paths = [path for path, methods in sqlite_service.app.openapi()["paths"].items() if "post" in methods]
    assert len(paths) > 10
    for path in paths:
        assert await sends(sqlite_service.app, path, token=None) == (401, 0), path
        assert await sends(sqlite_service.app, path, token="fw_wrong") == (401, 0), path
    assert await sends(sqlite_service.app, "/v1/plans", token=TOKENS[TokenScope.READ]) == (403, 0)
    assert await sends(sqlite_service.app, "/v1/plans", token=TOKENS[TokenScope.PLAN]) == (400, 3)


ALLOWED = {
    ("GET", "/v1/gpus"): {TokenScope.READ, TokenScope.ADMIN},
    ("PUT", "/v1/topology"): {TokenScope.PLAN, TokenScope.ADMIN},
    ("POST", "/v1/plans"): {TokenScope.PLAN, TokenScope.ADMIN},
    ("GET", "/v1/targets"): {TokenScope.READ, TokenScope.ADMIN},
    ("PUT", "/v1/freeze"): {TokenScope.OPERATE, TokenScope.ADMIN},
    ("PUT", "/v1/targets/a"): {TokenScope.OPERATE, TokenScope.ADMIN},
    ("GET", "/v1/tokens"): {TokenScope.ADMIN},
    ("POST", "/v1/tokens"): {TokenScope.ADMIN},
    ("GET", "/v1/audit"): {TokenScope.AUDIT, TokenScope.ADMIN},
}


@pytest.mark.parametrize("scope", list(TokenScope))
async def test_a_scope_allows_only_its_own_operations(sqlite_service: RunningService, scope: TokenScope) -> None:
    async with sqlite_service.client(scope) as client:
        for (method, path), scopes in ALLOWED.items():
            answer = await client.request(method, path, json={} if method != "GET" else None)
            assert (answer.status_code != 403) is (scope in scopes), f"{method} {path}: {answer.text}"


async def test_a_new_token_works_until_it_is_revoked(service: RunningService) -> None:
    async with service.client() as admin, service.client(None) as holder:
        made = await admin.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]})
        assert made.status_code == 201
        bearer = {"Authorization": f"Bearer {made.json()['secret']}"}
        assert (await holder.get("/v1/gpus", headers=bearer)).status_code == 200
        assert (await holder.put("/v1/freeze", json={}, headers=bearer)).status_code == 403
        token_id = made.json()["info"]["id"]
        assert (await admin.delete(f"/v1/tokens/{token_id}")).status_code == 204
        assert (await holder.get("/v1/gpus", headers=bearer)).status_code == 401
        assert (await admin.delete(f"/v1/tokens/{token_id}")).status_code == 204, "revoking twice is once"
        assert (await admin.delete("/v1/tokens/000000000000")).status_code == 404
        actions = [entry["action"] for entry in (await admin.get("/v1/audit")).json()["items"]]
    assert actions[:2] == ["token.revoked", "token.created"]


async def test_no_token_can_revoke_itself(service: RunningService) -> None:
    async with service.client() as admin, service.client(None) as holder:
        made = await admin.post("/v1/tokens", json={"name": "second admin", "scopes": ["admin"]})
        bearer = {"Authorization": f"Bearer {made.json()['secret']}"}
        path = f"/v1/tokens/{made.json()['info']['id']}"
        own = await holder.delete(path, headers=bearer)
        assert (own.status_code, own.json()["type"]) == (409, "urn:fleetwright:problem:own-token")
        assert (await holder.get("/v1/tokens", headers=bearer)).status_code == 200


async def test_an_expired_token_is_refused(service: RunningService) -> None:
    async with service.client() as admin, service.client(None) as holder:
        made = await admin.post("/v1/tokens", json={"name": "ci", "scopes": ["read"], "expires_in_s": 60})
        bearer = {"Authorization": f"Bearer {made.json()['secret']}"}
        service.clock.advance(59)
        assert (await holder.get("/v1/gpus", headers=bearer)).status_code == 200
        service.clock.advance(1)
        assert (await holder.get("/v1/gpus", headers=bearer)).status_code == 401


async def test_the_secret_of_a_token_is_not_stored(service: RunningService, database_url: str) -> None:
    async with service.client() as admin:
        made = await admin.post(
            "/v1/tokens", json={"name": "ci", "scopes": ["read"]}, headers={"Idempotency-Key": "once"}
        )
        again = await admin.post(
            "/v1/tokens", json={"name": "ci", "scopes": ["read"]}, headers={"Idempotency-Key": "once"}
        )
        audit = await admin.get("/v1/audit")
    secret = made.json()["secret"]
    assert again.json() == {"info": made.json()["info"], "secret": None}
    assert again.headers["idempotent-replayed"] == "true"
    assert secret not in audit.text
    store = Store(database_url)
    async with store.reading() as tx:
        record = await tx.tokens.get(made.json()["info"]["id"])
    await store.close()
    assert record is not None
    assert secret.encode() not in record.secret_sha256


async def test_disabled_authentication_is_for_loopback_only(start_service: StartService, sqlite_url: str) -> None:
    with pytest.raises(ValidationError, match="allowed only with a loopback host"):
        Settings(host="0.0.0.0", anonymous_read=True)
    async with start_service(sqlite_url, anonymous_read=True) as running, running.client(None) as client:
        assert (await client.get("/v1/gpus")).status_code == 200
        assert (await client.put("/v1/freeze", json={}, headers={"If-Match": "*"})).status_code == 401
        assert (await client.get("/v1/tokens")).status_code == 401
        rebound = await client.get("/v1/gpus", headers={"Host": "evil.example"})
        assert rebound.status_code == 403
    async with start_service(sqlite_url, insecure_no_auth=True) as running, running.client(None) as client:
        assert (await client.put("/v1/freeze", json={}, headers={"If-Match": "*"})).status_code == 200
        foreign = {"If-Match": "*", "Origin": "https://evil.example"}
        assert (await client.put("/v1/freeze", json={}, headers=foreign)).status_code == 403


async def test_a_caller_above_its_rate_is_limited(start_service: StartService, sqlite_url: str) -> None:
    async with (
        start_service(sqlite_url, rate_limit_per_s=2.0, rate_limit_burst=3) as running,
        running.client(TokenScope.READ) as fast,
        running.client(TokenScope.ADMIN) as other,
    ):
        assert [(await fast.get("/v1/freeze")).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
        refused = await fast.get("/v1/freeze")
        assert refused.headers["retry-after"] == "1"
        assert (await other.get("/v1/freeze")).status_code == 200
        assert (await fast.get("/livez")).status_code == 200
        running.clock.advance(1.0)
        assert [(await fast.get("/v1/freeze")).status_code for _ in range(3)] == [200, 200, 429]


async def test_guesses_of_tokens_are_rate_limited(start_service: StartService, sqlite_url: str) -> None:
    async with start_service(sqlite_url, rate_limit_per_s=1.0, rate_limit_burst=5) as running:
        statuses = []
        for number in range(8):
            async with running.client(None) as client:
                guess = {"Authorization": f"Bearer fw_{number:0>12}_{'x' * 43}"}
                statuses.append((await client.get("/v1/gpus", headers=guess)).status_code)
    assert statuses == [401] * 5 + [429] * 3
