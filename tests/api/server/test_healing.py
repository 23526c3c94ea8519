"""Healing cases over HTTP: opened once, carried on under what was seen, every step on record."""

from typing import Any

import pytest

from api.schemas.tokens import Scope
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
CREATE = {"If-None-Match": "*"}
AT = "2026-11-23T12:00:00Z"


def case(phase: str, **more: Any) -> dict[str, Any]:
    return {"node": "gpu-3", "phase": phase, "phase_since": AT, "opened_at": AT} | more


async def test_a_case_is_opened_once_and_carried_on_by_who_has_seen_it(service: RunningService) -> None:
    path = "/v1/faults/cases/v-1"
    async with service.client(Scope.OPERATE) as client, service.client(Scope.READ) as reader:
        opened = await client.put(path, json=case("draining"), headers=CREATE)
        twice = await client.put(path, json=case("draining"), headers=CREATE)
        acts = [{"at": AT, "act": "end-worker", "detail": "rank 1"}]
        carried = await client.put(
            path, json=case("migrating", acts=acts), headers={"If-Match": opened.headers["etag"]}
        )
        stale = await client.put(path, json=case("released"), headers={"If-Match": opened.headers["etag"]})
        read = await reader.get(path)
        not_allowed = await reader.put(path, json=case("released"), headers={"If-Match": "*"})
        missing = await reader.get("/v1/faults/cases/v-2")
    assert [each.status_code for each in (opened, twice, carried, stale)] == [201, 412, 200, 412]
    assert (read.json()["version"], read.json()["case"]["phase"], read.json()["case"]["acts"]) == (2, "migrating", acts)
    assert (not_allowed.status_code, missing.status_code) == (403, 404)


async def test_cases_are_listed_in_pages_and_audited(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(Scope.ADMIN) as client:
        for name in ("a", "b", "c"):
            await client.put(f"/v1/faults/cases/{name}", json=case("draining"), headers=CREATE)
        first = (await client.get("/v1/faults/cases", params={"limit": 2})).json()
        rest = (await client.get("/v1/faults/cases", params={"cursor": first["next_cursor"]})).json()
        entries = (await client.get("/v1/audit")).json()["items"]
    assert [each["id"] for page in (first, rest) for each in page["items"]] == ["a", "b", "c"]
    assert [(each["action"], each["detail"]["phase"]) for each in entries if each["subject"] == "faults/cases/c"] == [
        ("healing.opened", "draining")
    ]


@pytest.mark.parametrize(
    "body", [{}, case("mending"), case("draining", node="a b"), case("draining", acts=[{"at": AT, "act": "Kill -9"}])]
)
async def test_what_is_no_case_is_refused(sqlite_service: RunningService, body: dict[str, Any]) -> None:
    async with sqlite_service.client(Scope.OPERATE) as client:
        answer = await client.put("/v1/faults/cases/a", json=body, headers=CREATE)
    assert answer.status_code == 422


async def test_metrics_tell_where_cases_stand_and_how_they_ended(sqlite_service: RunningService) -> None:
    drained = {"at": AT, "act": "drain", "detail": "n"}
    probes = [{"at": AT, "act": "probe", "detail": f"{word}: 1.1x"} for word in ("failed", "passed")]
    kept = {
        "a": case("draining", opened_at="2000-01-01T00:00:00Z"),
        "b": case("draining"),
        "c": case("released"),
        "d": case("released", acts=[drained, *probes]),
        "e": case("released", acts=[drained, *reversed(probes)]),
    }
    async with sqlite_service.client(Scope.OPERATE) as client:
        for name, body in kept.items():
            assert (await client.put(f"/v1/faults/cases/{name}", json=body, headers=CREATE)).status_code == 201
        told = _samples((await client.get("/metrics")).text)
    assert {key: count for key, count in told.items() if "_cases" in key and count} == {
        'open_cases{phase="draining"}': 2,
        'closed_cases{outcome="untouched"}': 1,
        'closed_cases{outcome="probed"}': 1,
        'closed_cases{outcome="released"}': 1,
    }
    assert told['oldest_case_seconds{phase="draining"}'] > 26 * 365 * 86400
    assert told['oldest_case_seconds{phase="restarting"}'] == 0
    assert 'open_cases{phase="released"}' not in told


def _samples(page: str) -> dict[str, float]:
    """Of healing, by what follows the prefix."""
    prefix = "fleetwright_healing_"
    lines = (line.removeprefix(prefix).rpartition(" ") for line in page.splitlines() if line.startswith(prefix))
    return {name: float(value) for name, _space, value in lines}
