"""`/v1/sweeps`: one request planned over a grid, with a job for each point."""

import asyncio
from typing import Any

import httpx
import pytest

from api.schemas.jobs import JobState
from api.schemas.tokens import TokenScope
from tests.api.server.test_plans import plan_request
from tests.testbed.jobs import worker_beside
from tests.testbed.service import RunningService, StartService
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio
ASYNC = {"Prefer": "respond-async"}
RATES = (0.5, 1.0, 2.0)


def sweep_request(*factors: float) -> dict[str, Any]:
    return {"request": plan_request(), "axes": [{"knob": "rate", "factors": factors or RATES}]}


async def job_in(client: httpx.AsyncClient, job_id: str, *states: JobState) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found: dict[str, Any] = (await client.get(f"/v1/jobs/{job_id}")).json()
            if found["state"] in states:
                return found
            await asyncio.sleep(0.01)


async def points_of(client: httpx.AsyncClient, job_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await client.get(f"/v1/jobs?parent={job_id}&limit=200")).json()["items"]
    return items


@pytest.fixture
async def one_slot(start_service: StartService, database_url: str) -> Any:
    """A service whose worker runs one job at a time."""
    async with start_service(database_url, plan_concurrency=1, sweep_points=50) as running:
        await running.first_token_stored()
        yield running


async def test_a_sweep_is_stored_with_its_front_by_one_slot(one_slot: RunningService) -> None:
    async with one_slot.client(TokenScope.PLAN) as planner, one_slot.client(TokenScope.READ) as reader:
        made = await planner.post("/v1/sweeps", json=sweep_request())
        read = await reader.get(made.headers["location"])
        (listed,) = (await reader.get("/v1/sweeps")).json()["items"]
        plans = [(await planner.post("/v1/plans", json=plan_request(rate_rps=30 * rate))).json() for rate in RATES]
        points = await points_of(reader, made.json()["id"])
        jobs = (await reader.get("/v1/jobs?kind=sweep+point")).json()["items"]
    assert made.status_code == 201, made.text
    assert read.json() == made.json()
    found = made.json()["sweep"]["points"]
    assert [point["factors"] for point in found] == [{"rate": rate} for rate in RATES]
    assert [point["cost_usd_per_h"] for point in found] == [plan["plan"]["cost_usd_per_h"] for plan in plans]
    assert any(point["pareto"] for point in found)
    assert {name: listed[name] for name in ("points", "failed", "over")} == {"points": 3, "failed": 0, "over": "rate"}
    assert [(job["state"], job["parent"]) for job in points] == [("succeeded", made.json()["id"])] * 3
    assert jobs == []  # the list of jobs has requests only


async def test_a_sweep_is_audited_once(one_slot: RunningService) -> None:
    async with one_slot.client() as client:
        made = await client.post("/v1/sweeps", json=sweep_request(1.0))
        entries = (await client.get("/v1/audit")).json()["items"]
    subject = made.headers["location"].removeprefix("/v1/")
    assert [entry["action"] for entry in entries if entry["subject"] == subject] == ["sweep.created"]


async def test_the_same_key_gives_the_same_sweep_and_the_same_request_is_solved_once(one_slot: RunningService) -> None:
    key = {"Idempotency-Key": "k"}
    async with one_slot.client() as client:
        first, again = [await client.post("/v1/sweeps", json=sweep_request(), headers=key) for _ in range(2)]
        copied = await client.post("/v1/sweeps", json=sweep_request())
        points = await points_of(client, copied.json()["id"])
    assert (again.text, again.headers["idempotent-replayed"]) == (first.text, "true")
    assert copied.json()["sweep"] == first.json()["sweep"]
    assert points == []


