"""Projects: a token of one sees and changes only what belongs to it, and its quotas hold."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from api.jobs.sweeps import SWEEP_POINT
from api.schemas.tokens import TokenScope
from api.server.examples import bodies
from api.server.problems import ProblemError
from api.server.projects import PLAN_JOBS, SWEEP_JOBS, refuse_over_quota
from api.store import Store, new_id
from api.store.tables import JobRow
from tests.api.server.operations import Operation, operations
from tests.api.server.test_plans import plan_request
from tests.api.server.test_scopes import of_fleet
from tests.api.server.test_separation import token
from tests.api.server.test_targets import CREATE, SPEC, STATUS
from tests.testbed.fault_bundles import node_diagnosis
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
DEMAND = bodies()["put_target"]["demand"]
LOOP = bodies()["put_planning_loop"] | {"targets": {"chat": "a"}}
EXPIRY = {"expires_in_s": 0}
APPROVAL = {"plan_id": None, "digest": "a" * 64}
ALL_SCOPES = [scope for scope in TokenScope if scope is not TokenScope.ADMIN]
# Valid bodies, so that not the body is refused.
BODIES: dict[str, Any] = {
    "put_target": SPEC,
    "put_target_status": STATUS,
    "approve_target": APPROVAL,
    "put_planning_loop": LOOP,
    "put_planning_loop_status": bodies()["put_planning_loop_status"],
    "set_planning_loop_plan": bodies()["set_planning_loop_plan"],
    "put_diagnosis_expiry": EXPIRY,
    "explain_plan": {},
    "replay_plan": {},
}
QUERIES = {"export_placement": "?engine=vllm", "compare_plans": "?with={id}"}
# They create something new, or list.
WITHOUT_SUBJECT = {"report_diagnosis"}


async def project(running: RunningService, name: str, **quotas: Any) -> None:
    async with running.client() as admin:
        made = await admin.put(f"/v1/projects/{name}", json={"quotas": quotas}, headers=CREATE)
    assert made.status_code == 201, made.text


async def fill(running: RunningService, headers: dict[str, str]) -> dict[str, str]:
    """One thing of each kind, as path segments."""
    async with running.client(None) as client:
        client.headers.update(headers)
        plan = (await client.post("/v1/plans", json=plan_request())).json()
        target = await client.put(
            "/v1/targets/a", json=SPEC | {"plan_id": plan["id"], "demand": DEMAND}, headers=CREATE
        )
        assert target.status_code == 201, target.text
        loop = await client.put("/v1/planning-loops/a", json=LOOP, headers=CREATE)
        assert loop.status_code == 201, loop.text
        diagnosis = (await client.post("/v1/faults/diagnoses", json=node_diagnosis("gpu-1"))).json()
    return {"id": plan["id"], "name": "a", "diagnosis_id": diagnosis["id"]}


def subject_operations(running: RunningService) -> list[Operation]:
    """The operations on one thing that a project owns."""
    return [each for each in operations(running.app) if each.has_project and "{" in each.path and not of_fleet(each)]


async def test_another_project_finds_nothing_of_this_one(service: RunningService) -> None:
    for name in ("team-a", "team-b"):
        await project(service, name)
    own, other = [await token(service, *ALL_SCOPES, project=name) for name in ("team-a", "team-b")]
    segments = await fill(service, own)
    found = subject_operations(service)
    assert len(found) > 12
    async with service.client(None) as client:
        for each in found:
            url = each.url(**segments) + QUERIES.get(each.id, "").format_map(segments)
            body = BODIES.get(each.id)
            headers = other | {"If-Match": "*"}
            answer = await client.request(each.method, url, json=body, headers=headers)
            assert answer.status_code == 404, f"{each.id}: {answer.status_code} {answer.text}"
        for path in ("/v1/targets", "/v1/planning-loops", "/v1/plans", "/v1/faults/diagnoses"):
            listed = [len((await client.get(path, headers=who)).json()["items"]) for who in (own, other)]
            assert listed == [1, 0], path
        taken = await client.put("/v1/targets/a", json=SPEC, headers=other | CREATE)
        borrowed = await client.put("/v1/targets/b", json=SPEC | {"plan_id": segments["id"]}, headers=other | CREATE)
        kept = await client.get("/v1/targets/a", headers=own)
    assert (taken.status_code, borrowed.status_code) == (409, 422)
    assert "taken in another project" in taken.json()["detail"]
    assert kept.json()["version"] == 1
    assert kept.json()["project"] == "team-a"


async def test_a_token_of_the_fleet_chooses_a_project_or_sees_all(service: RunningService) -> None:
    await project(service, "team-a")
    a, default = {"Fleetwright-Project": "team-a"}, {"Fleetwright-Project": "default"}
    async with service.client() as admin:
        await admin.put("/v1/targets/a", json=SPEC, headers=CREATE | a)
        await admin.put("/v1/targets/d", json=SPEC, headers=CREATE)
        listed = [
            [each["name"] for each in (await admin.get(path, headers=headers)).json()["items"]]
            for path, headers in (
                ("/v1/targets", {}),
                ("/v1/targets", a),
                ("/v1/targets?project=team-a", {}),
                ("/v1/targets", default),
            )
        ]
        unknown = await admin.put("/v1/targets/x", json=SPEC, headers=CREATE | {"Fleetwright-Project": "typo"})
        differs = await admin.get("/v1/targets?project=team-a", headers=default)
        moved = await admin.put("/v1/targets/a", json=SPEC | {"mode": "apply"}, headers={"If-Match": "*"})
    assert listed == [["a", "d"], ["a"], ["a"], ["d"]]
    assert (unknown.status_code, unknown.json()["errors"][0]["path"]) == (422, "project")
    assert differs.status_code == 422
    assert (moved.status_code, moved.json()["project"]) == (200, "team-a"), "a change keeps the project"


async def test_a_token_of_a_project_cannot_choose_another(service: RunningService) -> None:
    await project(service, "team-a")
    own = await token(service, TokenScope.READ, project="team-a")
    async with service.client(None) as client:
        for chosen in ("team-a", "default"):
            answer = await client.get("/v1/targets", headers=own | {"Fleetwright-Project": chosen})
            assert answer.status_code == (200 if chosen == "team-a" else 403)
        projects = await client.get("/v1/projects", headers=own)
        other = await client.get("/v1/projects/default", headers=own)
    assert [each["name"] for each in projects.json()["items"]] == ["team-a"]
    assert other.status_code == 404


async def test_a_project_with_tokens_or_targets_is_not_deleted(service: RunningService) -> None:
    await project(service, "team-a")
    await token(service, TokenScope.READ, project="team-a")
    async with service.client() as admin:
        path, any_version = "/v1/projects/team-a", {"If-Match": "*"}
        refused = await admin.delete(path, headers=any_version)
        (made,) = [each for each in (await admin.get("/v1/tokens")).json()["items"] if each["project"] == "team-a"]
        await admin.delete(f"/v1/tokens/{made['id']}")
        deleted = await admin.delete(path, headers=any_version)
        nobody = await admin.post("/v1/tokens", json={"name": "x", "scopes": ["read"], "project": "team-a"})
    assert refused.status_code == 409
    assert f"token '{made['id']}'" in refused.json()["detail"]
    assert (deleted.status_code, nobody.status_code) == (204, 422)


async def add_job(running: RunningService, **values: Any) -> None:
    now = running.clock.now()
    row = {
        "id": new_id(now),
        "kind": PLAN_JOBS,
        "lane": "work",
        "state": "done",
        "project": "team-a",
        "created_at": now,
        "created_by": "me",
        "deadline_s": 10.0,
        "attempts": 1,
        "cancel_requested": False,
    }
    async with running.app.state.service.store.transaction() as tx:
        await tx.usage._connection.execute(insert(JobRow).values(**row | values))


async def refusal(running: RunningService, job_kind: str | None = PLAN_JOBS) -> str | None:
    store: Store = running.app.state.service.store
    async with store.transaction() as tx:
        try:
            await refuse_over_quota(tx, "team-a", now=running.clock.now(), job_kind=job_kind)
        except ProblemError as error:
            return error.detail if error.kind == "over-quota" else str(error)
    return None


async def test_jobs_beyond_a_quota_are_refused_until_a_day_has_passed(service: RunningService) -> None:
    await project(service, "team-a", plans_per_day=2, cpu_s_per_day=100.0, queued_jobs=1)
    await add_job(service, cpu_s=40.0)
    assert await refusal(service) is None
    await add_job(service, cpu_s=1.0, project="default", state="queued")
    assert await refusal(service) is None, "another project's"
    await add_job(service, cpu_s=40.0)
    assert await refusal(service) == "project 'team-a' has used its quota plans_per_day: 2 of 2"
    assert await refusal(service, "placement") is None
    await add_job(service, cpu_s=20.0, kind="placement")
    assert await refusal(service, "placement") == "project 'team-a' has used its quota cpu_s_per_day: 100 of 100"
    service.clock.advance(timedelta(days=1).total_seconds() + 1)
    assert await refusal(service) is None
    await add_job(service, state="queued")
    assert await refusal(service) == "project 'team-a' has used its quota queued_jobs: 1 of 1"
    assert await refusal(service, None) is None


async def test_the_points_of_a_sweep_are_plans_but_wait_in_no_queue_of_the_project(service: RunningService) -> None:
    await project(service, "team-a", plans_per_day=2, queued_jobs=1)
    await add_job(service, state="waiting", kind="sweep")
    await add_job(service, state="queued", kind=SWEEP_POINT, parent="p")
    assert await refusal(service) is None
    await add_job(service, cpu_s=1.0, kind=SWEEP_POINT, parent="p")
    for kind in (PLAN_JOBS, SWEEP_JOBS):
        assert await refusal(service, kind) == "project 'team-a' has used its quota plans_per_day: 2 of 2"


async def test_stored_bytes_of_documents_and_diagnoses_count(service: RunningService) -> None:
    await project(service, "team-b", stored_bytes=2_000)
    own = await token(service, *ALL_SCOPES, project="team-b")
    async with service.client(None) as client:
        client.headers.update(own)
        statuses = [
            (await client.put(f"/v1/targets/t-{number}", json=SPEC, headers=CREATE)).status_code for number in range(9)
        ]
        diagnoses = [await client.post("/v1/faults/diagnoses", json=node_diagnosis("gpu-1")) for _ in range(4)]
        deleted = await client.delete("/v1/targets/t-0", headers={"If-Match": "*"})
    assert statuses.count(201) in range(2, 8)
    assert statuses == [201] * statuses.count(201) + [429] * statuses.count(429)
    assert diagnoses[-1].status_code == 429
    assert "stored_bytes" in diagnoses[-1].json()["detail"]
    assert deleted.status_code == 204, "to delete is always allowed"
    async with service.app.state.service.store.reading() as tx:
        assert 1_000 < await tx.usage.stored_bytes("team-b") <= 2_000
        assert await tx.usage.stored_bytes("nobody") == 0
