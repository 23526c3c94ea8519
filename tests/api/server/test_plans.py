"""Plans over HTTP: created once, stored and audited."""

import asyncio
from typing import Any

import pytest

from api.schemas.tokens import TokenScope
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio

BUCKETS = {"input_tokens": [500, 2000], "output_tokens": [250, 1000], "share": [[0.4, 0.1], [0.3, 0.2]]}
SLO = {"tpot_ms": {"mean": 50}}
OPTIONS = [
    {"name": "A10G", "gpu": "A10G", "price_usd_per_h": 1.0, "max_rps": [[2.0, 1.0], [5.0, 2.0]]},
    {"name": "H100", "gpu": "H100-SXM", "price_usd_per_h": 4.0, "max_rps": [[20.0, 9.0], [12.0, 6.0]]},
]


def plan_request(**changes: Any) -> dict[str, Any]:
    return {"workloads": [{"name": "chat", "rate_rps": 30, "buckets": BUCKETS, "options": OPTIONS} | changes]}


async def test_a_plan_is_stored_with_its_request_and_audited(service: RunningService) -> None:
    async with service.client(TokenScope.PLAN) as planner, service.client() as admin:
        made = await planner.post("/v1/plans", json=plan_request())
        found = await admin.get(made.headers["location"])
        listed = await admin.get("/v1/plans")
        audit = await admin.get("/v1/audit")
        metrics = await admin.get("/metrics")
    assert made.status_code == 201, made.text
    record = made.json()
    assert found.json() == record
    assert record["plan"]["status"] == "optimal"
    assert record["plan"]["cost_usd_per_h"] == pytest.approx(record["plan"]["bound_usd_per_h"])
    assert record["created_by"] == "token:plan"
    assert [item["id"] for item in listed.json()["items"]] == [record["id"]]
    newest = audit.json()["items"][0]
    assert (newest["action"], newest["subject"]) == ("plan.created", f"plans/{record['id']}")
    assert 'fleetwright_plans_total{status="optimal"} 1.0' in metrics.text.splitlines()


async def test_an_infeasible_request_gives_a_result_with_reasons(service: RunningService) -> None:
    short = [option | {"available": 1} for option in OPTIONS]
    async with service.client() as client:
        answer = await client.post("/v1/plans", json=plan_request(options=short))
    plan = answer.json()["plan"]
    assert (answer.status_code, plan["status"], plan["cost_usd_per_h"]) == (201, "infeasible", None)
    assert plan["explanation"]


@pytest.mark.parametrize(
    ("changes", "path", "fragment"),
    [
        ({"rate_rps": -1}, "workloads[0].rate_rps", "greater than or equal to 0"),
        ({"buckets": BUCKETS | {"share": [[0.4, 0.1], [0.3, 0.1]]}}, "workloads[0].buckets.share", "sums to 0.9"),
        ({"options": []}, "workloads[0].options", "at least one"),
        ({"options": [OPTIONS[0] | {"max_rps": [[1, 1], [0, 1]]}]}, "workloads[0].buckets.share[1][0]", "2000x250"),
        ({"options": None, "model": "Lama-3.1-8B", "slo": SLO}, "workloads[0].model", "Llama-3.1-8B"),
    ],
)  # fmt: skip
async def test_an_invalid_request_is_refused_by_field_and_not_stored(
    sqlite_service: RunningService, changes: dict[str, Any], path: str, fragment: str
) -> None:
    async with sqlite_service.client() as client:
        answer = await client.post("/v1/plans", json=plan_request(**changes))
        listed = await client.get("/v1/plans")
    assert answer.status_code == 422, answer.text
    assert fragment in {error["path"]: error["message"] for error in answer.json()["errors"]}[path]
    assert listed.json()["items"] == []


async def test_concurrent_requests_with_one_idempotency_key_create_one_plan(service: RunningService) -> None:
    async with service.client() as client:
        answers = await asyncio.gather(
            *(client.post("/v1/plans", json=plan_request(), headers={"Idempotency-Key": "k1"}) for _ in range(10))
        )
        again = await client.post("/v1/plans", json=plan_request(), headers={"Idempotency-Key": "k1"})
        other = await client.post("/v1/plans", json=plan_request(rate_rps=31), headers={"Idempotency-Key": "k1"})
        listed = await client.get("/v1/plans")
    assert {answer.status_code for answer in [*answers, again]} == {201}
    assert len({answer.text for answer in [*answers, again]}) == 1
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == answers[0].headers["location"]
    assert other.status_code == 422
    assert other.json()["errors"][0]["path"] == "header.Idempotency-Key"
    assert len(listed.json()["items"]) == 1


async def test_a_key_is_free_again_after_a_day(service: RunningService) -> None:
    async with service.client() as client:
        first = await client.post("/v1/plans", json=plan_request(), headers={"Idempotency-Key": "k1"})
        service.clock.advance(86_401)
        second = await client.post("/v1/plans", json=plan_request(rate_rps=31), headers={"Idempotency-Key": "k1"})
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] != second.json()["id"]


async def test_plans_are_paged_newest_first(service: RunningService) -> None:
    ids = []
    async with service.client() as client:
        for _ in range(5):
            service.clock.advance(1)
            ids.append((await client.post("/v1/plans", json=plan_request())).json()["id"])
        first = (await client.get("/v1/plans", params={"limit": 3})).json()
        rest = (await client.get("/v1/plans", params={"limit": 3, "cursor": first["next_cursor"]})).json()
        missing = await client.get("/v1/plans/01990000-0000-7000-8000-000000000000")
    assert [item["id"] for item in first["items"] + rest["items"]] == ids[::-1]
    assert rest["next_cursor"] is None
    assert missing.status_code == 404
