"""Logs: one JSON object per line with its request id, and no secrets."""

import io
import json
from collections.abc import Callable, Iterator

import pytest
import structlog

from api.schemas.tokens import TokenScope
from deploy.common.logs import configure_logs
from tests.testbed.logs import logging_put_back
from tests.testbed.service import TOKENS, RunningService

pytestmark = pytest.mark.anyio


@pytest.fixture
def logged() -> Iterator[Callable[[], str]]:
    """Logging as in `serve`, restored after the test; returns the text logged so far."""
    stream = io.StringIO()
    with logging_put_back():
        configure_logs(level="INFO", libraries="INFO", stream=stream)
        yield stream.getvalue


async def test_a_request_is_one_line_with_its_id_and_actor(
    logged: Callable[[], str], sqlite_service: RunningService
) -> None:
    async with sqlite_service.client(TokenScope.READ) as client:
        await client.get("/v1/freeze", headers={"X-Request-Id": "abc"})
        await client.get("/livez")
    (entry,) = [entry for entry in map(json.loads, logged().splitlines()) if entry["event"] != "worker_started"]
    assert (entry["event"], entry["request_id"], entry["actor"]) == ("request", "abc", "token:read")
    assert (entry["route"], entry["status"], entry["level"]) == ("/v1/freeze", 200, "info")


async def test_an_exception_is_logged_without_local_values(
    logged: Callable[[], str], sqlite_service: RunningService
) -> None:
    async def broken() -> None:
        hunter2 = TOKENS[TokenScope.ADMIN]
        raise RuntimeError(f"a defect that knows {len(hunter2)} letters")

    sqlite_service.app.add_api_route("/broken", broken)
    async with sqlite_service.client() as client:
        answer = await client.get("/broken")
    log = logged()
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "letters" not in answer.text
    assert "a defect that knows" in log
    assert TOKENS[TokenScope.ADMIN] not in log


async def test_a_request_does_not_change_its_callers_log_context(sqlite_service: RunningService) -> None:
    """An in-process controller calls the service inside its own task."""
    structlog.contextvars.bind_contextvars(target="chat")
    async with sqlite_service.client() as client:
        await client.get("/v1/freeze")
    assert structlog.contextvars.get_contextvars() == {"target": "chat"}
    structlog.contextvars.clear_contextvars()