async def test_points_that_fail_have_their_reason(one_slot: RunningService) -> None:
    request = sweep_request(1.0, 2.0)
    (workload,) = request["request"]["workloads"]
    workload["model"] = "no-such"
    del workload["options"]
    workload["slo"] = {"ttft_ms": {"p99": 2000}}
    async with one_slot.client() as client:
        made = await client.post("/v1/sweeps", json=request)
    assert made.status_code == 201, made.text
    assert made.json()["sweep"]["points"] == []
    assert [point["factors"] for point in made.json()["sweep"]["failed"]] == [{"rate": 1.0}, {"rate": 2.0}]
    assert all("no-such" in point["reason"] for point in made.json()["sweep"]["failed"])


async def test_a_point_that_was_cancelled_has_its_reason_and_loses_no_other(one_slot: RunningService) -> None:
    async with one_slot.client() as client:
        accepted = await client.post("/v1/sweeps", json=sweep_request(), headers=ASYNC)
        job = accepted.json()["id"]
        await job_in(client, job, JobState.WAITING, JobState.SUCCEEDED)
        points = await points_of(client, job)
        cancelled = [each["id"] for each in points if each["state"] == "queued"][:1]
        for each in cancelled:
            assert (await client.delete(f"/v1/jobs/{each}")).status_code == 202
        await job_in(client, job, JobState.SUCCEEDED)
        sweep = (await client.get(f"/v1/sweeps/{job}")).json()["sweep"]
        again = await client.post("/v1/sweeps", json=sweep_request())
    assert cancelled
    assert [point["reason"] for point in sweep["failed"]] == ["the job was cancelled"]
    assert len(sweep["points"]) == 2
    assert again.json()["sweep"]["failed"] == []  # a sweep with a failed point is not used again


async def test_the_end_of_a_sweep_ends_its_points(start_service: StartService, database_url: str) -> None:
    async with start_service(database_url, with_worker=False, sweep_points=50) as idle, idle.client() as client:
        accepted = await client.post("/v1/sweeps", json=sweep_request(*range(1, 40)), headers=ASYNC)
        job = accepted.json()["id"]
        async with worker_beside(idle.app):
            waiting = await job_in(client, job, JobState.WAITING)
        cancelled = await client.delete(f"/v1/jobs/{job}")
        points = await points_of(client, job)
        read = await client.get(f"/v1/sweeps/{job}")
    assert waiting["phase"] == "points"
    assert cancelled.json()["state"] == "cancelled"
    assert {point["state"] for point in points} <= {"cancelled", "succeeded"}
    assert "cancelled" in {point["state"] for point in points}
    assert read.status_code == 404


async def test_sweeps_over_the_limits_are_refused(one_slot: RunningService) -> None:
    async with one_slot.client() as client:
        many = await client.post("/v1/sweeps", json=sweep_request(*range(1, 60)))
        wrong = await client.post("/v1/sweeps", json=sweep_request(1e12))
        twice = await client.post("/v1/sweeps", json=sweep_request(1, 1))
        empty = await client.post("/v1/sweeps", json=sweep_request() | {"axes": []})
    assert [response.status_code for response in (many, wrong, twice, empty)] == [422] * 4
    assert many.json()["detail"] == "axes: come to 59 points, at most 50 here"
    assert "leads out of the valid range" in wrong.json()["detail"]
    assert "given twice" in twice.json()["detail"]


async def test_the_points_of_a_sweep_fill_no_queue_but_its_own(one_slot: RunningService) -> None:
    """The caller may send other requests meanwhile, and they do not wait for all points."""
    async with one_slot.client() as client:
        accepted = await client.post("/v1/sweeps", json=sweep_request(*range(1, 46)), headers=ASYNC)
        job = accepted.json()["id"]
        await job_in(client, job, JobState.WAITING)
        plan = await client.post("/v1/plans", json=plan_request(rate_rps=7))
        left = await client.get(f"/v1/jobs/{job}")
        await client.delete(f"/v1/jobs/{job}")
    assert plan.status_code == 201
    assert left.json()["state"] == "waiting"
