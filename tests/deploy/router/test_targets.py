"""Which path is asked for: no bytes of a caller ever choose who is asked."""

import json

import pytest

from tests.deploy.router.asgi import Bed, Scripted, bed
from tests.deploy.router.tables import table

pytestmark = pytest.mark.anyio


def before(deployment: Scripted) -> Bed:
    """A router with one deployment."""
    return bed(table(weights={"a": 1.0}), {"a": deployment})


@pytest.mark.parametrize(
    "target", ["@evil/v1", "evil:80", "*", "", "\\\\evil/x", "/a b", "/a\r\nhost: evil", "/a\x00", "/a#b"]
)
async def test_a_target_that_is_no_path_is_refused(target: str) -> None:
    deployment = Scripted()
    told = await before(deployment).post(path=target)
    assert (told.status, json.loads(told.body)["error"]["type"]) == (400, "invalid_request_error")
    assert not deployment.asked


async def test_below_its_mount_a_path_loses_that_and_nothing_else() -> None:
    for path, target in {
        "/llm/v1/models": "/v1/models",
        "/llm": "/",
        "/llm@evil/v1": "/llm@evil/v1",
        "//evil/v1": "//evil/v1",
    }.items():
        deployment = Scripted()
        await before(deployment).post(b"", path=path, method="GET", root="/llm")
        assert [asked.target for asked in deployment.asked] == [target]


async def test_a_server_that_tells_no_raw_path_is_served_too() -> None:
    deployment = Scripted()
    await before(deployment).post(b"", path="/v1/m\u00e4 b", method="GET", raw=False)
    assert [asked.target for asked in deployment.asked] == ["/v1/m%C3%A4%20b"]
