"""Targets, their status and the freeze over HTTP."""

import json
from typing import Any

import pytest

from api.schemas.tokens import TokenScope
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
SPEC: dict[str, Any] = {
    "workload": "chat",
    "application": {
        "dashboard_url": "http://127.0.0.1:8265/",
        "application": "llm",
        "deployments": {"H100": "llm-h100", "L4": "llm-l4"},
    },
}
GROUPS = {"kind": "ray_cluster", "namespace": "ml", "cluster": "chat", "groups": {"H100": "h100-workers"}}
SCALED = {
    "kind": "kubernetes_scale",
    "namespace": "ml",
    "objects": {
        "H100": {
            "api_version": "apps/v1",
            "kind": "StatefulSet",
            "name": "chat",
            "replicas_field": None,
            "pod_labels": None,
        },
    },
    "drain": {"metrics_port": 8000, "max_wait_s": 600.0},
}
RUN = {"kind": "ray_train", "run": "tune-7", "gpu": "H100", "workers_per_replica": 4}
STATUS: dict[str, Any] = {
    "phase": "applying",
    "observed_at": "2026-11-21T12:00:00Z",
    "planned": {"H100": 2, "L4": 3},
    "applied": {"H100": 1, "L4": 3},
    "changes": [{"gpu": "H100", "deployment": "llm-h100", "replicas_now": 1, "replicas_planned": 2}],
}
CREATE = {"If-None-Match": "*"}


async def test_a_new_target_only_observes(service: RunningService) -> None:
    async with service.client(TokenScope.OPERATE) as operator, service.client(TokenScope.READ) as reader:
        made = await operator.put("/v1/targets/chat-eu", json=SPEC, headers=CREATE)
        found = await reader.get("/v1/targets/chat-eu")
        listed = await reader.get("/v1/targets")
    assert made.status_code == 201, made.text
    assert made.json() == found.json() == listed.json()["items"][0]
    assert found.json()["spec"]["mode"] == "observe"
    assert found.headers["etag"] == made.headers["etag"]


@pytest.mark.parametrize(
    ("body", "sent_as", "status", "text_start"),
    [
        (b"{bad", "application/json", 422, "body: must be JSON; at character 2: "),
        (b"", "application/json", 422, "body: is required"),
        (b"[1]", "application/json", 422, "body: expected a mapping of fields"),
        (b"null", "application/json", 422, "body: expected a mapping of fields"),
        (b"{}", "text/plain", 422, "header.Content-Type: must be application/json"),
        (b"[" * 200_000, "application/json", 400, "body: cannot be read; allowed: JSON in UTF-8, "),
        (b'{"workload":"\xff"}', "application/json", 400, "body: cannot be read; allowed: JSON in UTF-8, "),
    ],
)
async def test_an_unreadable_body_is_reported(
    service: RunningService, body: bytes, sent_as: str, status: int, text_start: str
) -> None:
    async with service.client(TokenScope.OPERATE) as operator:
        headers = {**CREATE, "Content-Type": sent_as}
        answer = await operator.put("/v1/targets/a", content=body, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["detail"].startswith(text_start)


async def test_a_target_is_replaced_under_its_etag_and_keeps_its_history(service: RunningService) -> None:
    async with service.client(TokenScope.ADMIN) as client:
        first = await client.put("/v1/targets/a", json=SPEC, headers=CREATE)
        taken = await client.put("/v1/targets/a", json=SPEC, headers=CREATE)
        second = await client.put(
            "/v1/targets/a", json=SPEC | {"mode": "apply"}, headers={"If-Match": first.headers["etag"]}
        )
        stale = await client.put("/v1/targets/a", json=SPEC, headers={"If-Match": first.headers["etag"]})
        gone = await client.delete("/v1/targets/a", headers={"If-Match": second.headers["etag"]})
        missing = await client.get("/v1/targets/a")
        again = await client.put("/v1/targets/a", json=SPEC, headers=CREATE)
        listed = await client.get("/v1/targets")
        audit = await client.get("/v1/audit")
    assert (taken.status_code, second.status_code, stale.status_code) == (412, 200, 412)
    assert (gone.status_code, missing.status_code, again.status_code) == (204, 404, 201)
    assert [target["version"] for target in listed.json()["items"]] == [4]
    actions = [entry["action"] for entry in audit.json()["items"] if entry["subject"] == "targets/a"]
    assert actions == ["target.created", "target.deleted", "target.replaced", "target.created"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"mode": "yolo"}, "mode"),
        ({"workload": " "}, "workload"),
        ({"max_step": 0}, "max_step"),
        ({"plan_id": "01990000-0000-7000-8000-000000000000"}, "plan_id"),
        ({"application": SPEC["application"] | {"dashboard_url": "ftp://x"}}, "application.dashboard_url"),
        ({"application": SPEC["application"] | {"dashboard_url": "http://a:b@h/"}}, "application.dashboard_url"),
        ({"application": SPEC["application"] | {"dashboard_url": "http://h/?x=1"}}, "application.dashboard_url"),
        ({"application": SPEC["application"] | {"deployments": {}}}, "application.deployments"),
        ({"application": SPEC["application"] | {"kind": "cron"}}, "application.kind"),
        ({"application": SPEC["application"] | {"kind": 3}}, "application.kind"),
        ({"application": "chat"}, "application"),
        ({"application": GROUPS | {"groups": {"H100": "a", "L4": "a"}}}, "application"),
        ({"application": GROUPS | {"namespace": "A_B"}}, "application.namespace"),
        ({"application": SCALED | {"drain": {"metrics_port": 0}}}, "application.drain.metrics_port"),
        ({"application": SCALED | {"objects": {"H100": {"name": "A"}}}}, "application.objects.H100.name"),
        ({"application": RUN | {"workers_per_replica": 0}}, "application.workers_per_replica"),
        ({"application": RUN | {"dashboard_url": "http://h/"}}, "application.dashboard_url"),
        ({"application": SPEC["application"] | {"deployments": {"H100": "a", "L4": "a"}}}, "application"),
    ],
)
async def test_an_invalid_target_is_refused_by_field(
    sqlite_service: RunningService, change: dict[str, Any], path: str
) -> None:
    async with sqlite_service.client() as client:
        answer = await client.put("/v1/targets/a", json=SPEC | change, headers=CREATE)
        missing = await client.get("/v1/targets/a")
    assert answer.status_code == 422
    assert path in [error["path"] for error in answer.json()["errors"]], answer.text
    assert missing.status_code == 404


