"""Four eyes: who prepared a change of a target does not approve it."""

from typing import Any

import httpx
import pytest

from api.schemas.tokens import TokenScope
from api.server.examples import bodies
from tests.api.server.test_plans import plan_request
from tests.api.server.test_targets import CREATE, SPEC, STATUS
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio
DIGEST = "a" * 64
READY = STATUS | {"phase": "awaiting_approval", "digest": DIGEST}
REQUEST = {"plan_id": None, "digest": DIGEST}
GUARDED = SPEC | {"mode": "apply", "require_approval": True}


async def token(running: RunningService, *scopes: TokenScope, project: str | None = None) -> dict[str, str]:
    """A new token, as the header of its requests."""
    async with running.client() as admin:
        request = {"name": "one", "scopes": [scope.value for scope in scopes], "project": project}
        made = await admin.post("/v1/tokens", json=request)
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['secret']}"}


async def put(client: httpx.AsyncClient, spec: dict[str, Any], headers: dict[str, str]) -> None:
    answer = await client.put("/v1/targets/chat", json=spec, headers=headers)
    assert answer.status_code in {200, 201}, answer.text


async def test_who_reports_or_sets_or_changes_does_not_approve(service: RunningService) -> None:
    both = (TokenScope.OPERATE, TokenScope.APPROVE)
    planner, changer, other = [await token(service, *both) for _ in range(3)]
    reporter = await token(service, TokenScope.REPORT, TokenScope.APPROVE)
    async with service.client(None) as client:
        await put(client, SPEC, other | CREATE)
        await put(client, GUARDED | {"workload": "chat-2"}, planner | {"If-Match": "*"})
        await put(client, GUARDED, changer | {"If-Match": "*"})
        assert (await client.put("/v1/targets/chat/status", json=READY, headers=reporter)).status_code == 204
        for preparer in (planner, changer, reporter, other):
            refused = await client.post("/v1/targets/chat/approval", json=REQUEST, headers=preparer)
            assert (refused.status_code, refused.json()["type"]) == (403, "urn:fleetwright:problem:own-change")
            assert "self_approval" in refused.json()["detail"]
        approver = await token(service, TokenScope.APPROVE)
        approved = await client.post("/v1/targets/chat/approval", json=REQUEST, headers=approver)
    assert approved.status_code == 200, approved.text
    async with service.client() as admin:
        entries = (await admin.get("/v1/audit", params={"limit": 5})).json()["items"]
    assert [entry["action"] for entry in entries].count("target.approved") == 1


async def test_only_changes_since_the_target_has_its_plan_count(service: RunningService) -> None:
    async with service.client() as admin:
        plan_id = (await admin.post("/v1/plans", json=plan_request())).json()["id"]
    earlier, later = [await token(service, TokenScope.OPERATE, TokenScope.APPROVE) for _ in range(2)]
    async with service.client(None) as client:
        await put(client, GUARDED, earlier | CREATE)
        await put(client, GUARDED | {"plan_id": plan_id}, later | {"If-Match": "*"})
        async with service.client(TokenScope.REPORT) as reporter:
            await reporter.put("/v1/targets/chat/status", json=READY | {"plan_id": plan_id})
        request = REQUEST | {"plan_id": plan_id}
        own = await client.post("/v1/targets/chat/approval", json=request, headers=later)
        approved = await client.post("/v1/targets/chat/approval", json=request, headers=earlier)
    assert (own.status_code, approved.status_code) == (403, 200), approved.text


async def test_who_wrote_the_planning_loop_does_not_approve_its_plans(service: RunningService) -> None:
    author, approver = [await token(service, TokenScope.OPERATE, TokenScope.APPROVE) for _ in range(2)]
    async with service.client() as admin, service.client(TokenScope.REPORT) as controller:
        plan_id = (await admin.post("/v1/plans", json=plan_request())).json()["id"]
        await put(admin, GUARDED | {"demand": bodies()["put_target"]["demand"]}, CREATE)
        loop = bodies()["put_planning_loop"]
        assert (await admin.put("/v1/planning-loops/chat", json=loop, headers=author | CREATE)).status_code == 201
        await controller.put("/v1/leases/controller", json={"holder": "a", "lease_s": 10}, headers=CREATE)
        decision = {"plan_id": plan_id, "loop_version": 1, "expected_plan_ids": {"chat": None}}
        under = {"Fleetwright-Lease": "controller/1"}
        done = await controller.post("/v1/planning-loops/chat/plan", json=decision, headers=under)
        assert done.status_code == 200, done.text
        await controller.put("/v1/targets/chat/status", json=READY | {"plan_id": plan_id}, headers=under)
        await admin.delete("/v1/planning-loops/chat", headers=author | {"If-Match": "*"})
        request = REQUEST | {"plan_id": plan_id}
        own = await admin.post("/v1/targets/chat/approval", json=request, headers=author)
        approved = await admin.post("/v1/targets/chat/approval", json=request, headers=approver)
    assert (own.status_code, own.json()["type"]) == (403, "urn:fleetwright:problem:own-change")
    assert "wrote the planning loop that set plan" in own.json()["detail"]
    assert approved.status_code == 200, approved.text


async def test_the_admin_is_no_exception(service: RunningService) -> None:
    async with service.client() as admin:
        await put(admin, GUARDED, CREATE)
        await admin.put("/v1/targets/chat/status", json=READY)
        refused = await admin.post("/v1/targets/chat/approval", json=REQUEST)
        await put(admin, GUARDED | {"require_approval": False}, {"If-Match": "*"})
        still = await admin.post("/v1/targets/chat/approval", json=REQUEST)
    assert (refused.status_code, still.status_code) == (403, 403)


@pytest.mark.parametrize("settings", [{"self_approval": True}, {"insecure_no_auth": True}])
async def test_an_installation_of_one_person_approves_its_own_changes(
    start_service: StartService, sqlite_url: str, settings: dict[str, bool]
) -> None:
    scope = TokenScope.ADMIN if "self_approval" in settings else None
    async with start_service(sqlite_url, **settings) as running, running.client(scope) as one:
        await put(one, GUARDED, CREATE)
        await one.put("/v1/targets/chat/status", json=READY)
        assert (await one.post("/v1/targets/chat/approval", json=REQUEST)).status_code == 200


async def test_a_token_of_release_0_2_reports_and_prepares_but_does_not_approve(service: RunningService) -> None:
    async with service.client(TokenScope.OPERATE) as operator:
        await put(operator, GUARDED, CREATE)
        assert (await operator.put("/v1/targets/chat/status", json=READY)).status_code == 204
        claim = {"holder": "h", "lease_s": 10}
        assert (await operator.put("/v1/leases/controller", json=claim, headers=CREATE)).status_code == 201
        refused = await operator.post("/v1/targets/chat/approval", json=REQUEST)
    assert refused.status_code == 403
    assert refused.json()["detail"] == "scope 'approve' is needed; this token has: operate"


async def test_an_auditor_reads_the_audit_and_nothing_else(service: RunningService) -> None:
    async with service.client(TokenScope.AUDIT) as auditor:
        statuses = [(await auditor.get(path)).status_code for path in ("/v1/audit", "/v1/audit/check", "/v1/tokens")]
    assert statuses == [200, 200, 403]
