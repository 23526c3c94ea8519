"""Planning loops, the reports on them, and the plans that the controller sets over HTTP."""

import asyncio
from typing import Any

import httpx
import pytest

from api.schemas.tokens import TokenScope
from api.server.examples import bodies
from tests.api.server.test_fencing import claim
from tests.api.server.test_plans import plan_request
from tests.api.server.test_separation import token
from tests.api.server.test_targets import CREATE, SPEC
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
DEMAND = bodies()["put_target"]["demand"]
TARGET: dict[str, Any] = SPEC | {"demand": DEMAND}
LOOP: dict[str, Any] = bodies()["put_planning_loop"] | {"mode": "observe"}
APPLYING = LOOP | {"mode": "apply"}
STATUS: dict[str, Any] = bodies()["put_planning_loop_status"]
STATE: dict[str, Any] = {"forecasts": {"chat": {"level": 10.25}}, "sizes": {"chat": [[0.25, 0.75]]}}
ANY = {"If-Match": "*"}


async def with_loop(running: RunningService, loop: dict[str, Any] = LOOP) -> None:
    async with running.client() as admin:
        for path, body in (("targets/chat", TARGET), ("planning-loops/chat", loop)):
            made = await admin.put(f"/v1/{path}", json=body, headers=CREATE)
            assert made.status_code == 201, made.text


async def stored_plan(running: RunningService) -> str:
    async with running.client() as admin:
        made = await admin.post("/v1/plans", json=plan_request())
    assert made.status_code == 201, made.text
    running.clock.advance(1.0)  # ids sort by time
    plan_id: str = made.json()["id"]
    return plan_id


async def actions(running: RunningService, subject: str) -> list[str]:
    async with running.client() as admin:
        entries = (await admin.get("/v1/audit", params={"subject": subject})).json()["items"]
    return [entry["action"] for entry in reversed(entries)]