@pytest.mark.parametrize(
    ("application", "kind"),
    [
        (SPEC["application"], "ray_serve"),
        (GROUPS, "ray_cluster"),
        (RUN, "ray_train"),
        (SCALED, "kubernetes_scale"),
    ],
)
async def test_an_application_has_its_explicit_or_default_kind(
    sqlite_service: RunningService, application: dict[str, Any], kind: str
) -> None:
    async with sqlite_service.client() as client:
        await client.put("/v1/targets/a", json=SPEC | {"application": application}, headers=CREATE)
        found = (await client.get("/v1/targets/a")).json()["spec"]["application"]
    assert found["kind"] == kind
    assert application.items() <= found.items()


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "a" * 64, "%00", "a%2Fb"])
async def test_a_target_name_is_a_dns_label(sqlite_service: RunningService, name: str) -> None:
    async with sqlite_service.client() as client:
        answer = await client.put(f"/v1/targets/{name}", json=SPEC, headers=CREATE)
    assert answer.status_code in {404, 422}
    assert answer.headers["content-type"] == "application/problem+json"


async def test_reports_replace_each_other_and_only_changes_are_audited(service: RunningService) -> None:
    async with service.client() as client:
        await client.put("/v1/targets/a", json=SPEC, headers=CREATE)
        assert (await client.get("/v1/targets/a/status")).status_code == 404
        for _ in range(3):
            assert (await client.put("/v1/targets/a/status", json=STATUS)).status_code == 204
        applied = STATUS | {"phase": "applied", "applied": {"H100": 2, "L4": 3}, "changes": []}
        assert (await client.put("/v1/targets/a/status", json=applied)).status_code == 204
        found = await client.get("/v1/targets/a/status")
        audit = await client.get("/v1/audit")
    assert found.json()["phase"] == "applied"
    assert [entry["action"] for entry in audit.json()["items"]].count("target.reported") == 2


