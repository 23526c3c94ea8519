"""Stocks: stored observations, filled into offers when a plan is solved, and kept with the plan."""

from typing import Any

import httpx
import pytest

from api.schemas.tokens import TokenScope
from api.server.examples import MOMENT
from tests.api.server.test_result_names import made
from tests.api.server.test_stored_plans import post
from tests.planner.requests import from_offers, offer
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
CREATE = {"If-None-Match": "*"}
OWN = offer("own/a100", "A100-80GB-SXM", 1.0, market="owned", stock={"name": "prod"})
RENTED = offer("here/l4", "L4", 0.8)
EARLIER = "2026-11-21T11:50:00Z"


def stock(nodes: int, *, observed_at: str = MOMENT) -> dict[str, Any]:
    entry = {"gpu": "A100-80GB-SXM", "region": "one", "gpus_per_node": 1, "total": nodes, "available": nodes}
    free = [{"gpus": 1, "nodes": nodes}] if nodes else []
    return {
        "observed_at": observed_at,
        "stale_after_s": 300.0,
        "source": "a cluster",
        "entries": [entry | {"free": free}],
    }


def plan_request() -> dict[str, Any]:
    return from_offers() | {"offers": [OWN, RENTED]}


async def put(client: httpx.AsyncClient, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    return await client.put("/v1/stock/prod", json=body, headers=headers)


def hired(record: dict[str, Any]) -> dict[str, int]:
    return {each["offer"]: each["units"] for each in record["plan"]["hires"]}


async def test_a_stock_is_written_by_the_scope_of_controllers_and_audited_by_its_sums(service: RunningService) -> None:
    async with service.client(TokenScope.REPORT) as controller, service.client() as admin:
        created = await put(controller, stock(2), CREATE)
        replaced = await put(controller, stock(1), {"If-Match": created.headers["etag"]})
        late = await put(controller, stock(3), {"If-Match": created.headers["etag"]})
        found = await admin.get("/v1/stock")
        newest = (await admin.get("/v1/audit")).json()["items"][0]
    assert [each.status_code for each in (created, replaced, late)] == [201, 200, 412]
    assert [(each["name"], each["version"]) for each in found.json()["items"]] == [("prod", 2)]
    assert (newest["action"], newest["subject"], newest["detail"]["available"]) == ("stock.replaced", "stock/prod", 1)


async def test_wrong_sums_are_refused_by_field(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as admin:
        wrong = stock(2)
        wrong["entries"][0]["available"] = 3
        answer = await put(admin, wrong, CREATE)
    assert answer.status_code == 422
    assert [each["path"] for each in answer.json()["errors"]] == ["entries[0].total", "entries[0].available"]


async def test_the_stock_bounds_a_plan_and_is_kept_with_it(service: RunningService) -> None:
    async with service.client() as client:
        await put(client, stock(1), CREATE)
        scarce = await made(client, plan_request())
        etag = (await client.get("/v1/stock/prod")).headers["etag"]
        await put(client, stock(50), {"If-Match": etag})
        plenty = await made(client, plan_request())
        explained = await post(client, scarce["id"], "explanation")
        replayed = await post(client, scarce["id"], "replay", hours=0.02, seed=3)
    (use,) = scarce["plan"]["stock"]
    assert (use["name"], use["available"], use["stale"], use["age_s"]) == ("prod", {"own/a100": 1}, False, 0.0)
    assert hired(scarce)["own/a100"] == 1
    assert "here/l4" in hired(scarce)
    assert list(hired(plenty)) == ["own/a100"], "the same request on a larger stock"
    assert explained["same_mix"], "the stored plan is explained on the stock that it was solved with"
    assert replayed["replay"]["proofs"]


async def test_a_plan_on_a_stale_stock_is_marked(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        await put(client, stock(9, observed_at=EARLIER), CREATE)
        record = await made(client, plan_request())
    (use,) = record["plan"]["stock"]
    assert (use["stale"], use["age_s"], use["stale_after_s"]) == (True, 600.0, 300.0)
    stated = [line for line in record["plan"]["explanation"] if line.startswith("stale: ")]
    age = "stock 'prod' was observed 600 s before the plan was solved; allowed: at most 300 s"
    assert stated == [f"stale: {age}; this plan is not applied"]


async def test_a_stock_that_is_not_stored_is_refused_by_field(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        answer = await client.post("/v1/plans", json=plan_request())
    assert answer.status_code == 422
    assert [each["path"] for each in answer.json()["errors"]] == ["offers[0].stock.name"]


async def test_offers_of_the_price_sheet_and_points_of_a_sweep_use_the_stock(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        await put(client, stock(1), CREATE)
        etag = (await client.get("/v1/offers")).headers["etag"]
        await client.put("/v1/offers", json={"offers": [OWN, RENTED]}, headers={"If-Match": etag})
        record = await made(client, from_offers() | {"offers": None})
        axes = [{"knob": "rate", "factors": [1.0, 2.0]}]
        swept = await client.post("/v1/sweeps", json={"request": plan_request(), "axes": axes})
    assert record["plan"]["stock"][0]["available"] == {"own/a100": 1}
    assert swept.status_code == 201, swept.text
    assert swept.json()["sweep"]["failed"] == []