class TestLoops:
    async def test_a_new_loop_only_observes(self, service: RunningService) -> None:
        await with_loop(service, {name: value for name, value in LOOP.items() if name != "mode"})
        async with service.client(TokenScope.READ) as reader:
            found = await reader.get("/v1/planning-loops/chat")
            listed = await reader.get("/v1/planning-loops")
        assert listed.json()["items"] == [found.json()]
        assert (found.json()["spec"]["mode"], found.json()["version"]) == ("observe", 1)

    async def test_it_is_replaced_and_deleted_under_its_etag(self, service: RunningService) -> None:
        await with_loop(service)
        async with service.client() as operator:
            path, first = "/v1/planning-loops/chat", await operator.get("/v1/planning-loops/chat")
            current = {"If-Match": first.headers["etag"]}
            replaced = await operator.put(path, json=LOOP | {"patience": 3}, headers=current)
            stale = await operator.put(path, json=LOOP, headers=current)
            deleted = await operator.delete(path, headers={"If-Match": replaced.headers["etag"]})
            target = await operator.get("/v1/targets/chat")
        assert (replaced.status_code, stale.status_code, deleted.status_code, target.status_code) == (
            200,
            412,
            204,
            200,
        )
        found = await actions(service, "planning-loops/chat")
        assert found == [f"planning_loop.{verb}" for verb in ("created", "replaced", "deleted")]

    @pytest.mark.parametrize(
        ("target", "problem"),
        [
            (None, "there is no target 'chat' in project 'default'"),
            (SPEC, "target 'chat' has no `demand`"),
            (TARGET | {"workload": "search"}, "target 'chat' serves the workload 'search'"),
        ],
    )
    async def test_its_targets_fit_its_workloads(
        self, sqlite_service: RunningService, target: dict[str, Any] | None, problem: str
    ) -> None:
        async with sqlite_service.client() as client:
            if target is not None:
                await client.put("/v1/targets/chat", json=target, headers=CREATE)
            refused = await client.put("/v1/planning-loops/chat", json=LOOP, headers=CREATE)
        assert refused.status_code == 422
        assert refused.json()["errors"] == [{"path": "targets.chat", "message": problem}]

    async def test_a_target_of_another_project_does_not_exist(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            await client.put("/v1/projects/team-a", json={}, headers=CREATE)
            of_team = {"Fleetwright-Project": "team-a"}
            await client.put("/v1/targets/chat", json=TARGET, headers=CREATE | of_team)
            refused = await client.put("/v1/planning-loops/chat", json=LOOP, headers=CREATE)
            own = await client.put("/v1/planning-loops/chat", json=LOOP, headers=CREATE | of_team)
            kept = await client.delete("/v1/projects/team-a", headers=ANY)
        assert (refused.status_code, own.status_code, kept.status_code) == (422, 201, 409)
        assert "planning loop 'chat'" in kept.json()["detail"]

    async def test_one_loop_at_most_sets_the_plan_of_a_target(self, service: RunningService) -> None:
        await with_loop(service, APPLYING)
        async with service.client() as client:
            shadow = await client.put("/v1/planning-loops/shadow", json=LOOP, headers=CREATE)
            second = await client.put("/v1/planning-loops/shadow", json=APPLYING, headers=ANY)
            same = await client.put("/v1/planning-loops/chat", json=APPLYING | {"band": 0.1}, headers=ANY)
        assert (shadow.status_code, second.status_code, same.status_code) == (201, 409, 200), second.text
        assert "planning loop 'chat' in mode apply sets the plan of target 'chat'" in second.json()["detail"]


async def report(client: httpx.AsyncClient, status: dict[str, Any], term: int | None = None) -> httpx.Response:
    under = {} if term is None else {"Fleetwright-Lease": f"controller/{term}"}
    return await client.put("/v1/planning-loops/chat/status", json=status, headers=under)


class TestReports:
    async def test_a_report_without_a_state_keeps_the_stored_one(self, service: RunningService) -> None:
        await with_loop(service)
        async with service.client(TokenScope.REPORT) as controller, service.client(TokenScope.READ) as reader:
            path = "/v1/planning-loops/chat/status"
            assert (await reader.get(path)).status_code == 404
            assert (await reader.get("/v1/planning-loop-statuses")).json()["items"] == []
            assert (await report(controller, STATUS | {"state": STATE})).status_code == 204
            holding = STATUS | {"phase": "holding", "state": None, "problems": ["no series of part H100"]}
            assert (await report(controller, holding)).status_code == 204
            found = (await reader.get(path)).json()
            (listed,) = (await reader.get("/v1/planning-loop-statuses")).json()["items"]
        assert (found["phase"], found["problems"]) == ("holding", holding["problems"])
        assert {name: found["state"][name] for name in STATE} == STATE
        assert listed == {"planning_loop": "chat", "status": found | {"state": None}}

    async def test_the_audit_has_changes_of_the_decision_only(self, service: RunningService) -> None:
        await with_loop(service)
        async with service.client(TokenScope.REPORT) as controller:
            for rate in (10.0, 11.0, 12.0):
                demand = {"chat": STATUS["demand"]["chat"] | {"arrivals_rps": rate}}
                await report(controller, STATUS | {"demand": demand})
            await report(controller, STATUS | {"wanted": {"chat": {"H100": 4}}})
            await report(controller, STATUS | {"wanted": {"chat": {"H100": 4}}, "phase": "steady"})
        assert await actions(service, "planning-loops/chat") == ["planning_loop.created"] + 3 * [
            "planning_loop.reported"
        ]

    async def test_a_report_of_an_older_term_is_refused(self, service: RunningService) -> None:
        await with_loop(service)
        async with service.client(TokenScope.REPORT) as controller:
            first = await claim(controller, "controller", "a", CREATE)
            second = await claim(controller, "controller", "b", ANY)
            stale, current = await report(controller, STATUS, first), await report(controller, STATUS, second)
        assert (stale.status_code, current.status_code) == (409, 204)

    async def test_a_loop_that_returns_has_no_report(self, service: RunningService) -> None:
        await with_loop(service)
        async with service.client() as client:
            await report(client, STATUS | {"state": STATE})
            await client.delete("/v1/planning-loops/chat", headers=ANY)
            gone = await report(client, STATUS)
            await client.put("/v1/planning-loops/chat", json=LOOP, headers=CREATE)
            missing = await client.get("/v1/planning-loops/chat/status")
        assert (gone.status_code, missing.status_code) == (404, 404)

    async def test_a_large_state_fits(self, sqlite_service: RunningService) -> None:
        await with_loop(sqlite_service)
        sizes = {"chat": [[1 / 300] * 300] * 30}
        async with sqlite_service.client(TokenScope.REPORT) as controller:
            answer = await report(controller, STATUS | {"state": {"sizes": sizes}})
        async with sqlite_service.client() as client:
            found = await client.get("/v1/planning-loops/chat/status")
        assert (answer.status_code, found.json()["state"]["sizes"]) == (204, sizes), answer.text

    async def test_a_report_from_a_wrong_clock_is_refused(self, sqlite_service: RunningService) -> None:
        await with_loop(sqlite_service)
        async with sqlite_service.client(TokenScope.REPORT) as controller:
            answer = await report(controller, STATUS | {"observed_at": "2031-01-01T00:00:00Z"})
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "observed_at")


