"""Catalogue documents over HTTP: read, replace with ETags, list versions; no partial writes."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from api.schemas.tokens import TokenScope
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio
KINDS = ("gpus", "models", "offers", "topology")


@pytest.mark.parametrize("kind", KINDS)
async def test_the_shipped_document_is_version_0(service: RunningService, kind: str) -> None:
    async with service.client(TokenScope.READ) as client:
        found = await client.get(f"/v1/{kind}")
        shipped = await client.get(f"/v1/{kind}/versions/0")
        versions = await client.get(f"/v1/{kind}/versions")
    assert found.status_code == 200
    assert found.headers["etag"].startswith('"0-')
    assert shipped.json() == found.json()
    assert versions.json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_document_can_be_read_and_written_back(service: RunningService, kind: str) -> None:
    async with service.client(TokenScope.ADMIN) as client:
        found = await client.get(f"/v1/{kind}")
        stored = await client.put(
            f"/v1/{kind}", content=found.content, headers=_json({"If-Match": found.headers["etag"]})
        )
        again = await client.get(f"/v1/{kind}")
    assert stored.status_code == 200, stored.text
    assert stored.json() == found.json() == again.json()
    assert stored.headers["etag"] == again.headers["etag"] != found.headers["etag"]


async def test_an_unchanged_document_is_not_sent(service: RunningService) -> None:
    async with service.client(TokenScope.READ) as client:
        etag = (await client.get("/v1/gpus")).headers["etag"]
        same = await client.get("/v1/gpus", headers={"If-None-Match": f'"x", W/{etag}'})
        other = await client.get("/v1/gpus", headers={"If-None-Match": '"x"'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    assert other.status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 428, id="no condition"),
        pytest.param({"If-Match": '"7-0123456789abcdef"'}, 412, id="another version"),
        pytest.param({"If-Match": "nonsense"}, 412, id="not a tag"),
        pytest.param({"If-Match": "*"}, 200, id="any version"),
    ],
)
async def test_a_write_requires_a_matching_if_match_header(
    sqlite_service: RunningService, headers: dict[str, str], status: int
) -> None:
    async with sqlite_service.client(TokenScope.PLAN) as client:
        answer = await client.put("/v1/topology", json={"sites": []}, headers=headers)
        versions = await client.get("/v1/topology/versions", headers=_bearer(sqlite_service, TokenScope.READ))
    assert answer.status_code == status
    assert len(versions.json()["items"]) == (1 if status == 200 else 0)
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status


async def test_a_weak_tag_never_matches(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        etag = (await client.get("/v1/topology")).headers["etag"]
        answer = await client.put("/v1/topology", json={"sites": []}, headers={"If-Match": f"W/{etag}"})
    assert answer.status_code == 412


BAD_TOPOLOGY = {
    "sites": [
        {
            "name": "ams1",
            "power": [{"name": "r1", "kind": "rack", "limit_w": -5}],
            "nodes": [{"name": "n1", "power_domain": "r1", "gpus": 999}],
        }
    ]
}


@pytest.mark.parametrize(
    ("kind", "body", "path", "message"),
    [
        ("topology", BAD_TOPOLOGY, "sites[0].nodes[0].gpus", "less than or equal to 128"),
        ("topology", {"sites": 5}, "sites", "expected a list"),
        ("topology", {"places": []}, "places", "is not a known field"),
        ("offers", {"offers": [{"id": "a"}]}, "offers[0].gpu", "is required"),
        ("gpus", {"gpus": [{"name": "H100"}]}, "gpus[0].memory_gb", "is required"),
        ("models", {"models": "all"}, "models", "expected a list"),
    ],
)
async def test_an_invalid_document_is_refused_and_changes_nothing(
    service: RunningService, kind: str, body: dict[str, Any], path: str, message: str
) -> None:
    async with service.client() as client:
        before = await client.get(f"/v1/{kind}")
        answer = await client.put(f"/v1/{kind}", json=body, headers={"If-Match": before.headers["etag"]})
        after = await client.get(f"/v1/{kind}")
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["type"] == "urn:fleetwright:problem:invalid-request"
    assert message in {error["path"]: error["message"] for error in problem["errors"]}[path]
    assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])


async def test_an_offer_for_an_unknown_gpu_is_refused_with_the_nearest_names(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        found = await client.get("/v1/offers")
        sheet = found.json()
        sheet["offers"][0]["gpu"] = "H100-SMX"
        answer = await client.put("/v1/offers", json=sheet, headers={"If-Match": found.headers["etag"]})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["path"] == "offers[0].gpu"
    assert "H100-SXM" in error["message"]


async def test_a_gpu_that_offers_name_cannot_be_removed(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        named = (await client.get("/v1/offers")).json()["offers"][0]["gpu"]
        found = await client.get("/v1/gpus")
        kept = [gpu for gpu in found.json()["gpus"] if gpu["name"] != named]
        answer = await client.put("/v1/gpus", json={"gpus": kept}, headers={"If-Match": found.headers["etag"]})
    assert answer.status_code == 422
    assert named in answer.json()["detail"] or len(answer.json()["errors"]) > 1


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b'{"sites": NaN}', id="NaN"),
        pytest.param(b'{"sites": []}\xff', id="not UTF-8"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"sites": [{"name": "\\ud800"}]}', id="lone surrogate"),
        pytest.param(b'{"sites": [{"name": "\\u0000"}]}', id="NUL"),
        pytest.param(b'{"sites": ' + b"9" * 5000 + b"}", id="huge number"),
    ],
)
async def test_a_malformed_body_is_a_client_error(service: RunningService, content: bytes) -> None:
    async with service.client() as client:
        answer = await client.put("/v1/topology", content=content, headers=_json({"If-Match": "*"}))
        versions = await client.get("/v1/topology/versions")
    assert answer.status_code in {400, 422}, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert versions.json()["items"] == []


async def test_versions_are_paged_newest_first_and_all_stay_readable(service: RunningService) -> None:
    async with service.client() as client:
        for number in range(1, 6):
            sites = [{"name": f"site-{number}"}]
            answer = await client.put("/v1/topology", json={"sites": sites}, headers={"If-Match": "*"})
            assert answer.status_code == 200, answer.text
        listed: list[dict[str, Any]] = []
        cursor: str | None = None
        while cursor is not None or not listed:
            page = await client.get(
                "/v1/topology/versions", params={"limit": 2} | ({"cursor": cursor} if cursor else {})
            )
            listed += page.json()["items"]
            cursor = page.json()["next_cursor"]
        third = await client.get("/v1/topology/versions/3")
        missing = await client.get("/v1/topology/versions/9")
    assert [item["version"] for item in listed] == [5, 4, 3, 2, 1]
    assert third.json()["sites"][0]["name"] == "site-3"
    assert third.headers["etag"] == listed[2]["etag"]
    assert missing.status_code == 404


@pytest.mark.parametrize("cursor", ["x", "é", "W10", "WyJhIl0", "WzFlOTk5XQ", "Wzk5OTk5OTk5OTk5OV0"])
async def test_an_invalid_cursor_is_refused(sqlite_service: RunningService, cursor: str) -> None:
    async with sqlite_service.client() as client:
        answer = await client.get("/v1/topology/versions", params={"cursor": cursor})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "query.cursor"


async def test_concurrent_writers_lose_no_update(service: RunningService) -> None:
    """Each writer adds its site to the document and retries on 412; the final document has every site."""

    async def add_site(client: httpx.AsyncClient, number: int) -> int:
        for attempt in range(1, 200):
            found = await client.get("/v1/topology")
            sites = [*found.json()["sites"], {"name": f"site-{number}"}]
            answer = await client.put(
                "/v1/topology", json={"sites": sites}, headers={"If-Match": found.headers["etag"]}
            )
            if answer.status_code == 200:
                return attempt
            assert answer.status_code == 412, answer.text
        raise AssertionError("no attempt succeeded")

    async with service.client() as client:
        await asyncio.gather(*(add_site(client, number) for number in range(12)))
        found = await client.get("/v1/topology")
    assert {site["name"] for site in found.json()["sites"]} == {f"site-{number}" for number in range(12)}
    assert found.headers["etag"].startswith('"12-')


async def test_a_body_over_the_limit_is_refused(start_service: StartService, sqlite_url: str) -> None:
    big = json.dumps({"sites": [{"name": "x" * 2000}]}).encode()

    async def in_parts() -> Any:
        for start in range(0, len(big), 100):
            yield big[start : start + 100]

    async with start_service(sqlite_url, body_limit_bytes=1024) as running, running.client() as client:
        announced = await client.put("/v1/topology", content=big, headers=_json({"If-Match": "*"}))
        unannounced = await client.put("/v1/topology", content=in_parts(), headers=_json({"If-Match": "*"}))
        versions = await client.get("/v1/topology/versions")
    for answer in (announced, unannounced):
        assert answer.status_code == 413
        assert answer.headers["content-type"] == "application/problem+json"
    assert versions.json()["items"] == []


def _json(headers: dict[str, str]) -> dict[str, str]:
    return {"Content-Type": "application/json"} | headers


def _bearer(service: RunningService, scope: TokenScope) -> dict[str, str]:
    return {"Authorization": service.client(scope).headers["Authorization"]}


async def test_concurrent_writers_cannot_leave_an_offer_for_a_removed_gpu(service: RunningService) -> None:
    """One offers a GPU and the other removes that GPU: the second write is refused."""
    async with service.client() as client:
        gpus, offers = await client.get("/v1/gpus"), await client.get("/v1/offers")
        template = offers.json()["offers"][0]
        named = {offer["gpu"] for offer in offers.json()["offers"]}
        spare = next(gpu["name"] for gpu in gpus.json()["gpus"] if gpu["name"] not in named)
        without = [gpu for gpu in gpus.json()["gpus"] if gpu["name"] != spare]
        using = [*offers.json()["offers"], template | {"id": "test/spare", "gpu": spare}]
        answers = await asyncio.gather(
            client.put("/v1/gpus", json={"gpus": without}, headers={"If-Match": gpus.headers["etag"]}),
            client.put("/v1/offers", json={"offers": using}, headers={"If-Match": offers.headers["etag"]}),
        )
        known = {gpu["name"] for gpu in (await client.get("/v1/gpus")).json()["gpus"]}
        used = {offer["gpu"] for offer in (await client.get("/v1/offers")).json()["offers"]}
    assert sorted(answer.status_code for answer in answers) == [200, 422]
    assert used <= known
