"""Health events over HTTP: created once, updated under their ETag and the forwarder's lease, every change audited."""

from typing import Any

import pytest

from api.schemas.tokens import TokenScope
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
CREATE = {"If-None-Match": "*"}
PATH = "/v1/faults/health-events/slurm-0123456789abcdef"
EVENT = {"id": "0" * 32, "at": "2026-11-23T12:00:00Z", "state": "out-of-service", "node": "gpu-3"}


def delivery(state: str, **more: Any) -> dict[str, Any]:
    return {"outlet": "slurm", "event": EVENT, "state": state, "pending": [EVENT]} | more


async def test_an_event_is_created_once_updated_under_its_etag_and_audited(service: RunningService) -> None:
    async with service.client(TokenScope.REPORT) as client, service.client(TokenScope.ADMIN) as admin:
        created = await client.put(PATH, json=delivery("pending"), headers=CREATE)
        twice = await client.put(PATH, json=delivery("pending"), headers=CREATE)
        tag = {"If-Match": created.headers["etag"]}
        sent = await client.put(PATH, json=delivery("delivered", pending=[], delivered=EVENT), headers=tag)
        stale = await client.put(PATH, json=delivery("held"), headers=tag)
        listed = (await admin.get("/v1/faults/health-events")).json()["items"]
        entries = (await admin.get("/v1/audit")).json()["items"]
    assert [each.status_code for each in (created, twice, sent, stale)] == [201, 412, 200, 412]
    assert [(each["version"], each["delivery"]["state"]) for each in listed] == [(2, "delivered")]
    audited = [each for each in entries if each["subject"] == PATH.removeprefix("/v1/")]
    assert [(each["action"], each["detail"]["component"], each["detail"]["state"]) for each in audited] == [
        ("health-event.updated", "gpu-3", "delivered"),
        ("health-event.requested", "gpu-3", "pending"),
    ]


async def test_only_the_holder_of_the_lease_writes(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(TokenScope.ADMIN) as client:
        claim = {"holder": "forwarder-0", "lease_s": 15.0}
        await client.put("/v1/leases/health-events", json=claim, headers=CREATE)
        old = await client.put(
            PATH, json=delivery("pending"), headers=CREATE | {"Fleetwright-Lease": "health-events/2"}
        )
        own = await client.put(
            PATH, json=delivery("pending"), headers=CREATE | {"Fleetwright-Lease": "health-events/1"}
        )
    assert (old.status_code, own.status_code) == (409, 201)


async def test_the_name_of_an_event_and_its_body_are_checked(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(TokenScope.REPORT) as client:
        other = await client.put(
            "/v1/faults/health-events/mail-0123456789abcdef", json=delivery("held"), headers=CREATE
        )
        wrong = await client.put(PATH, json=delivery("sent"), headers=CREATE)
    assert (other.status_code, wrong.status_code) == (422, 422)


async def test_only_active_diagnoses_are_listed_on_request(sqlite_service: RunningService) -> None:
    report = {
        "job": "llm",
        "nodes": {"0": "gpu-3"},
        "diagnosis": {
            "fault": "crash",
            "scope": "node",
            "node": 0,
            "onset_s": 1.0,
            "detected_s": 2.0,
            "isolate": True,
            "confidence": 0.9,
            "reason": "gone",
        },
    }
    async with sqlite_service.client(TokenScope.ADMIN) as client:
        await client.post("/v1/faults/diagnoses", json=report | {"expires_in_s": 10.0})
        lasting = (await client.post("/v1/faults/diagnoses", json=report | {"expires_in_s": 100.0})).json()
        sqlite_service.clock.advance(50.0)
        found = (await client.get("/v1/faults/diagnoses", params={"active": "true"})).json()["items"]
        everything = (await client.get("/v1/faults/diagnoses")).json()["items"]
    assert ([each["id"] for each in found], len(everything)) == ([lasting["id"]], 2)