async def set_plan(
    client: httpx.AsyncClient, plan_id: str, *, expected: str | None = None, version: int = 1, term: int | None = 1
) -> httpx.Response:
    body = {"plan_id": plan_id, "loop_version": version, "expected_plan_ids": {"chat": expected}}
    headers = {} if term is None else {"Fleetwright-Lease": f"controller/{term}"}
    return await client.post("/v1/planning-loops/chat/plan", json=body, headers=headers)


async def plan_of_target(running: RunningService) -> tuple[int, str | None]:
    async with running.client(TokenScope.READ) as reader:
        found = (await reader.get("/v1/targets/chat")).json()
    return found["version"], found["spec"]["plan_id"]


class TestPlans:
    async def test_the_controller_sets_the_plan_of_its_targets_once(self, service: RunningService) -> None:
        await with_loop(service, APPLYING)
        first, second = await stored_plan(service), await stored_plan(service)
        async with service.client() as admin:
            before = (await admin.get("/v1/targets/chat")).json()["spec"]
        async with service.client(TokenScope.REPORT) as controller:
            await claim(controller, "controller", "a", CREATE)
            answers = [await set_plan(controller, first) for _ in range(2)]
            assert [answer.json() for answer in answers] == 2 * [{"plan_id": first, "target_versions": {"chat": 2}}]
            assert (await set_plan(controller, second, expected=first)).status_code == 200
        assert await plan_of_target(service) == (3, second)
        assert await actions(service, "targets/chat") == ["target.created", "target.replaced", "target.replaced"]
        async with service.client() as admin:
            (entry, *_) = (await admin.get("/v1/audit", params={"subject": "planning-loops/chat"})).json()["items"]
            after = (await admin.get("/v1/targets/chat")).json()["spec"]
        assert (entry["action"], entry["actor"]) == ("planning_loop.plan_set", "token:report")
        assert entry["detail"] == {"plan_id": second, "loop_version": 1, "before": {"chat": first}}
        assert after == before | {"plan_id": second}, "nothing else has changed"

    async def test_a_plan_that_is_not_the_expected_one_stays(self, service: RunningService) -> None:
        await with_loop(service, APPLYING)
        by_operator, by_loop = await stored_plan(service), await stored_plan(service)
        async with service.client(TokenScope.OPERATE) as operator:
            await operator.put("/v1/targets/chat", json=TARGET | {"plan_id": by_operator}, headers=ANY)
        async with service.client(TokenScope.REPORT) as controller:
            await claim(controller, "controller", "a", CREATE)
            refused = await set_plan(controller, by_loop)
        assert (refused.status_code, await plan_of_target(service)) == (409, (2, by_operator))
        assert f"target 'chat' has plan {by_operator}, expected None" in refused.json()["detail"]

    @pytest.mark.parametrize("mode", ["observe", "recommend"])
    async def test_only_mode_apply_sets_a_plan(self, sqlite_service: RunningService, mode: str) -> None:
        await with_loop(sqlite_service, LOOP | {"mode": mode})
        plan_id = await stored_plan(sqlite_service)
        async with sqlite_service.client(TokenScope.REPORT) as controller:
            await claim(controller, "controller", "a", CREATE)
            refused = await set_plan(controller, plan_id)
        assert (refused.status_code, await plan_of_target(sqlite_service)) == (409, (1, None))

    async def test_a_freeze_stops_it(self, service: RunningService) -> None:
        await with_loop(service, APPLYING)
        plan_id = await stored_plan(service)
        async with service.client() as admin, service.client(TokenScope.REPORT) as controller:
            await claim(controller, "controller", "a", CREATE)
            await admin.put("/v1/freeze", json={"frozen": True, "reason": "power work"}, headers=ANY)
            refused = await set_plan(controller, plan_id)
            await admin.put("/v1/freeze", json={"frozen": False}, headers=ANY)
            allowed = await set_plan(controller, plan_id)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:fleetwright:problem:frozen")
        assert allowed.status_code == 200

    async def test_only_the_holder_of_the_lease_sets_a_plan(self, service: RunningService) -> None:
        await with_loop(service, APPLYING)
        plan_id = await stored_plan(service)
        holder, other = [await token(service, TokenScope.REPORT) for _ in range(2)]
        async with service.client(None) as client:
            client.headers.update(other)
            without_holder = await set_plan(client, plan_id)
            first = await claim(client, "controller", "a", holder | CREATE)
            by_another_token = await set_plan(client, plan_id, term=first)
            client.headers.update(holder)
            without_term = await set_plan(client, plan_id, term=None)
            second = await claim(client, "controller", "b", ANY)
            stale = await set_plan(client, plan_id, term=first)
            allowed = await set_plan(client, plan_id, term=second)
        assert (without_holder.status_code, by_another_token.status_code, stale.status_code) == (409, 409, 409)
        assert (without_term.status_code, without_term.json()["errors"][0]["path"]) == (422, "header.Fleetwright-Lease")
        assert (allowed.status_code, await plan_of_target(service)) == (200, (2, plan_id))

    async def test_a_plan_for_another_version_of_the_loop_is_refused(self, sqlite_service: RunningService) -> None:
        await with_loop(sqlite_service, APPLYING)
        plan_id = await stored_plan(sqlite_service)
        async with sqlite_service.client() as admin:
            await claim(admin, "controller", "a", CREATE)
            await admin.put("/v1/planning-loops/chat", json=APPLYING | {"band": 0.2}, headers=ANY)
            old = await set_plan(admin, plan_id)
            new = await set_plan(admin, plan_id, version=2)
        assert (old.status_code, new.status_code) == (409, 200)

    async def test_a_write_of_an_operator_at_the_same_time_is_not_lost(self, service: RunningService) -> None:
        await with_loop(service, APPLYING)
        plan_id = await stored_plan(service)
        async with service.client() as admin:
            await claim(admin, "controller", "a", CREATE)
            found = await admin.get("/v1/targets/chat")
            change, current = TARGET | {"min_replicas": 3}, {"If-Match": found.headers["etag"]}
            written, *by_loop = await asyncio.gather(
                admin.put("/v1/targets/chat", json=change, headers=current),
                set_plan(admin, plan_id),
                set_plan(admin, plan_id),
            )
            after = (await admin.get("/v1/targets/chat")).json()
        assert [answer.status_code for answer in by_loop] == [200, 200], "the operator leaves the plan as expected"
        assert written.status_code in {200, 412}
        kept = (after["version"], after["spec"]["min_replicas"], after["spec"]["plan_id"])
        assert kept == ((3, 3, plan_id) if written.status_code == 200 else (2, 1, plan_id))

    async def test_an_unknown_plan_or_target_changes_nothing(self, sqlite_service: RunningService) -> None:
        await with_loop(sqlite_service, APPLYING)
        plan_id = await stored_plan(sqlite_service)
        async with sqlite_service.client() as admin:
            await claim(admin, "controller", "a", CREATE)
            unknown = await set_plan(admin, "01990000-0000-7000-8000-000000000000")
            body = {"plan_id": plan_id, "loop_version": 1, "expected_plan_ids": {"search": None}}
            under = {"Fleetwright-Lease": "controller/1"}
            other = await admin.post("/v1/planning-loops/chat/plan", json=body, headers=under)
            assert await plan_of_target(sqlite_service) == (1, None)
            await admin.delete("/v1/targets/chat", headers=ANY)
            deleted = await set_plan(admin, plan_id)
        assert (unknown.status_code, unknown.json()["errors"][0]["path"]) == (422, "plan_id")
        assert (other.status_code, other.json()["errors"][0]["path"]) == (422, "expected_plan_ids")
        assert (deleted.status_code, "there is no target 'chat'" in deleted.json()["detail"]) == (409, True)


