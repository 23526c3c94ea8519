"""`/v1/jobs` and requests that become jobs."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from api.schemas.jobs import Job, JobState
from api.schemas.tokens import TokenScope
from api.server.bodies import BodyBudget
from api.server.jobs import NewJob
from tests.api.server.test_placements import placement_request
from tests.api.server.test_plans import plan_request
from tests.testbed.service import RunningService, StartService
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio
ASYNC = {"Prefer": "respond-async"}
JSON = {"Content-Type": "application/json"}
LARGE = 40_000  # characters of a body that only its job reads


async def ended(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found: dict[str, Any] = (await client.get(f"/v1/jobs/{job_id}")).json()
            if JobState(found["state"]).is_final:
                return found
            await asyncio.sleep(0.01)


async def stored_job(service: RunningService, **changes: Any) -> str:
    """Store a job that no worker claims, because its lane has none; return its id."""
    new = NewJob(**{"kind": "plan", "request": json.dumps(plan_request()), "actor": "token:plan"} | changes)
    job, _replayed = await service.app.state.service.jobs.accept(new)
    return str(job.id)


@pytest.fixture
async def idle(start_service: StartService, database_url: str) -> Any:
    """A service whose jobs wait: it has no worker."""
    async with start_service(database_url, with_worker=False, jobs_queued_per_caller=3) as running:
        await running.first_token_stored()
        yield running


async def test_a_request_can_leave_with_the_job_and_read_the_result_later(service: RunningService) -> None:
    async with service.client(TokenScope.PLAN) as planner, service.client(TokenScope.READ) as reader:
        accepted = await planner.post("/v1/plans", json=plan_request(), headers=ASYNC)
        job = await ended(reader, accepted.json()["id"])
        plan = await reader.get(job["result"])
    assert accepted.status_code == 202
    assert accepted.headers["location"] == f"/v1/jobs/{job['id']}"
    assert accepted.headers["preference-applied"] == "respond-async"
    assert (job["state"], job["kind"], job["lane"], job["created_by"]) == ("succeeded", "plan", "work", "token:plan")
    assert (plan.status_code, plan.json()["id"]) == (200, job["id"])


async def test_a_caller_may_wait_a_little_before_it_leaves(idle: RunningService) -> None:
    async with idle.client() as client:
        accepted = await client.post("/v1/plans", json=plan_request(), headers={"Prefer": "respond-async, wait=0"})
    assert (accepted.status_code, accepted.json()["state"], accepted.json()["position"]) == (202, "queued", 0)


async def test_jobs_are_listed_newest_first_and_chosen_by_state_kind_and_caller(idle: RunningService) -> None:
    first, second = await stored_job(idle), await stored_job(idle, kind="placement", actor="token:other")
    async with idle.client(TokenScope.READ) as client:
        listed = (await client.get("/v1/jobs")).json()["items"]
        for query in ("state=queued&kind=plan", "created_by=token:plan"):
            assert [job["id"] for job in (await client.get(f"/v1/jobs?{query}")).json()["items"]] == [first]
        assert (await client.get("/v1/jobs?state=running")).json()["items"] == []
        assert (await client.get("/v1/jobs?state=done")).status_code == 422
    assert [(job["id"], job["position"]) for job in listed] == [(second, 1), (first, 0)]


async def test_only_its_creator_or_an_admin_cancels_a_job(idle: RunningService) -> None:
    mine, other = await stored_job(idle), await stored_job(idle, actor="token:other")
    async with idle.client(TokenScope.PLAN) as planner, idle.client() as admin:
        assert (await planner.delete(f"/v1/jobs/{other}")).status_code == 403
        cancelled = await planner.delete(f"/v1/jobs/{mine}")
        assert (await planner.delete(f"/v1/jobs/{mine}")).json()["state"] == "cancelled"  # again: nothing changes
        assert (await admin.delete(f"/v1/jobs/{other}")).status_code == 202
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "cancelled")


async def test_a_job_that_has_ended_is_not_cancelled(service: RunningService) -> None:
    async with service.client() as client:
        made = await client.post("/v1/plans", json=plan_request())
        refused = await client.delete(f"/v1/jobs/{made.json()['id']}")
    assert (refused.status_code, refused.json()["detail"][-17:]) == (409, "succeeded already")


async def test_a_waiting_request_learns_that_its_job_was_cancelled(idle: RunningService) -> None:
    async with idle.client() as client:
        waiting = asyncio.create_task(client.post("/v1/plans", json=plan_request()))
        async with asyncio.timeout(PATIENCE_S):
            while not (found := (await client.get("/v1/jobs")).json()["items"]):
                await asyncio.sleep(0.01)
        await client.delete(f"/v1/jobs/{found[0]['id']}")
        response = await waiting
    assert (response.status_code, response.json()["type"]) == (409, "urn:fleetwright:problem:job-cancelled")


async def test_a_key_in_flight_joins_the_running_job(service: RunningService) -> None:
    key = {"Idempotency-Key": "same"}
    async with service.client() as client:
        responses = await asyncio.gather(
            *(client.post("/v1/plans", json=plan_request(), headers=key) for _ in range(5))
        )
        other = await client.post("/v1/plans", json=plan_request(rate_rps=31), headers=key)
        plans = (await client.get("/v1/plans")).json()["items"]
    assert {response.status_code for response in responses} == {201}
    assert len({response.text for response in responses}) == 1
    assert (
        sorted(response.headers.get("idempotent-replayed", "first") for response in responses)[:4]
        == ["first"] + ["true"] * 3
        or len(plans) == 1
    )
    assert len(plans) == 1
    assert other.status_code == 422


async def test_a_failed_job_gives_its_key_back(service: RunningService) -> None:
    key = {"Idempotency-Key": "k"}
    unknown = {"workloads": [{"name": "w", "rate_rps": 1, "model": "no-such", "buckets": "x" * LARGE}]}
    async with service.client() as client:
        refused = await client.post("/v1/plans", json=unknown, headers=key)
        taken = await client.post("/v1/plans", json=plan_request(), headers=key)
    assert (refused.status_code, taken.status_code) == (422, 201)


async def test_a_large_body_is_read_by_its_job_with_the_same_problems(service: RunningService) -> None:
    small = plan_request() | {"time_limit_s": -1}
    async with service.client() as client:
        inline = await client.post("/v1/plans", json=small)
        raw = await client.post("/v1/plans", content=json.dumps(small) + " " * LARGE, headers=JSON)
        twice = await client.post("/v1/plans", content='{"a": 1, "a": 2}' + " " * LARGE, headers=JSON)
        broken = await client.post("/v1/plans", content="{" + " " * LARGE, headers=JSON)
        binary = await client.post("/v1/plans", content=b"\xff\xfe\xff" + b" " * LARGE, headers=JSON)
        untyped = await client.post("/v1/plans", content=json.dumps(plan_request()) + " " * LARGE)
    problems = [(response.status_code, response.json()["errors"]) for response in (inline, raw)]
    assert problems[0] == problems[1]
    assert {twice.status_code, broken.status_code, binary.status_code, untyped.status_code} == {422}
    assert untyped.json()["errors"][0]["path"] == "header.Content-Type"
    assert "twice" in twice.json()["detail"]
    assert "must be JSON" in broken.json()["detail"]


async def test_a_request_that_waits_for_its_job_does_not_hold_its_body(idle: RunningService) -> None:
    service = idle.app.state.service
    idle.app.state.service = replace(service, body_budget=BodyBudget(LARGE + 20_000))
    large = json.dumps(plan_request()) + " " * LARGE
    async with idle.client() as client:
        waiting = []
        for count in (1, 2):
            waiting.append(asyncio.create_task(client.post("/v1/plans", content=large, headers=JSON)))
            async with asyncio.timeout(PATIENCE_S):
                while len((await client.get("/v1/jobs")).json()["items"]) < count:
                    await asyncio.sleep(0.01)
        service.jobs.stop_waiting()
        responses = await asyncio.gather(*waiting)
    assert [response.json()["type"] for response in responses] == ["urn:fleetwright:problem:shutting-down"] * 2


async def test_one_caller_fills_only_its_own_share_of_a_lane(idle: RunningService) -> None:
    async with idle.client(TokenScope.PLAN) as planner, idle.client() as admin:
        codes = [(await planner.post("/v1/plans", json=plan_request(), headers=ASYNC)).status_code for _ in range(4)]
        refused = await planner.post("/v1/plans", json=plan_request(), headers=ASYNC)
        other = await admin.post("/v1/plans", json=plan_request(), headers=ASYNC)
    assert codes == [202, 202, 202, 429]
    assert (refused.json()["type"], refused.headers["retry-after"]) == ("urn:fleetwright:problem:queue-full", "5")
    assert other.status_code == 202


async def test_the_same_request_is_solved_once_within_the_time_of_reuse(service: RunningService) -> None:
    async with service.client() as client:
        first, second = [(await client.post("/v1/plans", json=plan_request())).json() for _ in range(2)]
        service.clock.advance(timedelta(hours=2).total_seconds())
        third = (await client.post("/v1/plans", json=plan_request())).json()
    assert first["id"] != second["id"]
    assert first["plan"] == second["plan"]  # with the moment and the seconds of the first
    assert third["plan"]["planned_at"] != first["plan"]["planned_at"]


async def test_events_follow_a_job_to_its_end(service: RunningService) -> None:
    async with service.client() as client:
        accepted = await client.post("/v1/plans", json=plan_request(), headers=ASYNC)
        followed = await client.get(f"{accepted.headers['location']}/events")
    assert followed.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in followed.text.splitlines() if line.startswith("data: ")]
    assert Job.model_validate_json(events[-1]).state is JobState.SUCCEEDED


async def test_an_export_is_a_job_whose_output_can_be_read_again(service: RunningService) -> None:
    async with service.client() as client:
        made = await client.post("/v1/placements", json=placement_request())
        exported = await client.get(f"{made.headers['location']}/export?engine=vllm")
        jobs = (await client.get("/v1/jobs?kind=placement+export")).json()["items"]
        output = await client.get(f"/v1/jobs/{jobs[0]['id']}/output")
    assert exported.status_code == 200
    assert output.text == exported.text
    assert jobs[0]["subject"] == made.headers["location"].removeprefix("/v1/")


@pytest.mark.parametrize("path", ["", "/output", "/events"])
async def test_an_unknown_job_is_not_found(sqlite_service: RunningService, path: str) -> None:
    async with sqlite_service.client() as client:
        found = await client.get(f"/v1/jobs/{'0' * 8}-0000-0000-0000-{'0' * 12}{path}")
    assert found.status_code == 404


async def test_a_service_that_ends_tells_who_waits_and_keeps_the_job(idle: RunningService) -> None:
    jobs = idle.app.state.service.jobs
    async with idle.client() as client:
        waiting = asyncio.create_task(client.post("/v1/plans", json=plan_request(), headers={"Idempotency-Key": "k"}))
        async with asyncio.timeout(PATIENCE_S):
            while not (found := (await client.get("/v1/jobs")).json()["items"]):
                await asyncio.sleep(0.01)
        jobs.stop_waiting()
        response = await waiting
        left = (await client.get(f"/v1/jobs/{found[0]['id']}")).json()
    assert (response.status_code, response.json()["type"]) == (503, "urn:fleetwright:problem:shutting-down")
    assert left["state"] == "queued"


async def test_only_its_process_parses_a_long_request(sqlite_service: RunningService) -> None:
    """A worker reads a request for the name of a stored tree; a long one would occupy it."""
    async with sqlite_service.client() as client:
        long = await client.post("/v1/power/plans", content='{"tree_name": "row"}' + " " * LARGE, headers=JSON)
        short = await client.post("/v1/power/plans", content='{"tree_name": "row"}', headers=JSON)
    assert "is in a longer request" in long.json()["detail"]
    assert "there is no power tree 'row'" in short.json()["detail"]
