"""Remediation cases over HTTP: opened once, updated under their ETag, every step audited."""

from typing import Any

import pytest

from api.schemas.tokens import TokenScope
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
CREATE = {"If-None-Match": "*"}
AT = "2026-11-23T12:00:00Z"


def case(stage: str, *, state: str = "quarantined", **more: Any) -> dict[str, Any]:
    return {"node": "gpu-3", "state": state, "stage": stage, "since": AT, "opened_at": AT} | more


async def test_a_case_is_opened_once_and_updated_under_its_etag(service: RunningService) -> None:
    path = "/v1/faults/cases/v-1"
    async with service.client(TokenScope.OPERATE) as client, service.client(TokenScope.READ) as reader:
        opened = await client.put(path, json=case("draining"), headers=CREATE)
        twice = await client.put(path, json=case("draining"), headers=CREATE)
        actions = [{"at": AT, "action": "end-workers", "detail": "1 of llm"}]
        carried = await client.put(
            path, json=case("migrating", actions=actions), headers={"If-Match": opened.headers["etag"]}
        )
        stale = await client.put(
            path, json=case("replaced", state="probation"), headers={"If-Match": opened.headers["etag"]}
        )
        read = await reader.get(path)
        not_allowed = await reader.put(path, json=case("replaced", state="probation"), headers={"If-Match": "*"})
        missing = await reader.get("/v1/faults/cases/v-2")
    assert [each.status_code for each in (opened, twice, carried, stale)] == [201, 412, 200, 412]
    assert (read.json()["version"], read.json()["case"]["stage"]) == (2, "migrating")
    assert read.json()["case"]["actions"] == actions
    assert (not_allowed.status_code, missing.status_code) == (403, 404)


async def test_cases_are_listed_in_pages_and_audited(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(TokenScope.ADMIN) as client:
        for name in ("a", "b", "c"):
            await client.put(f"/v1/faults/cases/{name}", json=case("draining"), headers=CREATE)
        first = (await client.get("/v1/faults/cases", params={"limit": 2})).json()
        rest = (await client.get("/v1/faults/cases", params={"cursor": first["next_cursor"]})).json()
        entries = (await client.get("/v1/audit")).json()["items"]
    assert [each["id"] for page in (first, rest) for each in page["items"]] == ["a", "b", "c"]
    assert [(each["action"], each["detail"]["stage"]) for each in entries if each["subject"] == "faults/cases/c"] == [
        ("remediation.opened", "draining")
    ]


@pytest.mark.parametrize(
    "body",
    [{}, case("repairing"), case("draining", node="a b"), case("draining", actions=[{"at": AT, "action": "Kill -9"}])],
)
async def test_an_invalid_case_is_refused(sqlite_service: RunningService, body: dict[str, Any]) -> None:
    async with sqlite_service.client(TokenScope.OPERATE) as client:
        answer = await client.put("/v1/faults/cases/a", json=body, headers=CREATE)
    assert answer.status_code == 422


async def test_metrics_have_the_open_cases_by_stage_and_the_closed_ones_by_outcome(
    sqlite_service: RunningService,
) -> None:
    drained = {"at": AT, "action": "drain", "detail": "n"}
    probes = [{"at": AT, "action": "probe", "detail": f"{result}: 1.1x"} for result in ("failed", "passed")]
    kept = {
        "a": case("draining", opened_at="2000-01-01T00:00:00Z"),
        "b": case("draining"),
        "c": case("replaced", state="probation"),
        "d": case("replaced", state="probation", actions=[drained, *probes]),
        "e": case("replaced", state="probation", actions=[drained, *reversed(probes)]),
    }
    async with sqlite_service.client(TokenScope.OPERATE) as client:
        for name, body in kept.items():
            assert (await client.put(f"/v1/faults/cases/{name}", json=body, headers=CREATE)).status_code == 201
        samples = _samples((await client.get("/metrics")).text)
    assert {key: count for key, count in samples.items() if "_cases" in key and count} == {
        'open_cases{stage="draining",state="quarantined"}': 2,
        'closed_cases{outcome="untouched"}': 1,
        'closed_cases{outcome="probed"}': 1,
        'closed_cases{outcome="released"}': 1,
    }
    assert samples['oldest_case_seconds{stage="draining",state="quarantined"}'] > 26 * 365 * 86400
    assert samples['oldest_case_seconds{stage="restarting",state="quarantined"}'] == 0
    assert not any('state="probation"' in key for key in samples)


def _samples(page: str) -> dict[str, float]:
    """The remediation metrics, without their prefix."""
    prefix = "fleetwright_remediation_"
    lines = (line.removeprefix(prefix).rpartition(" ") for line in page.splitlines() if line.startswith(prefix))
    return {name: float(value) for name, _space, value in lines}
