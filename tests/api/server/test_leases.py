"""Leases over HTTP: conditional claims, renewals, releases, and an audit entry for each change of holder."""

import asyncio
from typing import Any

import pytest

from api.schemas.tokens import TokenScope
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
CREATE = {"If-None-Match": "*"}
PATH = "/v1/leases/controller"


def claim(holder: str | None, lease_s: float = 15.0) -> dict[str, Any]:
    return {"holder": holder, "lease_s": lease_s}


async def test_a_lease_is_taken_renewed_lost_and_released(service: RunningService) -> None:
    async with service.client(TokenScope.ADMIN) as client:
        taken = await client.put(PATH, json=claim("a"), headers=CREATE)
        renewed = await client.put(PATH, json=claim("a"), headers={"If-Match": taken.headers["etag"]})
        stale = await client.put(PATH, json=claim("b"), headers={"If-Match": taken.headers["etag"]})
        lost = await client.put(PATH, json=claim("b", 30.0), headers={"If-Match": renewed.headers["etag"]})
        free = await client.put(PATH, json=claim(None), headers={"If-Match": lost.headers["etag"]})
        again = await client.put(PATH, json=claim("b"), headers={"If-Match": free.headers["etag"]})
        read = await client.get(PATH)
        listed = await client.get("/v1/leases")
    assert (taken.status_code, renewed.status_code, stale.status_code) == (201, 200, 412)
    assert [(each.json()["holder"], each.json()["term"], each.json()["beats"]) for each in (taken, renewed, lost)] == [
        ("a", 1, 0),
        ("a", 1, 1),
        ("b", 2, 0),
    ]
    assert (lost.json()["lease_s"], free.json()["holder"]) == (30.0, None)
    assert (again.json()["term"], listed.json()["items"]) == (4, [read.json()])


async def test_leases_are_listed_in_pages(service: RunningService) -> None:
    async with service.client(TokenScope.ADMIN) as client:
        for name in ("b", "a", "c"):
            await client.put(f"/v1/leases/{name}", json=claim("h"), headers=CREATE)
        first = (await client.get("/v1/leases", params={"limit": 2})).json()
        rest = (await client.get("/v1/leases", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [lease["name"] for page in (first, rest) for lease in page["items"]] == ["a", "b", "c"]
    assert rest["next_cursor"] is None


async def test_only_changes_of_holder_are_audited(service: RunningService) -> None:
    async with service.client(TokenScope.ADMIN) as client:
        tag = (await client.put(PATH, json=claim("a"), headers=CREATE)).headers["etag"]
        for holder in ("a", "a", "b", "b", None):
            tag = (await client.put(PATH, json=claim(holder), headers={"If-Match": tag})).headers["etag"]
        entries = (await client.get("/v1/audit")).json()["items"]
    mine = [(entry["action"], entry["detail"]) for entry in entries if entry["subject"] == "leases/controller"]
    assert mine == [
        ("lease.given_back", {"holder": None, "before": "b", "term": 3}),
        ("lease.taken", {"holder": "b", "before": "a", "term": 2}),
        ("lease.taken", {"holder": "a", "before": None, "term": 1}),
    ]


async def test_exactly_one_of_many_claims_on_a_version_is_granted(service: RunningService) -> None:
    async with service.client(TokenScope.ADMIN) as client:
        tag = (await client.put(PATH, json=claim(None), headers=CREATE)).headers["etag"]
        answers = await asyncio.gather(
            *(client.put(PATH, json=claim(f"c{n}"), headers={"If-Match": tag}) for n in range(8))
        )
        held = (await client.get(PATH)).json()
    granted = [answer.json() for answer in answers if answer.status_code == 200]
    assert (granted, {answer.status_code for answer in answers}) == ([held], {200, 412})


async def test_exactly_one_of_many_first_claims_is_granted(service: RunningService) -> None:
    async with service.client(TokenScope.OPERATE) as client:
        answers = await asyncio.gather(*(client.put(PATH, json=claim(f"c{n}"), headers=CREATE) for n in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201, *[412] * 7]


async def test_reading_requires_the_read_scope_and_claiming_the_operate_scope(service: RunningService) -> None:
    async with service.client(TokenScope.READ) as reader, service.client(None) as anonymous:
        assert (await reader.get(PATH)).status_code == 404
        assert (await reader.put(PATH, json=claim("a"), headers=CREATE)).status_code == 403
        assert (await anonymous.get(PATH)).status_code == 401
        assert (await reader.put(PATH, json=claim("a"))).status_code == 403


@pytest.mark.parametrize(
    "body", [{"holder": "", "lease_s": 15}, {"holder": "a", "lease_s": 0.5}, {"holder": "a"}, {"lease_s": 15}]
)
async def test_an_invalid_claim_is_refused_by_field(service: RunningService, body: dict[str, Any]) -> None:
    async with service.client(TokenScope.OPERATE) as client:
        answer = await client.put(PATH, json=body, headers=CREATE)
        missing = await client.put(PATH, json=claim("a"))
    assert (answer.status_code, missing.status_code) == (422, 428)
    assert answer.json()["errors"][0]["path"] in {"holder", "lease_s"}
