"""Liveness, readiness, metrics, request ids, and an unavailable database."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from api.schemas.tokens import TokenScope
from api.store import Migrations
from api.store.engine import make_migration_engine, parse_url
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio


async def test_a_healthy_service_is_live_and_ready(service: RunningService) -> None:
    async with service.client(None) as client:
        assert (await client.get("/livez")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"status": "ok"}


async def test_a_service_is_not_ready_before_its_schema_is_migrated(
    start_service: StartService, empty_database_url: str
) -> None:
    async with start_service(empty_database_url) as running, running.client(None) as client:
        before = await client.get("/readyz")
        Migrations(empty_database_url).upgrade()
        await running.first_token_stored()
        after = await client.get("/readyz")
    assert (before.status_code, after.status_code) == (503, 200)
    assert before.headers["content-type"] == "application/problem+json"


async def test_a_service_is_not_ready_before_its_first_token_is_stored(
    start_service: StartService, sqlite_url: str
) -> None:
    """Another writer locks the database while the service starts."""
    other = sqlite3.connect(sqlite_url.partition("///")[2], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with start_service(sqlite_url) as running, running.client(None) as client:
        before = await client.get("/readyz")
        other.rollback()
        await running.first_token_stored()
        after = await client.get("/readyz")
    other.close()
    assert (before.status_code, after.status_code) == (503, 200)
    assert before.json()["type"] == "urn:fleetwright:problem:first-token-not-stored"


async def test_an_older_release_stays_ready_with_a_newer_schema(start_service: StartService, database_url: str) -> None:
    engine = make_migration_engine(parse_url(database_url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'r9999'"))
    engine.dispose()
    async with start_service(database_url) as running, running.client(None) as client:
        await running.first_token_stored()
        assert (await client.get("/readyz")).status_code == 200


async def test_without_a_database_the_service_is_live_but_not_ready(
    start_service: StartService, tmp_path: Path
) -> None:
    """A folder in place of the file: every connection fails."""
    (tmp_path / "gone.db").mkdir()
    async with start_service(f"sqlite+aiosqlite:///{tmp_path}/gone.db") as running, running.client() as client:
        assert (await client.get("/livez")).status_code == 200
        with capture_logs() as logged:
            ready = await client.get("/readyz")
            read = await client.get("/v1/gpus")
        metrics = await client.get("/metrics")
    # The driver does not wait for the thread of a connection that failed to open; that thread needs this loop.
    async with asyncio.timeout(30):
        while any("_connection_worker_thread" in thread.name for thread in threading.enumerate()):
            await asyncio.sleep(0.001)
    for answer in (ready, read):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["type"] == "urn:fleetwright:problem:database-unavailable"
        assert str(tmp_path) not in answer.text
    assert "fleetwright_database_up 0.0" in metrics.text.splitlines()
    assert 'fleetwright_database_failures_total{failure="unavailable"} 2.0' in metrics.text.splitlines()
    causes = [entry["cause"] for entry in logged if entry["event"] == "database_failed"]
    assert causes == ["OperationalError SQLITE_CANTOPEN"] * 2


async def test_every_response_has_a_request_id(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(TokenScope.READ) as client:
        made = await client.get("/v1/gpus")
        kept = await client.get("/v1/nowhere", headers={"X-Request-Id": "abc-123"})
        forged = await client.get("/v1/gpus", headers={"X-Request-Id": "a b\tc"})
    assert len(made.headers["x-request-id"]) == 36
    assert kept.headers["x-request-id"] == kept.json()["request_id"] == "abc-123"
    assert forged.headers["x-request-id"] != "a b\tc"


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/nowhere", 404), ("DELETE", "/v1/gpus", 405)])
async def test_unknown_routes_respond_with_problem_details(
    sqlite_service: RunningService, method: str, path: str, status: int
) -> None:
    async with sqlite_service.client() as client:
        answer = await client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["instance"] == path


async def test_a_response_to_a_wrong_method_lists_the_allowed_ones(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        answer = await client.patch("/v1/targets/a")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PUT"


async def test_every_get_route_responds_to_head_without_a_body(sqlite_service: RunningService) -> None:
    readable = [path for path, methods in sqlite_service.app.openapi()["paths"].items() if "get" in methods]
    assert len(readable) > 30
    async with sqlite_service.client() as client:
        for path in [*readable, "/v1/nowhere", "/v1/faults/paths"]:
            got, head = await client.get(path), await client.head(path)
            assert (head.status_code, head.content) == (got.status_code, b""), path
            assert head.headers["content-type"] == got.headers["content-type"], path
            assert head.headers.get("etag") == got.headers.get("etag"), path
        got_headers = (await client.get("/v1/gpus")).headers
        condition = {"If-None-Match": got_headers["etag"]}
        assert (await client.head("/v1/gpus", headers=condition)).status_code == 304
        assert (await client.head("/v1/gpus")).headers["content-length"] == got_headers["content-length"]
        text = (await client.get("/metrics")).text
    assert 'fleetwright_http_requests_total{method="HEAD",route="/v1/gpus",status="200"} 2.0' in text
    assert 'fleetwright_http_requests_total{method="HEAD",route="unmatched",status="404"} 1.0' in text


async def test_head_is_refused_on_routes_without_get(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        answer = await client.head("/v1/faults/paths")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_requests_are_counted_by_route_not_by_path(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        for number in range(3):
            await client.get(f"/v1/targets/t{number}")
            await client.get(f"/nowhere/{number}")
        text = (await client.get("/metrics")).text
    assert 'fleetwright_http_requests_total{method="GET",route="/v1/targets/{name}",status="404"} 3.0' in text
    assert 'fleetwright_http_requests_total{method="GET",route="unmatched",status="404"} 3.0' in text
    assert "/v1/targets/t1" not in text
