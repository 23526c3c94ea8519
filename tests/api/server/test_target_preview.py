"""A dry run of a target: the same checks as the write, and nothing stored."""

from typing import Any

import pytest

from api.schemas.tokens import TokenScope
from tests.api.server.test_plans import plan_request
from tests.api.server.test_targets import CREATE, SPEC
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
DRY = {"dry_run": "true"}


async def test_a_dry_run_shows_what_the_write_then_stores(service: RunningService) -> None:
    async with service.client() as admin:
        plan = (await admin.post("/v1/plans", json=plan_request())).json()
        created = await admin.put("/v1/targets/a", json=SPEC, headers=CREATE, params=DRY)
        missing = await admin.get("/v1/targets/a")
        stored = await admin.put("/v1/targets/a", json=SPEC, headers=CREATE)
        changed = stored.json()["spec"] | {"plan_id": plan["id"], "mode": "apply", "require_approval": True}
        held = {"If-Match": stored.headers["etag"]}
        seen = (await admin.get("/v1/audit")).json()["items"][0]["seq"]
        preview = await admin.put("/v1/targets/a", json=changed, headers=held, params=DRY)
        assert (await admin.get("/v1/audit")).json()["items"][0]["seq"] == seen
        after = await admin.put("/v1/targets/a", json=changed, headers=held)
    assert (created.status_code, missing.status_code) == (200, 404)
    assert created.json() == stored.json() | {
        "created": True,
        "changes": [{"path": "", "now": None, "planned": stored.json()["spec"]}],
        "needs_approval": False,
    }
    assert created.headers["etag"] == stored.headers["etag"]
    assert preview.json() == after.json() | {
        "created": False,
        "changes": [
            {"path": "mode", "now": "observe", "planned": "apply"},
            {"path": "plan_id", "now": None, "planned": plan["id"]},
            {"path": "require_approval", "now": False, "planned": True},
        ],
        "needs_approval": True,
    }
    assert preview.headers["etag"] == after.headers["etag"]


@pytest.mark.parametrize(
    ("change", "headers", "status"),
    [
        ({"plan_id": "01990000-0000-7000-8000-000000000000"}, {"If-Match": "*"}, 422),
        ({"mode": "yolo"}, {"If-Match": "*"}, 422),
        ({}, CREATE, 412),
        ({}, {"If-Match": '"9-0000000000000000"'}, 412),
        ({}, {}, 428),
    ],
)
async def test_a_dry_run_is_refused_where_the_write_is(
    service: RunningService, change: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    async with service.client() as admin, service.client(TokenScope.PLAN) as planner:
        await admin.put("/v1/targets/a", json=SPEC, headers=CREATE)
        answers = [
            await admin.put("/v1/targets/a", json=SPEC | change, headers=headers, params=params) for params in (DRY, {})
        ]
        forbidden = await planner.put("/v1/targets/a", json=SPEC, headers=CREATE, params=DRY)
        kept = await admin.get("/v1/targets/a")
    first, second = [{**each.json(), "request_id": None} for each in answers]
    assert first == second
    assert (answers[0].status_code, forbidden.status_code, kept.json()["version"]) == (status, 403, 1)


async def test_only_targets_have_a_dry_run(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as admin:
        answer = await admin.put("/v1/projects/a", json={}, headers=CREATE, params=DRY)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "query.dry_run")