async def test_metrics_have_the_demand_the_decision_and_the_drift(service: RunningService) -> None:
    await with_loop(service)
    async with service.client() as client:
        assert "planning_loop=" not in (await client.get("/metrics")).text
        await report(client, STATUS | {"problems": ["chat: no samples"]})
        service.clock.advance(7.0)
        lines = (await client.get("/metrics")).text.splitlines()
        await client.delete("/v1/planning-loops/chat", headers=ANY)
        assert "planning_loop=" not in (await client.get("/metrics")).text
    for line in (
        'fleetwright_planning_loop_phase{phase="applied",planning_loop="chat"} 1.0',
        'fleetwright_planning_loop_phase{phase="holding",planning_loop="chat"} 0.0',
        'fleetwright_planning_loop_status_age_seconds{planning_loop="chat"} 7.0',
        'fleetwright_planning_loop_problems{planning_loop="chat"} 1.0',
        'fleetwright_planning_loop_arrivals_rps{planning_loop="chat",workload="chat"} 10.2',
        'fleetwright_planning_loop_forecast_rps{planning_loop="chat",workload="chat"} 12.4',
        'fleetwright_planning_loop_wanted_replicas{gpu="H100",planning_loop="chat",target="chat"} 3.0',
        'fleetwright_planning_loop_drift_ratio{gpu="H100",kind="tpot",planning_loop="chat"} 1.04',
        'fleetwright_planning_loop_needs_refit{gpu="H100",planning_loop="chat"} 0.0',
    ):
        assert line in lines
    assert not any('kind="ttft"' in line for line in lines), "too few requests"


@pytest.mark.parametrize(
    ("source", "path"),
    [
        (DEMAND["sources"][0] | {"url": "http://169.254.169.254/"}, "demand.sources.0.url"),
        (
            {"kind": "engine_metrics", "profile": "vllm", "parts": {"H100": ["http://a:1/metrics", "http://0.0.0.0/"]}},
            "demand.sources.0.parts.H100.1",
        ),
    ],
)
async def test_no_demand_is_read_from_metadata_services(
    sqlite_service: RunningService, source: dict[str, Any], path: str
) -> None:
    async with sqlite_service.client() as client:
        refused = await client.put("/v1/targets/chat", json=SPEC | {"demand": {"sources": [source]}}, headers=CREATE)
    assert (refused.status_code, [error["path"] for error in refused.json()["errors"]]) == (422, [path])
