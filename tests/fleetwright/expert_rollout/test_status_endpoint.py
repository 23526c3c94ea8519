"""The ingress publishes the status of replicas."""

import json
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("ray.serve", reason="the extra `ray`")

from ray.serve.exceptions import RayServeException

from fleetwright.expert_rollout.serve_engine import PATH, StatusEndpoint
from fleetwright.serve import is_request_for

pytestmark = pytest.mark.anyio


@dataclass
class Handle:
    """A deployment handle with these responses; an exception is raised."""

    answers: list[Any] | Exception
    called: list[str] = field(default_factory=list)

    def broadcast(self, method: str) -> "Handle":
        self.called.append(method)
        return self

    async def results_async(self, *, timeout_s: float, return_exceptions: bool) -> list[Any]:
        assert timeout_s > 0
        assert return_exceptions
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers


async def get_status(handle: Handle, *, method: str = "GET", query: bytes = b"deployment=on-h100") -> tuple[int, Any]:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": PATH, "query_string": query}
    await StatusEndpoint({"on-h100": handle})(scope, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_the_endpoint_returns_each_status_and_omits_failing_replicas() -> None:
    handle = Handle([{"replica_id": "a"}, ValueError("no"), {"replica_id": "b"}])
    assert await get_status(handle) == (200, {"replicas": [{"replica_id": "a"}, {"replica_id": "b"}]})
    assert handle.called == ["expert_map_status"]


@pytest.mark.parametrize(
    ("answers", "request_", "status"),
    [
        (TimeoutError(), {}, 504),
        (RayServeException(), {}, 503),
        ([], {"query": b"deployment=other"}, 404),
        ([], {"query": b""}, 404),
        ([], {"method": "POST"}, 405),
    ],
    ids=["slow", "gone", "unknown", "none", "method"],
)
async def test_errors_have_a_status_code_and_a_message(answers: Any, request_: dict[str, Any], status: int) -> None:
    found, body = await get_status(Handle(answers), **request_)
    assert found == status
    assert body["error"]


@pytest.mark.parametrize(
    ("scope", "handled"),
    [
        ({"type": "http", "path": PATH}, True),
        ({"type": "http", "path": f"/chat{PATH}", "root_path": "/chat"}, True),
        ({"type": "http", "path": "/v1/models"}, False),
        ({"type": "lifespan"}, False),
    ],
)
def test_only_requests_to_its_own_path_are_handled(*, scope: dict[str, Any], handled: bool) -> None:
    assert is_request_for(PATH, scope) is handled
