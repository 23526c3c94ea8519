"""Verdicts and simulations of faults over HTTP: kept with their bundles, replayed, believed for a time."""

import json
from typing import Any

import pytest

from api.schemas.faults import FaultSimulationRecord, VerdictRecord
from api.schemas.tokens import Scope
from tests.testbed.fault_bundles import accusation, bundle_text, packed, report
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio

VERDICTS = "/v1/faults/verdicts"
LEAF = {"scope": "leaf", "node": None, "switch": "leaf-1", "isolate": False}
LINK = {"scope": "link", "peer": 1, "isolate": False}
ENDS = {"nodes": {"0": "gpu-0", "1": "gpu-1"}}
UNKNOWN = "01990000-0000-7000-8000-000000000000"


class TestVerdicts:
    async def test_one_is_kept_with_its_bundle(self, service: RunningService) -> None:
        async with service.client() as client:
            made = await client.post(VERDICTS, json=report())
            assert made.status_code == 201, made.text
            record = VerdictRecord.model_validate_json(made.content)
            found = await client.get(made.headers["location"])
            bundle = await client.get(f"{VERDICTS}/{record.id}/bundle")
            listed = (await client.get(VERDICTS)).json()["items"]
            audit = (await client.get("/v1/audit")).json()["items"][0]
        assert found.json() == made.json()
        assert (record.node, record.verdict.fault.value) == ("gpu-2", "noncomm-hang")
        assert bundle.text == bundle_text()
        assert bundle.headers["content-type"] == "application/x-ndjson"
        assert bundle_text().splitlines()[-1] == f'{{"sha256":"{record.bundle_sha256}"}}'
        assert [(each["id"], each["node"], each["has_bundle"]) for each in listed] == [(record.id, "gpu-2", True)]
        assert (audit["action"], audit["detail"]["job"]) == ("fault-verdict.reported", "llm-7b")
        assert audit["detail"]["bundle_sha256"] == record.bundle_sha256

    async def test_a_key_keeps_it_once(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client(Scope.OPERATE) as client, sqlite_service.client() as admin:
            first, second = [
                await client.post(VERDICTS, json=report(), headers={"Idempotency-Key": "k"}) for _ in range(2)
            ]
            assert first.json() == second.json()
            assert len((await admin.get(VERDICTS)).json()["items"]) == 1

    async def test_its_bundle_says_the_same_again(self, service: RunningService) -> None:
        async with service.client() as client:
            record = (await client.post(VERDICTS, json=report())).json()
            other = report(verdict=report()["verdict"] | {"node": 3})
            elsewhere = (await client.post(VERDICTS, json=other)).json()
            done = await client.post(f"{VERDICTS}/{record['id']}/replay")
            wrong = await client.post(f"{VERDICTS}/{elsewhere['id']}/replay")
            metrics = (await client.get("/metrics")).text
        assert done.status_code == 200
        assert (done.json()["same"], done.json()["names_it"]) == (True, True)
        assert done.json()["replayed"] == done.json()["said"] == [record["verdict"]]
        assert (wrong.json()["same"], wrong.json()["names_it"]) == (True, False)
        assert 'fleetwright_fault_replays_total{outcome="same"} 2.0' in metrics
        assert 'fleetwright_fault_replays_total{outcome="differs"} 0.0' in metrics

    async def test_one_without_a_bundle_has_nothing_to_replay(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            made = (await client.post(VERDICTS, json=accusation("gpu-7"))).json()
            for answer in (
                await client.get(f"{VERDICTS}/{made['id']}/bundle"),
                await client.post(f"{VERDICTS}/{made['id']}/replay"),
            ):
                assert (answer.status_code, "without one" in answer.json()["detail"]) == (409, True)
            assert (await client.get(f"{VERDICTS}/{UNKNOWN}")).status_code == 404
            assert (await client.post(f"{VERDICTS}/{UNKNOWN}/replay")).status_code == 404

    @pytest.mark.parametrize(
        ("changes", "path", "words"),
        [
            ({"bundle": "%%%"}, "bundle", "is no base64"),
            ({"bundle": "AAAA"}, "bundle", "is not gzipped"),
            ({"bundle": packed(bundle_text())[:400]}, "bundle", "broken gzip"),
            ({"bundle": packed("{}\n")}, "bundle.line[1]", "head of a bundle"),
            ({"bundle": packed(bundle_text().replace('"node":2', '"node":1', 1))}, "bundle.line", "sum"),
            ({"bundle": packed(bundle_text() + "x\n")}, "bundle", "nothing behind it"),
            ({"nodes": {"2": "Gpu 2"}}, "nodes", "pattern"),
            ({"nodes": {"02": "gpu-2"}}, "nodes", "pattern"),
            ({"nodes": {}}, "nodes", "must name node 2"),
            ({"believed_for_s": -1.0}, "believed_for_s", "greater than or equal to 0"),
            ({"job": ""}, "job", "at least 1 character"),
            ({"verdict": report()["verdict"] | {"fault": "slow"}}, "verdict.fault", "comm-hang"),
            ({"verdict": report()["verdict"] | {"node": None}}, "verdict.node", "must name a node"),
            ({"severity": 3}, "severity", "not a known field"),
        ],
    )
    async def test_a_wrong_report_names_its_field(
        self, sqlite_service: RunningService, changes: dict[str, Any], path: str, words: str
    ) -> None:
        async with sqlite_service.client() as client:
            refused = await client.post(VERDICTS, json=report(**changes))
            assert refused.status_code == 422
            error = refused.json()["errors"][0]
            assert error["path"].startswith(path)
            assert words in error["message"]
            assert (await client.get(VERDICTS)).json()["items"] == []

    @pytest.mark.parametrize(
        ("changes", "path", "words"),
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
    async def test_a_verdict_whose_fields_do_not_fit_is_refused(
        self, sqlite_service: RunningService, changes: dict[str, Any], path: str, words: str
    ) -> None:
        async with sqlite_service.client() as client:
            refused = await client.post(VERDICTS, json=accusation("gpu-0", **changes) | ENDS)
            assert refused.status_code == 422
            (error,) = refused.json()["errors"]
            assert error["path"] == f"verdict.{path}"
            assert words in error["message"]
            assert (await client.get(VERDICTS)).json()["items"] == []

    @pytest.mark.parametrize(
        "changes",
        [
            LEAF,
            LEAF | {"scope": "uplink"},
            LINK,
            {"scope": "rank"},
            {"scope": "workload", "isolate": False, "peer": 1},  # foreign traffic
            {"detected_s": 10.0, "reason": "x" * 2000, "evidence": ["x"] * 16},
        ],
    )
    async def test_a_verdict_whose_fields_fit_is_kept(
        self, sqlite_service: RunningService, changes: dict[str, Any]
    ) -> None:
        async with sqlite_service.client() as client:
            made = await client.post(VERDICTS, json=accusation("gpu-0", **changes) | ENDS)
        assert made.status_code == 201, made.text

    @pytest.mark.parametrize("field", ["onset_s", "detected_s"])
    async def test_a_time_without_end_is_refused(self, sqlite_service: RunningService, field: str) -> None:
        body = json.dumps(accusation("gpu-0", **{field: "TIME"})).replace('"TIME"', "1e999")
        async with sqlite_service.client() as client:
            refused = await client.post(VERDICTS, content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert (error["path"], "expected a finite number" in error["message"]) == (f"verdict.{field}", True)

    async def test_what_was_kept_before_is_read_as_it_is(
        self, sqlite_service: RunningService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("api.server.routes.diagnoses.refuse_unfit", lambda _report: None)
        async with sqlite_service.client() as client:
            made = await client.post(VERDICTS, json=accusation("gpu-0", detected_s=9.5))
            monkeypatch.undo()
            assert (await client.get(made.headers["location"])).json() == made.json()

    async def test_a_small_file_that_holds_a_large_one_is_refused(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            refused = await client.post(VERDICTS, json=report(bundle=packed("0" * (65 * 1024 * 1024))))
        assert (refused.status_code, "more than 64 MiB" in refused.json()["detail"]) == (422, True)

    async def test_belief_ends_is_renewed_and_withdrawn(self, service: RunningService) -> None:
        async with service.client() as client:
            made = (await client.post(VERDICTS, json=report(believed_for_s=30.0))).json()
            assert made["believed_until"] == "2026-11-21T12:00:30Z"
            assert "fleetwright_fault_verdicts_believed{" in (await client.get("/metrics")).text
            service.clock.advance(31.0)
            assert "fleetwright_fault_verdicts_believed{" not in (await client.get("/metrics")).text
            path = f"{VERDICTS}/{made['id']}/belief"
            renewed = await client.put(path, json={"believed_for_s": 60.0})
            assert renewed.json() == made | {"believed_until": "2026-11-21T12:01:31Z"}
            assert 'believed{class="noncomm-hang",scope=' in (await client.get("/metrics")).text
            await client.put(path, json={"believed_for_s": 0.0})
            assert "fleetwright_fault_verdicts_believed{" not in (await client.get("/metrics")).text
            audit = (await client.get("/v1/audit")).json()["items"]
            unknown = await client.put(f"{VERDICTS}/{UNKNOWN}/belief", json={"believed_for_s": 1.0})
        assert unknown.status_code == 404
        assert [entry["action"] for entry in audit][:2] == ["fault-verdict.withdrawn", "fault-verdict.reported"]

    async def test_who_may(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as admin:
            made = (await admin.post(VERDICTS, json=report())).json()
        allowed = {
            ("POST", VERDICTS): Scope.OPERATE,
            ("GET", VERDICTS): Scope.READ,
            ("GET", f"{VERDICTS}/{made['id']}/bundle"): Scope.READ,
            ("POST", f"{VERDICTS}/{made['id']}/replay"): Scope.PLAN,
            ("PUT", f"{VERDICTS}/{made['id']}/belief"): Scope.OPERATE,
            ("POST", "/v1/faults/simulations"): Scope.PLAN,
            ("PUT", "/v1/faults/isolation/rules"): Scope.OPERATE,
            ("POST", "/v1/faults/isolation/looks"): Scope.OPERATE,
            ("POST", "/v1/faults/isolation/nodes/n"): Scope.OPERATE,
            ("POST", "/v1/faults/isolation/breaker/close"): Scope.OPERATE,
            ("GET", "/v1/faults/isolation"): Scope.READ,
        }
        for scope in (Scope.READ, Scope.PLAN, Scope.OPERATE):
            async with sqlite_service.client(scope) as client:
                for (method, path), needed in allowed.items():
                    body: dict[str, Any] | None = {} if method != "GET" else None
                    answer = await client.request(method, path, json=body)
                    assert (answer.status_code == 403) == (scope is not needed), (scope, method, path)


async def test_a_report_is_counted_with_the_time_it_took_to_detect(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        await client.post(VERDICTS, json=accusation("gpu-1"))
        metrics = (await client.get("/metrics")).text
    assert 'fleetwright_fault_reports_total{class="crash",scope="node"} 1.0' in metrics
    assert 'fleetwright_fault_detection_seconds_sum{class="crash"} 0.5' in metrics


class TestSimulations:
    async def test_one_is_made_kept_and_listed(self, start_service: StartService, sqlite_url: str) -> None:
        async with start_service(sqlite_url, fault_simulation_rank_hours=20.0) as service, service.client() as client:
            question = {"ranks": 128, "hours": 0.1, "scenario": "healthy", "seed": 3}
            made = await client.post("/v1/faults/simulations", json=question)
            assert made.status_code == 201, made.text
            record = FaultSimulationRecord.model_validate_json(made.content)
            assert (record.simulation.ranks, record.simulation.faults) == (128, 0)
            assert (await client.get(made.headers["location"])).json() == made.json()
            (summary,) = (await client.get("/v1/faults/simulations")).json()["items"]
            assert (summary["id"], summary["scenario"], summary["recall"]) == (record.id, "healthy", None)
            large = await client.post("/v1/faults/simulations", json=question | {"ranks": 1024})
            assert large.json()["detail"] == "hours: ranks x hours must be at most 20 here, got 102.4"
            wrong = await client.post("/v1/faults/simulations", json={"ranks": 100, "scenario": "calm"})
            assert {each["path"] for each in wrong.json()["errors"]} == {"ranks", "scenario"}
            assert (await client.get(f"/v1/faults/simulations/{UNKNOWN}")).status_code == 404
