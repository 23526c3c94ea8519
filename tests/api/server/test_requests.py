"""Unknown query parameters, and parameters and JSON keys given twice, are refused."""

import json

import pytest

from api.schemas.tokens import TokenScope
from tests.api.server.test_targets import CREATE, SPEC
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/v1/leases?holder=a", "query.holder: is not a known parameter; allowed: limit, cursor"),
        ("/v1/plans?limit=2&limit=3", "query.limit: is given twice, expected once"),
        ("/v1/gpus?version=1", "query.version: is not a known parameter; allowed: none"),
        ("/v1/targets/a?%00", "query.\x00: is not a known parameter; allowed: project"),
    ],
)
async def test_a_query_with_unknown_or_repeated_parameters_is_refused(
    sqlite_service: RunningService, path: str, problem: str
) -> None:
    async with sqlite_service.client(TokenScope.READ) as reader:
        answer = await reader.get(path)
    assert (answer.status_code, answer.json()["detail"]) == (422, problem)


async def test_known_parameters_are_accepted_once_each(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(TokenScope.READ) as reader:
        assert (await reader.get("/v1/targets?limit=2")).status_code == 200
        assert (await reader.get("/v1/targets?limit=2&cursor=WyJhIl0")).status_code == 200


@pytest.mark.parametrize("inside", [False, True])
async def test_a_key_given_twice_is_refused(sqlite_service: RunningService, *, inside: bool) -> None:
    body = json.dumps(SPEC)
    twice = body.replace('"application": "llm"', '"application": "llm", "application": "chat"')
    twice = twice if inside else '{"workload": "batch", ' + body[1:]
    async with sqlite_service.client(TokenScope.OPERATE) as operator:
        answer = await operator.put(
            "/v1/targets/a", content=twice, headers=CREATE | {"Content-Type": "application/json"}
        )
        once = await operator.put("/v1/targets/a", content=body, headers=CREATE | {"Content-Type": "application/json"})
    key = "application" if inside else "workload"
    assert (answer.status_code, once.status_code) == (422, 201)
    assert answer.json()["detail"] == f"body: has the key '{key}' twice in one object, expected once"


async def test_a_caller_without_a_token_learns_nothing_about_parameters(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(None) as stranger:
        assert (await stranger.get("/v1/plans?status=optimal")).status_code == 401


async def test_one_key_of_very_many_given_twice_is_found(sqlite_service: RunningService) -> None:
    keys = [*map(str, range(90_000)), "89999"]
    body = "{" + ",".join(f'"{key}":0' for key in keys) + "}"
    async with sqlite_service.client(TokenScope.OPERATE) as operator:
        answer = await operator.put(
            "/v1/targets/a", content=body, headers=CREATE | {"Content-Type": "application/json"}
        )
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "body: has the key '89999' twice in one object, expected once",
    )
