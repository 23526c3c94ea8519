"""`/v1/nodes`: one row per node, from the topology, the quarantine, diagnoses, cases and power budgets."""

from typing import Any

import httpx
import pytest

from api.schemas.tokens import TokenScope
from faults.quarantine import NodeState
from tests.api.server.test_quarantine import diagnose, evaluated, observed, set_rules
from tests.api.server.test_remediation import case
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
CREATE = {"If-None-Match": "*"}
SITE = {
    "name": "north",
    "region": "eu",
    "power": [
        {"name": "row-1", "kind": "row", "limit_w": 200_000.0},
        {"name": "rack-[1-2]", "kind": "rack", "parent": "row-1", "limit_w": 40_000.0},
    ],
    "network": [{"name": "leaf-1", "tier": "leaf"}],
    "nodes": [
        {"name": "gpu-[0-2]", "power_domain": "rack-1", "gpu": "H100-SXM", "gpus": 8, "leaves": ["leaf-1"]},
        {"name": "big-1", "power_domain": "rack-2", "gpu": "H200-SXM", "gpus": 4},
    ],
}
TREE = {
    "name": "north",
    "feeds": [{"name": "row-1", "kind": "row", "limit_w": 200_000.0}],
    "groups": [],
}


async def put(client: httpx.AsyncClient, path: str, body: Any, headers: dict[str, str] | None = None) -> None:
    answer = await client.put(path, json=body, headers=headers or CREATE)
    assert answer.is_success, answer.text


async def listed(client: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await client.get("/v1/nodes", params=query)
    assert answer.status_code == 200, answer.text
    return [node["name"] for node in answer.json()["items"]]


async def test_a_node_has_what_the_store_has_about_it(service: RunningService) -> None:
    async with service.client() as admin:
        await put(admin, "/v1/topology", {"sites": [SITE]}, {"If-Match": "*"})
        await set_rules(admin, mode="apply")
        diagnosis = await diagnose(admin, "gpu-1")
        await evaluated(admin)
        runs = [{"run": "llm", "attempt": 1, "workers": 8}]
        await put(admin, "/v1/faults/cases/c-1", case("draining", node="gpu-1", runs=runs))
        await put(admin, "/v1/faults/cases/c-0", case("replaced", node="gpu-2", state="probation"))
        node = (await admin.get("/v1/nodes/gpu-1")).json()
        other = (await admin.get("/v1/nodes/gpu-2")).json()
        unplaced = (await admin.get("/v1/nodes/gpu-19")).json()
        missing = await admin.get("/v1/nodes/gpu-20")
    assert (node["state"], node["evaluated"], node["quarantine"]["diagnosis_id"]) == ("quarantined", True, diagnosis)
    assert [each["id"] for each in node["diagnoses"]] == [diagnosis]
    assert (node["case"]["id"], node["case"]["stage"], node["case"]["runs"]) == ("c-1", "draining", ["llm"])
    place = node["place"]
    assert (place["site"], place["region"], place["gpu"], place["gpus"]) == ("north", "eu", "H100-SXM", 8)
    assert [(each["name"], each["limit_w"]) for each in place["power"]] == [("row-1", 200_000.0), ("rack-1", 40_000.0)]
    assert place["leaves"] == ["leaf-1"]
    assert (other["state"], other["quarantine"], other["diagnoses"]) == ("serving", None, [])
    assert other["case"] is None, "its case is closed"
    assert (unplaced["place"], unplaced["evaluated"]) == (None, True)
    assert missing.status_code == 404


async def test_nodes_are_listed_in_pages_and_by_filter(service: RunningService) -> None:
    async with service.client() as admin:
        await put(admin, "/v1/topology", {"sites": [SITE]}, {"If-Match": "*"})
        await set_rules(admin, mode="apply")
        await diagnose(admin, "gpu-1")
        await evaluated(admin)
        first = (await admin.get("/v1/nodes", params={"limit": 4})).json()
        rest = (await admin.get("/v1/nodes", params={"cursor": first["next_cursor"]})).json()
        names = [node["name"] for page in (first, rest) for node in page["items"]]
        assert names == sorted({*observed()["members"], "big-1"})
        assert await listed(admin, state="quarantined") == ["gpu-1"]
        assert len(await listed(admin, state="serving")) == len(names) - 1
        assert await listed(admin, gpu="H100-SXM") == ["gpu-0", "gpu-1", "gpu-2"]
        assert await listed(admin, gpu="H100-SXM", has_diagnosis=False) == ["gpu-0", "gpu-2"]
        assert await listed(admin, has_diagnosis=True) == ["gpu-1"]
        wrong = await admin.get("/v1/nodes", params={"state": "broken"})
    assert wrong.status_code == 422
    assert all(f"'{state}'" in wrong.json()["detail"] for state in NodeState)


async def test_an_expired_diagnosis_or_one_of_another_project_is_not_shown(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as admin:
        await put(admin, "/v1/projects/team-a", {})
        request = {"name": "a", "scopes": ["read"], "project": "team-a"}
        secret = (await admin.post("/v1/tokens", json=request)).json()["secret"]
        await diagnose(admin, "gpu-1")
        async with sqlite_service.client(None) as other:
            other.headers["Authorization"] = f"Bearer {secret}"
            assert await listed(other) == []
        assert await listed(admin) == ["gpu-1"]
        sqlite_service.clock.advance(3601.0)
        assert await listed(admin) == []


async def test_a_budget_is_shown_while_it_is_in_force(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as admin:
        await put(admin, "/v1/topology", {"sites": [SITE]}, {"If-Match": "*"})
        await put(admin, "/v1/power/trees/north", TREE)
        await put(admin, "/v1/power/budgets/row-1", {"limit_w": 150_000.0, "expires_at": "2026-11-21T12:05:00Z"})
        budgets = []
        for _moment in range(2):
            node = (await admin.get("/v1/nodes/big-1")).json()
            budgets.append([each["budget_w"] for each in node["place"]["power"]])
            sqlite_service.clock.advance(301.0)
    assert budgets == [[150_000.0, None], [None, None]]


async def test_every_reader_may_read_nodes(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(TokenScope.READ) as reader:
        assert await listed(reader) == []
