"""Diagnoses and fault simulations over HTTP: stored with their bundles, replayed, and expired."""

import json
import tracemalloc
from typing import Any

import pytest

from api.schemas.faults import DiagnosisRecord, FaultSimulationRecord
from api.schemas.tokens import TokenScope
from faults.bundle import read_bundle
from tests.testbed.fault_bundles import bundle_text, node_diagnosis, packed, report
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio

DIAGNOSES = "/v1/faults/diagnoses"
LEAF = {"scope": "leaf", "node": None, "switch": "leaf-1", "isolate": False}
LINK = {"scope": "link", "peer": 1, "isolate": False}
ENDS = {"nodes": {"0": "gpu-0", "1": "gpu-1"}}
UNKNOWN = "01990000-0000-7000-8000-000000000000"


class TestDiagnoses:
    async def test_a_diagnosis_is_stored_with_its_bundle(self, service: RunningService) -> None:
        async with service.client() as client:
            made = await client.post(DIAGNOSES, json=report())
            assert made.status_code == 201, made.text
            record = DiagnosisRecord.model_validate_json(made.content)
            found = await client.get(made.headers["location"])
            bundle = await client.get(f"{DIAGNOSES}/{record.id}/bundle")
            listed = (await client.get(DIAGNOSES)).json()["items"]
            audit = (await client.get("/v1/audit")).json()["items"][0]
        assert found.json() == made.json()
        assert (record.node, record.diagnosis.fault.value) == ("gpu-2", "noncomm-hang")
        assert bundle.text == bundle_text()
        assert bundle.headers["content-type"] == "application/x-ndjson"
        assert bundle_text().splitlines()[-1] == f'{{"sha256":"{record.bundle_sha256}"}}'
        assert [(each["id"], each["node"], each["has_bundle"]) for each in listed] == [(record.id, "gpu-2", True)]
        assert (audit["action"], audit["detail"]["job"]) == ("diagnosis.reported", "llm-7b")
        assert audit["detail"]["bundle_sha256"] == record.bundle_sha256

    async def test_a_diagnosis_is_stored_once_per_idempotency_key(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client(TokenScope.OPERATE) as client, sqlite_service.client() as admin:
            first, second = [
                await client.post(DIAGNOSES, json=report(), headers={"Idempotency-Key": "k"}) for _ in range(2)
            ]
            assert first.json() == second.json()
            assert len((await admin.get(DIAGNOSES)).json()["items"]) == 1

    async def test_a_bundle_replays_to_the_same_diagnosis(self, service: RunningService) -> None:
        async with service.client() as client:
            record = (await client.post(DIAGNOSES, json=report())).json()
            other = report(diagnosis=report()["diagnosis"] | {"node": 3})
            elsewhere = (await client.post(DIAGNOSES, json=other)).json()
            done = await client.post(f"{DIAGNOSES}/{record['id']}/replay")
            wrong = await client.post(f"{DIAGNOSES}/{elsewhere['id']}/replay")
            metrics = (await client.get("/metrics")).text
        assert done.status_code == 200
        assert (done.json()["same"], done.json()["includes_report"]) == (True, True)
        assert done.json()["replayed"] == done.json()["bundled"] == [record["diagnosis"]]
        assert (wrong.json()["same"], wrong.json()["includes_report"]) == (True, False)
        assert 'fleetwright_faults_bundle_replays_total{outcome="same"} 2.0' in metrics
        assert 'fleetwright_faults_bundle_replays_total{outcome="differs"} 0.0' in metrics

    async def test_a_diagnosis_without_a_bundle_cannot_be_replayed(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            made = (await client.post(DIAGNOSES, json=node_diagnosis("gpu-7"))).json()
            for answer in (
                await client.get(f"{DIAGNOSES}/{made['id']}/bundle"),
                await client.post(f"{DIAGNOSES}/{made['id']}/replay"),
            ):
                assert (answer.status_code, "without one" in answer.json()["detail"]) == (409, True)
            assert (await client.get(f"{DIAGNOSES}/{UNKNOWN}")).status_code == 404
            assert (await client.post(f"{DIAGNOSES}/{UNKNOWN}/replay")).status_code == 404

    @pytest.mark.parametrize(
        ("changes", "path", "fragment"),
        [
            ({"bundle": "%%%"}, "bundle", "is no base64"),
            ({"bundle": "AAAA"}, "bundle", "is not gzipped"),
            ({"bundle": packed(bundle_text())[:400]}, "bundle", "broken gzip"),
            ({"bundle": packed("{}\n")}, "bundle.line[1]", "head of a bundle"),
            ({"bundle": packed(bundle_text().replace('"node":2', '"node":1', 1))}, "bundle.line", "sum"),
            ({"bundle": packed(bundle_text() + "x\n")}, "bundle", "has lines after the checksum"),
            ({"nodes": {"2": "Gpu 2"}}, "nodes", "pattern"),
            ({"nodes": {"02": "gpu-2"}}, "nodes", "pattern"),
            ({"nodes": {}}, "nodes", "must name node 2"),
            ({"expires_in_s": -1.0}, "expires_in_s", "greater than or equal to 0"),
            ({"job": ""}, "job", "at least 1 character"),
            ({"diagnosis": report()["diagnosis"] | {"fault": "slow"}}, "diagnosis.fault", "comm-hang"),
            ({"diagnosis": report()["diagnosis"] | {"node": None}}, "diagnosis.node", "must name a node"),
            ({"severity": 3}, "severity", "not a known field"),
        ],
    )
    async def test_an_invalid_report_is_refused_by_field(
        self, sqlite_service: RunningService, changes: dict[str, Any], path: str, fragment: str
    ) -> None:
        async with sqlite_service.client() as client:
            refused = await client.post(DIAGNOSES, json=report(**changes))
            assert refused.status_code == 422
            error = refused.json()["errors"][0]
            assert error["path"].startswith(path)
            assert fragment in error["message"]
            assert (await client.get(DIAGNOSES)).json()["items"] == []

    @pytest.mark.parametrize(
        ("changes", "path", "fragment"),
        [
            (LEAF | {"switch": None}, "switch", "is required for scope leaf"),
            (LEAF | {"switch": ""}, "switch", "is required for scope leaf"),
            (LEAF | {"scope": "uplink", "switch": None}, "switch", "is required for scope uplink"),
            (LEAF | {"isolate": True}, "isolate", "is true for scope leaf, allowed: only for rank and node"),
            (LEAF | {"peer": 1}, "peer", "is given for scope leaf, allowed: only for link and workload"),
            (LINK | {"peer": None}, "peer", "is required for scope link"),
            (LINK | {"isolate": True}, "isolate", "is true for scope link"),
            ({"switch": "leaf-1"}, "switch", "is given for scope node, allowed: only for leaf and uplink"),
            ({"peer": 1}, "peer", "is given for scope node"),
            ({"scope": "rank", "peer": 1}, "peer", "is given for scope rank"),
            ({"scope": "workload"}, "isolate", "is true for scope workload"),
            ({"detected_s": 9.5}, "detected_s", "is before onset_s, expected 10 or later, got 9.5"),
            ({"reason": "x" * 2001}, "reason", "expected at most 2,000 characters, got 2,001"),
            ({"evidence": ["x"] * 17}, "evidence", "expected at most 16 entries, got 17"),
        ],
    )
    async def test_a_diagnosis_with_inconsistent_fields_is_refused(
        self, sqlite_service: RunningService, changes: dict[str, Any], path: str, fragment: str
    ) -> None:
        async with sqlite_service.client() as client:
            refused = await client.post(DIAGNOSES, json=node_diagnosis("gpu-0", **changes) | ENDS)
            assert refused.status_code == 422
            (error,) = refused.json()["errors"]
            assert error["path"] == f"diagnosis.{path}"
            assert fragment in error["message"]
            assert (await client.get(DIAGNOSES)).json()["items"] == []

    @pytest.mark.parametrize(
        "changes",
        [
            LEAF,
            LEAF | {"scope": "uplink"},
            LINK,
            {"scope": "rank"},
            {"scope": "workload", "isolate": False, "peer": 1},  # cross traffic
            {"detected_s": 10.0, "reason": "x" * 2000, "evidence": ["x"] * 16},
        ],
    )
    async def test_a_diagnosis_with_consistent_fields_is_stored(
        self, sqlite_service: RunningService, changes: dict[str, Any]
    ) -> None:
        async with sqlite_service.client() as client:
            made = await client.post(DIAGNOSES, json=node_diagnosis("gpu-0", **changes) | ENDS)
        assert made.status_code == 201, made.text

    @pytest.mark.parametrize("field", ["onset_s", "detected_s"])
    async def test_an_infinite_time_is_refused(self, sqlite_service: RunningService, field: str) -> None:
        body = json.dumps(node_diagnosis("gpu-0", **{field: "TIME"})).replace('"TIME"', "1e999")
        async with sqlite_service.client() as client:
            refused = await client.post(DIAGNOSES, content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert (error["path"], "expected a finite number" in error["message"]) == (f"diagnosis.{field}", True)

    async def test_a_stored_diagnosis_is_read_without_the_checks(
        self, sqlite_service: RunningService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("api.server.routes.diagnoses.refuse_invalid", lambda _report: None)
        async with sqlite_service.client() as client:
            made = await client.post(DIAGNOSES, json=node_diagnosis("gpu-0", detected_s=9.5))
            monkeypatch.undo()
            assert (await client.get(made.headers["location"])).json() == made.json()

    async def test_a_bundle_that_unpacks_to_a_large_text_is_refused(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            refused = await client.post(DIAGNOSES, json=report(bundle=packed("0" * (65 * 1024 * 1024))))
        assert (refused.status_code, "more than 64 MiB" in refused.json()["detail"]) == (422, True)

    async def test_a_bundle_with_a_wrong_line_costs_no_memory_for_the_lines_behind_it(
        self, sqlite_service: RunningService
    ) -> None:
        body = report(bundle=packed("a\n" * (32 * 1024 * 1024)))
        async with sqlite_service.client() as client:
            tracemalloc.start()
            refused = await client.post(DIAGNOSES, json=body)
            _now, peak_bytes = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "bundle.line[1]")
        assert peak_bytes < 200 * 1024 * 1024  # of which the text has 64 MiB

    async def test_a_bundle_with_too_many_calls_is_refused(
        self, sqlite_service: RunningService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = len(read_bundle(bundle_text().splitlines(keepends=True)).calls)
        async with sqlite_service.client() as client:
            monkeypatch.setattr("api.jobs.bundles.MAX_CALLS", calls - 1)
            refused = await client.post(DIAGNOSES, json=report())
            monkeypatch.setattr("api.jobs.bundles.MAX_CALLS", calls)
            accepted = await client.post(DIAGNOSES, json=report())
        assert (refused.status_code, accepted.status_code) == (422, 201)
        assert refused.json()["detail"] == f"bundle: holds more than {calls - 1:,} calls, the limit"

    async def test_a_diagnosis_expires_is_extended_and_withdrawn(self, service: RunningService) -> None:
        async with service.client() as client:
            made = (await client.post(DIAGNOSES, json=report(expires_in_s=30.0))).json()
            assert made["expires_at"] == "2026-11-21T12:00:30Z"
            assert "fleetwright_faults_active{" in (await client.get("/metrics")).text
            service.clock.advance(31.0)
            assert "fleetwright_faults_active{" not in (await client.get("/metrics")).text
            path = f"{DIAGNOSES}/{made['id']}/expiry"
            renewed = await client.put(path, json={"expires_in_s": 60.0})
            assert renewed.json() == made | {"expires_at": "2026-11-21T12:01:31Z"}
            assert 'faults_active{class="noncomm-hang",scope=' in (await client.get("/metrics")).text
            await client.put(path, json={"expires_in_s": 0.0})
            assert "fleetwright_faults_active{" not in (await client.get("/metrics")).text
            audit = (await client.get("/v1/audit")).json()["items"]
            unknown = await client.put(f"{DIAGNOSES}/{UNKNOWN}/expiry", json={"expires_in_s": 1.0})
        assert unknown.status_code == 404
        assert [entry["action"] for entry in audit][:2] == ["diagnosis.withdrawn", "diagnosis.reported"]

    async def test_each_endpoint_requires_its_scope(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as admin:
            made = (await admin.post(DIAGNOSES, json=report())).json()
        allowed = {
            ("POST", DIAGNOSES): TokenScope.OPERATE,
            ("GET", DIAGNOSES): TokenScope.READ,
            ("GET", f"{DIAGNOSES}/{made['id']}/bundle"): TokenScope.READ,
            ("POST", f"{DIAGNOSES}/{made['id']}/replay"): TokenScope.PLAN,
            ("PUT", f"{DIAGNOSES}/{made['id']}/expiry"): TokenScope.OPERATE,
            ("POST", "/v1/faults/simulations"): TokenScope.PLAN,
            ("PUT", "/v1/faults/quarantine/rules"): TokenScope.OPERATE,
            ("POST", "/v1/faults/quarantine/evaluations"): TokenScope.OPERATE,
            ("POST", "/v1/faults/quarantine/nodes/n/actions"): TokenScope.OPERATE,
            ("POST", "/v1/faults/quarantine/breaker/reset"): TokenScope.OPERATE,
            ("GET", "/v1/faults/quarantine"): TokenScope.READ,
        }
        for scope in (TokenScope.READ, TokenScope.PLAN, TokenScope.OPERATE):
            async with sqlite_service.client(scope) as client:
                for (method, path), needed in allowed.items():
                    body = {"unknown": 0} if method != "GET" else None  # invalid: no allowed request does anything
                    answer = await client.request(method, path, json=body)
                    assert (answer.status_code == 403) == (scope is not needed), (scope, method, path)


async def test_a_report_is_counted_with_its_detection_time(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        await client.post(DIAGNOSES, json=node_diagnosis("gpu-1"))
        metrics = (await client.get("/metrics")).text
    assert 'fleetwright_faults_reported_total{class="crash",scope="node"} 1.0' in metrics
    assert 'fleetwright_faults_detection_seconds_sum{class="crash"} 0.5' in metrics


class TestSimulations:
    async def test_a_simulation_is_created_stored_and_listed(
        self, start_service: StartService, sqlite_url: str
    ) -> None:
        async with start_service(sqlite_url, fault_simulation_rank_hours=20.0) as service, service.client() as client:
            request_body = {"ranks": 128, "hours": 0.1, "scenario": "healthy", "seed": 3}
            made = await client.post("/v1/faults/simulations", json=request_body)
            assert made.status_code == 201, made.text
            record = FaultSimulationRecord.model_validate_json(made.content)
            assert (record.simulation.ranks, record.simulation.faults) == (128, 0)
            assert (await client.get(made.headers["location"])).json() == made.json()
            (summary,) = (await client.get("/v1/faults/simulations")).json()["items"]
            assert (summary["id"], summary["scenario"], summary["recall"]) == (record.id, "healthy", None)
            large = await client.post("/v1/faults/simulations", json=request_body | {"ranks": 1024})
            assert large.json()["detail"] == "hours: ranks x hours must be at most 20 here, got 102.4"
            wrong = await client.post("/v1/faults/simulations", json={"ranks": 100, "scenario": "calm"})
            assert {each["path"] for each in wrong.json()["errors"]} == {"ranks", "scenario"}
            assert (await client.get(f"/v1/faults/simulations/{UNKNOWN}")).status_code == 404
