"""Request targets: no bytes of a caller change the called host."""

import json

import pytest

from tests.deploy.router.asgi import Bed, Scripted, bed
from tests.deploy.router.tables import table

pytestmark = pytest.mark.anyio


def router_before(deployment: Scripted) -> Bed:
    """A router with one deployment."""
    return bed(table(weights={"a": 1.0}), {"a": deployment})


@pytest.mark.parametrize(
    "target", ["@evil/v1", "evil:80", "*", "", "\\\\evil/x", "/a b", "/a\r\nhost: evil", "/a\x00", "/a#b"]
)
async def test_a_target_that_is_no_path_is_refused(target: str) -> None:
    deployment = Scripted()
    exchange = await router_before(deployment).post(path=target)
    assert (exchange.status, json.loads(exchange.body)["error"]["type"]) == (400, "invalid_request_error")
    assert not deployment.requests


async def test_only_the_mount_prefix_is_removed_from_a_path() -> None:
    for path, target in {
        "/llm/v1/models": "/v1/models",
        "/llm": "/",
        "/llm@evil/v1": "/llm@evil/v1",
        "//evil/v1": "//evil/v1",
    }.items():
        deployment = Scripted()
        await router_before(deployment).post(b"", path=path, method="GET", root="/llm")
        assert [request.target for request in deployment.requests] == [target]


async def test_a_server_without_raw_path_is_supported() -> None:
    deployment = Scripted()
    await router_before(deployment).post(b"", path="/v1/m\u00e4 b", method="GET", raw=False)
    assert [request.target for request in deployment.requests] == ["/v1/m%C3%A4%20b"]
