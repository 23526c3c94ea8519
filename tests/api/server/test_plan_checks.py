"""`POST /v1/plans/validate`: the messages of a plan request, without its plan."""

from typing import Any

import pytest

from api.schemas.tokens import TokenScope
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio

WORKLOAD: dict[str, Any] = {
    "name": "chat",
    "model": "Llama-3.1-8B",
    "rate_rps": 20,
    "buckets": {"preset": "azure-conversation"},
    "slo": {"ttft_ms": {"p99": 2000}},
}


async def test_a_valid_request_is_neither_planned_nor_stored(service: RunningService) -> None:
    async with service.client(TokenScope.PLAN) as planner, service.client() as admin:
        answer = await planner.post("/v1/plans/validate", json={"workloads": [WORKLOAD]})
        assert (answer.status_code, answer.json()) == (200, {"valid": True})
        assert (await admin.get("/v1/plans")).json()["items"] == []
        actions = {entry["action"] for entry in (await admin.get("/v1/audit")).json()["items"]}
    assert "plan.created" not in actions


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        ({"workloads": []}, "workloads"),
        ({"workloads": [WORKLOAD | {"rate_rps": -1}]}, "workloads[0].rate_rps"),
        ({"workloads": [WORKLOAD | {"slo": None}]}, "workloads[0].slo"),
        ({"workloads": [WORKLOAD], "colour": 1}, "colour"),
        ({"workloads": [WORKLOAD], "policy": {"goal": "carbon"}}, "carbon"),
        ({"workloads": [WORKLOAD | {"buckets": {"preset": "azure-conversatoin"}}]}, "workloads[0].buckets.preset"),
        ({"workloads": [WORKLOAD | {"model": "Llama-3.1-9B"}]}, "workloads[0].model"),
        ({"workloads": [WORKLOAD], "quotas": [{"name": "q", "gpus": 4, "gpu": "H101"}]}, "quotas[0].gpu"),
        ({"workloads": [WORKLOAD], "quotas": [{"name": "q", "gpus": 4, "region": "nowhere"}]}, "quotas[0].region"),
    ],
)
async def test_the_messages_are_those_of_the_plan(
    sqlite_service: RunningService, request_: dict[str, Any], path: str
) -> None:
    async with sqlite_service.client(TokenScope.PLAN) as client:
        checked = await client.post("/v1/plans/validate", json=request_)
        planned = await client.post("/v1/plans", json=request_)
    assert (checked.status_code, planned.status_code) == (422, 422)
    assert [error["path"] for error in checked.json()["errors"]] == [path]
    assert checked.json()["errors"] == planned.json()["errors"]


async def test_all_unknown_names_are_reported_together(sqlite_service: RunningService) -> None:
    request = {
        "workloads": [WORKLOAD | {"model": "a"}, WORKLOAD | {"name": "b", "model": "b"}],
        "quotas": [{"name": "q", "gpus": 4, "gpu": "H101"}],
    }
    async with sqlite_service.client(TokenScope.PLAN) as client:
        answer = await client.post("/v1/plans/validate", json=request)
    paths = [error["path"] for error in answer.json()["errors"]]
    assert paths == ["workloads[0].model", "workloads[1].model", "quotas[0].gpu"]


async def test_a_large_request_is_for_the_process_of_a_job(sqlite_service: RunningService) -> None:
    many = [WORKLOAD | {"name": f"chat-{number}"} for number in range(400)]
    async with sqlite_service.client(TokenScope.PLAN) as client:
        answer = await client.post("/v1/plans/validate", json={"workloads": many})
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:fleetwright:problem:request-entity-too-large")


async def test_reading_is_not_enough(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(TokenScope.READ) as client:
        assert (await client.post("/v1/plans/validate", json={"workloads": [WORKLOAD]})).status_code == 403