async def test_a_stored_report_omits_unset_fields_that_an_older_service_refuses(
    sqlite_service: RunningService,
) -> None:
    async with sqlite_service.client() as client:
        await client.put("/v1/targets/a", json=SPEC, headers=CREATE)
        await client.put("/v1/targets/a/status", json=STATUS | {"state": {"approvals_used": 2}})
        found = (await client.get("/v1/targets/a/status")).json()
    async with sqlite_service.app.state.service.store.reading() as tx:
        kept = json.loads((await tx.statuses.get("a")).body)
    assert kept.keys().isdisjoint({"settings", "expert_maps", "approval"})
    assert kept["state"] == {"approvals_used": 2}
    assert (found["settings"], found["state"]["approved_maps"]) == ([], None), "the response has all fields"


async def test_a_report_on_a_missing_target_is_refused(service: RunningService) -> None:
    async with service.client() as client:
        answer = await client.put("/v1/targets/nobody/status", json=STATUS)
    assert answer.status_code == 404


async def test_the_freeze_is_replaced_under_its_etag_and_audited(service: RunningService) -> None:
    async with service.client() as client:
        open_ = await client.get("/v1/freeze")
        frozen = await client.put(
            "/v1/freeze", json={"frozen": True, "reason": "power work in row 3"}, headers={"If-Match": "*"}
        )
        found = await client.get("/v1/freeze")
        stale = await client.put("/v1/freeze", json={"frozen": False}, headers={"If-Match": open_.headers["etag"]})
        audit = await client.get("/v1/audit")
    assert open_.json() == {"frozen": False, "reason": None}
    assert (frozen.status_code, found.json()["frozen"], stale.status_code) == (200, True, 412)
    assert audit.json()["items"][0]["action"] == "fleet.frozen"


async def test_metrics_have_planned_and_applied_replicas(service: RunningService) -> None:
    async with service.client() as client:
        await client.put("/v1/targets/a", json=SPEC | {"mode": "apply"}, headers=CREATE)
        await client.put("/v1/targets/a/status", json=STATUS)
        service.clock.advance(7.0)
        await client.put("/v1/freeze", json={"frozen": True}, headers={"If-Match": "*"})
        lines = (await client.get("/metrics")).text.splitlines()
    for line in (
        'fleetwright_target_replicas_planned{gpu="H100",target="a"} 2.0',
        'fleetwright_target_replicas_applied{gpu="H100",target="a"} 1.0',
        'fleetwright_target_phase{phase="applying",target="a"} 1.0',
        'fleetwright_target_phase{phase="applied",target="a"} 0.0',
        'fleetwright_target_mode{mode="apply",target="a"} 1.0',
        'fleetwright_target_status_age_seconds{target="a"} 7.0',
        "fleetwright_frozen 1.0",
        "fleetwright_database_up 1.0",
        'fleetwright_document_version{kind="gpus"} 0.0',
    ):
        assert line in lines


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0", "2852039166", "[fd00:ec2::254]"]
)
async def test_an_address_at_which_no_target_can_be_is_refused_when_it_is_written(
    sqlite_service: RunningService, host: str
) -> None:
    application = SPEC["application"] | {"dashboard_url": f"http://{host}/"}
    health = {"prometheus_url": f"http://{host}/", "error_rate_query": "x", "max_error_rate": 0.5}
    async with sqlite_service.client(TokenScope.OPERATE) as operator:
        answers = [
            await operator.put("/v1/targets/a", json=SPEC | change, headers=CREATE)
            for change in ({"application": application}, {"health": health})
        ]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert [answer.json()["errors"][0]["path"] for answer in answers] == [
        "application.dashboard_url",
        "health.prometheus_url",
    ]


async def test_statuses_are_listed_in_pages_without_targets_that_have_none(service: RunningService) -> None:
    async with service.client(TokenScope.OPERATE) as operator, service.client(TokenScope.READ) as reader:
        for name in ("d", "c", "b", "a"):
            await operator.put(f"/v1/targets/{name}", json=SPEC, headers=CREATE)
            if name != "b":
                await operator.put(f"/v1/targets/{name}/status", json=STATUS)
        first = (await reader.get("/v1/target-statuses", params={"limit": 2})).json()
        rest = (await reader.get("/v1/target-statuses", params={"cursor": first["next_cursor"]})).json()
        alone = (await reader.get("/v1/targets/a/status")).json()
        refused = await operator.get("/v1/target-statuses")
    assert [each["target"] for page in (first, rest) for each in page["items"]] == ["a", "c", "d"]
    assert first["items"][0]["status"] == alone
    assert (rest["next_cursor"], refused.status_code) == (None, 403)
