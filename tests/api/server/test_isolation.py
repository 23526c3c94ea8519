"""Isolation over HTTP: verdicts that are believed take nodes out, by rules, with an audit, and nothing when frozen."""

from typing import Any

import httpx
import pytest

from tests.testbed.fault_bundles import accusation
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio

BASE = "/v1/faults/isolation"
POOL = {"pool": "train", "domains": ["leaf-1"]}
FLEET = [f"gpu-{index}" for index in range(20)]


def seen(**changes: Any) -> dict[str, Any]:
    return {"members": dict.fromkeys(FLEET, POOL), "spares": {"train": 2}} | changes


async def set_rules(client: httpx.AsyncClient, **changes: Any) -> httpx.Response:
    found = await client.get(f"{BASE}/rules")
    rules = found.json()["rules"] | changes
    return await client.put(f"{BASE}/rules", json=rules, headers={"If-Match": found.headers["etag"]})


async def looked(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await client.post(f"{BASE}/looks", json=seen(**changes))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def accuse(client: httpx.AsyncClient, name: str, /, **changes: Any) -> str:
    report = accusation(name, **changes) | {"believed_for_s": 3600.0}
    made = await client.post("/v1/faults/verdicts", json=report)
    assert made.status_code == 201, made.text
    verdict: str = made.json()["id"]
    return verdict


def acts(outcome: dict[str, Any]) -> list[tuple[str, str | None, bool]]:
    return [(each["act"], each["node"], each["dry_run"]) for each in outcome["decisions"]]


async def wish(client: httpx.AsyncClient, node: str, what: str) -> httpx.Response:
    return await client.post(f"{BASE}/nodes/{node}", json={"wish": what})


class TestRules:
    async def test_they_are_a_versioned_document_and_only_observe_at_first(self, service: RunningService) -> None:
        async with service.client() as client:
            shipped = await client.get(f"{BASE}/rules")
            assert (shipped.json()["version"], shipped.json()["rules"]["mode"]) == (0, "observe")
            put = await set_rules(client, mode="recommend")
            assert (put.status_code, put.json()["version"]) == (200, 1)
            stale = await client.put(
                f"{BASE}/rules", json=put.json()["rules"], headers={"If-Match": shipped.headers["etag"]}
            )
            bare = await client.put(f"{BASE}/rules", json=put.json()["rules"])
            held = await client.get(f"{BASE}/rules", headers={"If-None-Match": put.headers["etag"]})
            wrong = await set_rules(client, longest_wait_s=1.0)
            audit = (await client.get("/v1/audit")).json()["items"]
        assert (stale.status_code, bare.status_code, held.status_code, wrong.status_code) == (412, 428, 304, 422)
        assert wrong.json()["errors"][0]["path"] == "longest_wait_s"
        assert audit[0]["action"] == "isolation-rules.replaced"


async def test_in_the_mode_that_ships_everything_is_decided_and_nothing_wanted(service: RunningService) -> None:
    async with service.client() as client:
        before = (await client.get(BASE)).json()
        assert (before["looked_at"], before["nodes"], before["mode"]) == (None, [], "observe")
        name = await accuse(client, "gpu-3")
        outcome = await looked(client)
        assert acts(outcome) == [("isolate", "gpu-3", True)]
        assert (outcome["out"], outcome["probe"], outcome["mode"]) == ([], [], "observe")
        state = (await client.get(BASE)).json()
        (node,) = state["nodes"]
        assert (node["node"], node["standing"], node["dry_run"], node["accusation"]) == (
            *("gpu-3", "isolated", True),
            name,
        )
        assert (state["fleet"], state["out"], state["looked_by"]) == (20, [], "token:admin")
        assert [each["act"] for each in state["decisions"]] == ["isolate"]


async def test_a_node_goes_is_probed_and_comes_back(service: RunningService) -> None:
    async with service.client() as client:
        await set_rules(client, mode="apply", probation_s=600.0, watch_s=900.0)
        name = await accuse(client, "gpu-3")
        first = await looked(client)
        assert (first["out"], acts(first)) == (["gpu-3"], [("isolate", "gpu-3", False)])
        assert first["decisions"][0]["accusation"] == name
        again = await looked(client)
        assert (again["out"], again["decisions"]) == (["gpu-3"], [])
        service.clock.advance(601.0)
        await client.put(f"/v1/faults/verdicts/{name}/belief", json={"believed_for_s": 0.0})
        probing = await looked(client)
        assert (probing["probe"], acts(probing)) == (["gpu-3"], [("probe", "gpu-3", False)])
        ended = {"ended_at": service.clock.now().isoformat(), "passed": True}
        back = await looked(client, probed={"gpu-3": ended})
        assert (back["out"], acts(back)) == ([], [("release", "gpu-3", False)])
        (node,) = (await client.get(BASE)).json()["nodes"]
        assert (node["standing"], len(node["strikes"])) == ("watched", 1)
        audit = (await client.get("/v1/audit")).json()["items"]
        told = [entry["action"] for entry in audit if entry["subject"] == "faults/quarantine/nodes/gpu-3"]
        assert told == ["isolation.release", "isolation.probe", "isolation.isolate"]
        metrics = (await client.get("/metrics")).text
    assert 'fleetwright_isolation_decisions_total{act="isolate",dry_run="no"} 1.0' in metrics
    assert 'fleetwright_isolation_nodes{dry_run="no",standing="watched"} 1.0' in metrics
    assert 'fleetwright_isolation_nodes{dry_run="no",standing="serving"} 19.0' in metrics


async def test_a_look_that_comes_twice_decides_once(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        await set_rules(client, mode="apply")
        await accuse(client, "gpu-3")
        answers = [
            await client.post(f"{BASE}/looks", json=seen(), headers={"Idempotency-Key": "look-1"}) for _ in range(2)
        ]
        assert answers[0].json() == answers[1].json()
        assert answers[1].headers["idempotent-replayed"] == "true"
        metrics = (await client.get("/metrics")).text
    assert 'fleetwright_isolation_decisions_total{act="isolate",dry_run="no"} 1.0' in metrics


async def test_what_is_not_believed_any_more_accuses_nobody(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        await set_rules(client, mode="apply")
        await client.post("/v1/faults/verdicts", json=accusation("gpu-3") | {"believed_for_s": 60.0})
        sqlite_service.clock.advance(60.0)
        assert (await looked(client))["decisions"] == []


async def test_while_frozen_nothing_new_is_wanted_and_what_is_out_stays_out(service: RunningService) -> None:
    async with service.client() as client:
        await set_rules(client, mode="apply")
        await accuse(client, "gpu-3")
        await looked(client)
        await client.put("/v1/freeze", json={"frozen": True, "reason": "exam"}, headers={"If-Match": "*"})
        await accuse(client, "gpu-4")
        assert (await wish(client, "gpu-3", "release")).status_code == 202
        frozen = await looked(client)
        assert (frozen["frozen"], frozen["out"], frozen["probe"], frozen["decisions"]) == (True, ["gpu-3"], [], [])
        assert (await client.get(BASE)).json()["frozen"] is True
        await client.put("/v1/freeze", json={"frozen": False}, headers={"If-Match": "*"})
        await client.post(f"{BASE}/looks", json=seen())
        after = (await client.get(BASE)).json()
    assert ("release", "gpu-3", False) in acts(after)
    assert ("isolate", "gpu-4", False) in acts(after)


class TestWishes:
    async def test_a_proposal_waits_for_an_approval(self, service: RunningService) -> None:
        async with service.client() as client:
            await set_rules(client, mode="recommend")
            await accuse(client, "gpu-3")
            proposed = await looked(client)
            assert (proposed["out"], acts(proposed)) == ([], [("propose", "gpu-3", False)])
            early = await wish(client, "gpu-4", "approve")
            assert (early.status_code, early.json()["detail"]) == (
                409,
                "node 'gpu-4' is serving; approve is for one that is proposed",
            )
            said = await wish(client, "gpu-3", "approve")
            assert (said.status_code, said.json()["wish"], said.json()["standing"]) == (202, "approve", "proposed")
            assert (await client.get(BASE)).json()["nodes"][0]["wish"] == "approve"
            assert (await looked(client))["out"] == ["gpu-3"]
            assert (await client.get(BASE)).json()["nodes"][0]["wish"] is None
            actions = [entry["action"] for entry in (await client.get("/v1/audit")).json()["items"]]
        assert actions[:3] == ["isolation.isolate", "isolation.wished", "isolation.propose"]

    async def test_an_operator_keeps_one_out_and_releases_it(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            assert (await wish(client, "gpu-3", "keep-out")).status_code == 404
            await set_rules(client, mode="apply")
            await looked(client)
            assert (await wish(client, "gpu-3", "keep-out")).json()["standing"] == "serving"
            assert (await client.get(BASE)).json()["nodes"][0]["wish"] == "keep-out"
            assert (await looked(client))["out"] == ["gpu-3"]
            assert (await wish(client, "gpu-3", "keep-out")).status_code == 409
            assert (await wish(client, "gpu-3", "release")).status_code == 202
            assert (await looked(client))["out"] == []
            assert (await wish(client, "gpu-99", "release")).status_code == 404
            wrong = await wish(client, "gpu-3", "burn")
        assert (wrong.status_code, wrong.json()["errors"][0]["path"]) == (422, "wish")


async def test_a_leaf_under_a_verdict_explains_its_nodes(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        await set_rules(client, mode="apply", confirm_s=0.0)
        leaf = {"scope": "leaf", "fault": "comm-slow", "node": None, "switch": "leaf-7", "isolate": False}
        await client.post("/v1/faults/verdicts", json=accusation("gpu-0", **leaf) | {"domains": ["leaf-1"]})
        await accuse(client, "gpu-3", fault="comm-slow", evidence=["bandwidth"])
        await looked(client)
        outcome = await looked(client)
        assert outcome["out"] == []
        (node,) = (await client.get(BASE)).json()["nodes"]
        assert node["refused"] == "network"
        metrics = (await client.get("/metrics")).text
    assert 'fleetwright_isolation_refusals_total{rule="network"} 1.0' in metrics
    assert "fleetwright_fault_unisolated_seconds 0.0" in metrics


async def test_many_together_open_the_breaker_and_an_operator_closes_it(service: RunningService) -> None:
    async with service.client() as client:
        await set_rules(client, mode="apply")
        closed = await client.post(f"{BASE}/breaker/close")
        assert (closed.status_code, closed.json()["detail"]) == (409, "the breaker is closed")
        names = [await accuse(client, f"gpu-{index}") for index in range(5)]
        outcome = await looked(client)
        assert (outcome["out"], acts(outcome)[0]) == ([], ("open-breaker", None, False))
        breaker = (await client.get(BASE)).json()["breaker"]
        assert (breaker["opened_at"], breaker["accused"]) == (outcome["at"], [f"gpu-{index}" for index in range(5)])
        service.clock.advance(120.0)
        metrics = (await client.get("/metrics")).text
        assert "fleetwright_isolation_breaker_open 1.0" in metrics
        assert "fleetwright_fault_unisolated_seconds 120.0" in metrics
        for name in names:
            await client.put(f"/v1/faults/verdicts/{name}/belief", json={"believed_for_s": 0.0})
        told = await client.post(f"{BASE}/breaker/close")
        assert (told.status_code, told.json()["close_wanted"]) == (202, True)
        assert ("close-breaker", None, False) in acts(await looked(client))
        assert (await client.get(BASE)).json()["breaker"]["opened_at"] is None


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"members": {}}, "members"),
        ({"members": {"gpu 1": POOL}}, "members"),
        ({"members": {"gpu-1": {"pool": ""}}}, "members.gpu-1.pool"),
        ({"spares": {"train": -1}}, "spares.train"),
        ({"probed": {"gpu-1": {"ended_at": "2026-11-21T12:00:00Z"}}}, "probed.gpu-1.passed"),
        ({"verdicts": []}, "verdicts"),
    ],
)
async def test_a_wrong_look_names_its_field(sqlite_service: RunningService, changes: dict[str, Any], path: str) -> None:
    async with sqlite_service.client() as client:
        refused = await client.post(f"{BASE}/looks", json=seen(**changes))
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["path"].startswith(path)
        assert (await client.get(BASE)).json()["looked_at"] is None


async def test_what_is_remembered_outlives_the_service(start_service: StartService, sqlite_url: str) -> None:
    async with start_service(sqlite_url) as service, service.client() as client:
        await set_rules(client, mode="apply")
        await accuse(client, "gpu-3")
        await looked(client)
        before = (await client.get(BASE)).json()
    async with start_service(sqlite_url) as service, service.client() as client:
        assert (await client.get(BASE)).json() == before
        assert (await looked(client))["out"] == ["gpu-3"]
