"""Quarantine over HTTP: active diagnoses take nodes out of service, by rules, with an audit, and not while frozen."""

from typing import Any

import httpx
import pytest

from tests.testbed.fault_bundles import node_diagnosis
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio

BASE = "/v1/faults/quarantine"
POOL = {"pool": "train", "domains": ["leaf-1"]}
FLEET = [f"gpu-{index}" for index in range(20)]


def observed(**changes: Any) -> dict[str, Any]:
    return {"members": dict.fromkeys(FLEET, POOL), "spares": {"train": 2}} | changes


async def set_rules(client: httpx.AsyncClient, **changes: Any) -> httpx.Response:
    found = await client.get(f"{BASE}/rules")
    rules = found.json()["rules"] | changes
    return await client.put(f"{BASE}/rules", json=rules, headers={"If-Match": found.headers["etag"]})


async def evaluated(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await client.post(f"{BASE}/evaluations", json=observed(**changes))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def diagnose(client: httpx.AsyncClient, name: str, /, **changes: Any) -> str:
    report = node_diagnosis(name, **changes) | {"expires_in_s": 3600.0}
    made = await client.post("/v1/faults/diagnoses", json=report)
    assert made.status_code == 201, made.text
    diagnosis: str = made.json()["id"]
    return diagnosis


def decisions(outcome: dict[str, Any]) -> list[tuple[str, str | None, bool]]:
    return [(each["kind"], each["node"], each["dry_run"]) for each in outcome["decisions"]]


async def request(client: httpx.AsyncClient, node: str, what: str) -> httpx.Response:
    return await client.post(f"{BASE}/nodes/{node}/actions", json={"action": what})


class TestRules:
    async def test_rules_are_a_versioned_document_with_mode_observe_by_default(self, service: RunningService) -> None:
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
            wrong = await set_rules(client, max_cooldown_s=1.0)
            audit = (await client.get("/v1/audit")).json()["items"]
        assert (stale.status_code, bare.status_code, held.status_code, wrong.status_code) == (412, 428, 304, 422)
        assert wrong.json()["errors"][0]["path"] == "max_cooldown_s"
        assert audit[0]["action"] == "quarantine-rules.replaced"


async def test_mode_observe_decides_in_dry_run_and_takes_no_node_out_of_service(service: RunningService) -> None:
    async with service.client() as client:
        before = (await client.get(BASE)).json()
        assert (before["evaluated_at"], before["nodes"], before["mode"]) == (None, [], "observe")
        name = await diagnose(client, "gpu-3")
        outcome = await evaluated(client)
        assert decisions(outcome) == [("quarantine", "gpu-3", True)]
        assert (outcome["out_of_service"], outcome["probe"], outcome["mode"]) == ([], [], "observe")
        state = (await client.get(BASE)).json()
        (node,) = state["nodes"]
        assert (node["node"], node["state"], node["dry_run"], node["diagnosis_id"]) == (
            *("gpu-3", "quarantined", True),
            name,
        )
        assert (state["fleet"], state["out_of_service"], state["evaluated_by"]) == (20, [], "token:admin")
        assert [each["kind"] for each in state["decisions"]] == ["quarantine"]


async def test_a_node_is_quarantined_probed_and_released(service: RunningService) -> None:
    async with service.client() as client:
        await set_rules(client, mode="apply", cooldown_s=600.0, probation_s=900.0)
        name = await diagnose(client, "gpu-3")
        first = await evaluated(client)
        assert (first["out_of_service"], decisions(first)) == (["gpu-3"], [("quarantine", "gpu-3", False)])
        assert first["decisions"][0]["diagnosis_id"] == name
        again = await evaluated(client)
        assert (again["out_of_service"], again["decisions"]) == (["gpu-3"], [])
        service.clock.advance(601.0)
        await client.put(f"/v1/faults/diagnoses/{name}/expiry", json={"expires_in_s": 0.0})
        probing = await evaluated(client)
        assert (probing["probe"], decisions(probing)) == (["gpu-3"], [("probe", "gpu-3", False)])
        ended = {"ended_at": service.clock.now().isoformat(), "passed": True}
        back = await evaluated(client, probed={"gpu-3": ended})
        assert (back["out_of_service"], decisions(back)) == ([], [("release", "gpu-3", False)])
        (node,) = (await client.get(BASE)).json()["nodes"]
        assert (node["state"], len(node["strikes"])) == ("probation", 1)
        audit = (await client.get("/v1/audit")).json()["items"]
        actions = [entry["action"] for entry in audit if entry["subject"] == "faults/quarantine/nodes/gpu-3"]
        assert actions == ["quarantine.release", "quarantine.probe", "quarantine.quarantine"]
        metrics = (await client.get("/metrics")).text
    assert 'fleetwright_quarantine_decisions_total{decision="quarantine",dry_run="no"} 1.0' in metrics
    assert 'fleetwright_quarantine_nodes{dry_run="no",state="probation"} 1.0' in metrics
    assert 'fleetwright_quarantine_nodes{dry_run="no",state="serving"} 19.0' in metrics


async def test_a_repeated_evaluation_decides_once(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        await set_rules(client, mode="apply")
        await diagnose(client, "gpu-3")
        answers = [
            await client.post(f"{BASE}/evaluations", json=observed(), headers={"Idempotency-Key": "evaluation-1"})
            for _ in range(2)
        ]
        assert answers[0].json() == answers[1].json()
        assert answers[1].headers["idempotent-replayed"] == "true"
        metrics = (await client.get("/metrics")).text
    assert 'fleetwright_quarantine_decisions_total{decision="quarantine",dry_run="no"} 1.0' in metrics


async def test_an_expired_diagnosis_has_no_effect(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        await set_rules(client, mode="apply")
        await client.post("/v1/faults/diagnoses", json=node_diagnosis("gpu-3") | {"expires_in_s": 60.0})
        sqlite_service.clock.advance(60.0)
        assert (await evaluated(client))["decisions"] == []


async def test_while_frozen_nothing_is_decided_and_quarantined_nodes_stay_out(service: RunningService) -> None:
    async with service.client() as client:
        await set_rules(client, mode="apply")
        await diagnose(client, "gpu-3")
        await evaluated(client)
        await client.put("/v1/freeze", json={"frozen": True, "reason": "exam"}, headers={"If-Match": "*"})
        await diagnose(client, "gpu-4")
        assert (await request(client, "gpu-3", "release")).status_code == 202
        frozen = await evaluated(client)
        assert (frozen["frozen"], frozen["out_of_service"], frozen["probe"], frozen["decisions"]) == (
            True,
            ["gpu-3"],
            [],
            [],
        )
        assert (await client.get(BASE)).json()["frozen"] is True
        await client.put("/v1/freeze", json={"frozen": False}, headers={"If-Match": "*"})
        await client.post(f"{BASE}/evaluations", json=observed())
        after = (await client.get(BASE)).json()
    assert ("release", "gpu-3", False) in decisions(after)
    assert ("quarantine", "gpu-4", False) in decisions(after)


class TestActions:
    async def test_a_proposal_waits_for_an_approval(self, service: RunningService) -> None:
        async with service.client() as client:
            await set_rules(client, mode="recommend")
            await diagnose(client, "gpu-3")
            proposed = await evaluated(client)
            assert (proposed["out_of_service"], decisions(proposed)) == ([], [("propose", "gpu-3", False)])
            early = await request(client, "gpu-4", "approve")
            assert (early.status_code, early.json()["detail"]) == (
                409,
                "node 'gpu-4' is serving; approve is for one that is proposed",
            )
            answer = await request(client, "gpu-3", "approve")
            assert (answer.status_code, answer.json()["pending_action"], answer.json()["state"]) == (
                202,
                "approve",
                "proposed",
            )
            assert (await client.get(BASE)).json()["nodes"][0]["pending_action"] == "approve"
            assert (await evaluated(client))["out_of_service"] == ["gpu-3"]
            assert (await client.get(BASE)).json()["nodes"][0]["pending_action"] is None
            actions = [entry["action"] for entry in (await client.get("/v1/audit")).json()["items"]]
        assert actions[:3] == ["quarantine.quarantine", "quarantine.action-requested", "quarantine.propose"]

    async def test_an_operator_cordons_and_releases_a_node(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            assert (await request(client, "gpu-3", "cordon")).status_code == 404
            await set_rules(client, mode="apply")
            await evaluated(client)
            assert (await request(client, "gpu-3", "cordon")).json()["state"] == "serving"
            assert (await client.get(BASE)).json()["nodes"][0]["pending_action"] == "cordon"
            assert (await evaluated(client))["out_of_service"] == ["gpu-3"]
            assert (await request(client, "gpu-3", "cordon")).status_code == 409
            assert (await request(client, "gpu-3", "release")).status_code == 202
            assert (await evaluated(client))["out_of_service"] == []
            assert (await request(client, "gpu-99", "release")).status_code == 404
            wrong = await request(client, "gpu-3", "burn")
        assert (wrong.status_code, wrong.json()["errors"][0]["path"]) == (422, "action")


async def test_a_diagnosed_leaf_prevents_the_quarantine_of_its_nodes(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        await set_rules(client, mode="apply", confirm_s=0.0)
        leaf = {"scope": "leaf", "fault": "comm-slow", "node": None, "switch": "leaf-7", "isolate": False}
        await client.post("/v1/faults/diagnoses", json=node_diagnosis("gpu-0", **leaf) | {"domains": ["leaf-1"]})
        await diagnose(client, "gpu-3", fault="comm-slow", evidence=["bandwidth"])
        await evaluated(client)
        outcome = await evaluated(client)
        assert outcome["out_of_service"] == []
        (node,) = (await client.get(BASE)).json()["nodes"]
        assert node["refused_by"] == "network"
        metrics = (await client.get("/metrics")).text
    assert 'fleetwright_quarantine_refusals_total{guardrail="network"} 1.0' in metrics
    assert "fleetwright_faults_unquarantined_seconds 0.0" in metrics


async def test_many_suspected_nodes_open_the_breaker_and_an_operator_resets_it(service: RunningService) -> None:
    async with service.client() as client:
        await set_rules(client, mode="apply")
        closed = await client.post(f"{BASE}/breaker/reset")
        assert (closed.status_code, closed.json()["detail"]) == (409, "the breaker is closed")
        names = [await diagnose(client, f"gpu-{index}") for index in range(5)]
        outcome = await evaluated(client)
        assert (outcome["out_of_service"], decisions(outcome)[0]) == ([], ("open-breaker", None, False))
        breaker = (await client.get(BASE)).json()["breaker"]
        assert (breaker["opened_at"], breaker["suspected"]) == (outcome["at"], [f"gpu-{index}" for index in range(5)])
        service.clock.advance(120.0)
        metrics = (await client.get("/metrics")).text
        assert "fleetwright_quarantine_breaker_open 1.0" in metrics
        assert "fleetwright_faults_unquarantined_seconds 120.0" in metrics
        for name in names:
            await client.put(f"/v1/faults/diagnoses/{name}/expiry", json={"expires_in_s": 0.0})
        answer = await client.post(f"{BASE}/breaker/reset")
        assert (answer.status_code, answer.json()["reset_requested"]) == (202, True)
        assert ("close-breaker", None, False) in decisions(await evaluated(client))
        assert (await client.get(BASE)).json()["breaker"]["opened_at"] is None


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"members": {}}, "members"),
        ({"members": {"gpu 1": POOL}}, "members"),
        ({"members": {"gpu-1": {"pool": ""}}}, "members.gpu-1.pool"),
        ({"spares": {"train": -1}}, "spares.train"),
        ({"probed": {"gpu-1": {"ended_at": "2026-11-21T12:00:00Z"}}}, "probed.gpu-1.passed"),
        ({"diagnoses": []}, "diagnoses"),
    ],
)
async def test_an_invalid_evaluation_is_refused_by_field(
    sqlite_service: RunningService, changes: dict[str, Any], path: str
) -> None:
    async with sqlite_service.client() as client:
        refused_by = await client.post(f"{BASE}/evaluations", json=observed(**changes))
        assert refused_by.status_code == 422
        assert refused_by.json()["errors"][0]["path"].startswith(path)
        assert (await client.get(BASE)).json()["evaluated_at"] is None


async def test_the_state_survives_a_restart_of_the_service(start_service: StartService, sqlite_url: str) -> None:
    async with start_service(sqlite_url) as service, service.client() as client:
        await set_rules(client, mode="apply")
        await diagnose(client, "gpu-3")
        await evaluated(client)
        before = (await client.get(BASE)).json()
    async with start_service(sqlite_url) as service, service.client() as client:
        assert (await client.get(BASE)).json() == before
        assert (await evaluated(client))["out_of_service"] == ["gpu-3"]
