"""What the service computes about stored plans: comparisons, explanations and replays."""

from typing import Any

import httpx
import pytest
from sqlalchemy import update

from api.schemas.tokens import TokenScope
from api.store.tables import ResultRow
from tests.api.server.test_plans import OPTIONS, plan_request
from tests.api.server.test_result_names import made
from tests.planner.requests import OFFERS, from_offers
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
UNKNOWN = "01990000-0000-7000-8000-000000000000"
FAST = {"hours": 0.02, "seed": 3}


def priced(usd_per_h: float) -> dict[str, Any]:
    """A price sheet with this price of its last offer."""
    return {"offers": [*OFFERS[:-1], OFFERS[-1] | {"price_usd_per_h": usd_per_h}]}


async def put_offers(client: httpx.AsyncClient, usd_per_h: float) -> None:
    etag = (await client.get("/v1/offers")).headers["etag"]
    answer = await client.put("/v1/offers", json=priced(usd_per_h), headers={"If-Match": etag})
    assert answer.status_code == 200, answer.text


async def post(client: httpx.AsyncClient, plan_id: str, part: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/v1/plans/{plan_id}/{part}", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


class TestComparison:
    async def test_two_plans_are_compared_by_figures_mix_routing_and_request(self, service: RunningService) -> None:
        async with service.client() as client:
            small, large = await made(client, plan_request()), await made(client, plan_request(rate_rps=60))
            path = f"/v1/plans/{small['id']}/comparison"
            found = (await client.get(path, params={"with": large["id"]})).json()
            same = (await client.get(path, params={"with": small["id"]})).json()
        cost = found["cost_usd_per_h"]
        assert cost["before"] == small["plan"]["cost_usd_per_h"]
        assert cost["difference"] == pytest.approx(cost["after"] - cost["before"])
        assert cost["difference"] > 0
        counts = {entry["option"]: (entry["before"], entry["after"]) for entry in found["mix"]}
        for position, plan in enumerate((small["plan"], large["plan"])):
            assert {name: each[position] for name, each in counts.items() if each[position]} == {
                entry["option"]: entry["count"] for entry in plan["allocation"]
            }
        assert found["request"] == [{"path": "workloads[0].rate_rps", "before": "30.0", "after": "60.0"}]
        assert (same["routing"], same["request"]) == ([], [])
        assert all(entry["before"] == entry["after"] for entry in same["mix"])

    async def test_a_missing_plan_and_a_wrong_id_are_refused(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            plan = await made(client, plan_request())
            for path, other, status in (
                (plan["id"], UNKNOWN, 404),
                (UNKNOWN, plan["id"], 404),
                (plan["id"], "x", 422),
            ):
                answer = await client.get(f"/v1/plans/{path}/comparison", params={"with": other})
                assert answer.status_code == status, answer.text

    async def test_a_reader_may_compare_but_not_explain_or_replay(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client, sqlite_service.client(TokenScope.READ) as reader:
            plan = await made(client, plan_request())
            compared = await reader.get(f"/v1/plans/{plan['id']}/comparison", params={"with": plan["id"]})
            refused = [
                await reader.post(f"/v1/plans/{plan['id']}/{part}", json={}) for part in ("explanation", "replay")
            ]
        assert (compared.status_code, [each.status_code for each in refused]) == (200, [403, 403])


class TestExplanation:
    async def test_a_plan_is_explained_at_the_level_that_its_request_did_not_have(
        self, service: RunningService
    ) -> None:
        body = plan_request() | {"policy": {"explain": "none"}}
        async with service.client() as client:
            plan = await made(client, body)
            assert plan["plan"]["explanation"] == []
            short = await post(client, plan["id"], "explanation", level="short")
            full = await post(client, plan["id"], "explanation")
        assert (full["level"], full["same_mix"], full["inputs_changed"]) == ("full", True, [])
        assert full["explanation"]["alternatives"]
        assert short["explanation"]["alternatives"] == []
        assert 0 < len(short["explanation"]["lines"]) < len(full["explanation"]["lines"])

    async def test_an_explanation_has_the_catalogues_of_the_plan(self, service: RunningService) -> None:
        body = {"workloads": from_offers()["workloads"]}
        async with service.client() as client:
            shipped = await made(client, body)
            await put_offers(client, 16.0)
            plan = await made(client, body)
            await put_offers(client, 24.0)
            changed = await made(client, body)
            of_plan = await post(client, plan["id"], "explanation", level="short")
            of_shipped = await post(client, shipped["id"], "explanation", level="short")
            of_changed = await post(client, changed["id"], "explanation", level="short")
        costs = [each["plan"]["cost_usd_per_h"] for each in (shipped, plan, changed)]
        assert len(set(costs)) == 3
        assert [each["cost_usd_per_h"] for each in (of_shipped, of_plan, of_changed)] == costs
        for found, version in ((of_shipped, 0), (of_plan, 1), (of_changed, 2)):
            (offers,) = [each for each in found["inputs"] if each["catalogue"] == "offers"]
            assert (offers["planned"], offers["used"], offers["in_force"]) == (version, version, 2)
            assert (found["inputs_changed"], found["same_mix"]) == ([], True)

    async def test_changed_catalogues_are_named_where_the_plan_did_not_record_them(
        self, service: RunningService
    ) -> None:
        body = {"workloads": from_offers()["workloads"]}
        async with service.client() as client:
            plan, own = await made(client, body), await made(client, from_offers())
            async with service.app.state.service.store.transaction() as tx:  # as an older release stored it
                await tx._connection.execute(update(ResultRow).values(inputs=None))
            found = await post(client, plan["id"], "explanation", level="short")
            of_own = await post(client, own["id"], "explanation", level="short")
        assert found["inputs_changed"] == ["gpus", "models", "offers"]
        assert of_own["inputs_changed"] == ["gpus", "models"], "the request has its own offers"
        assert {each["planned"] for each in found["inputs"]} == {None}

    async def test_an_infeasible_plan_is_explained_by_its_conflicts(self, sqlite_service: RunningService) -> None:
        short = plan_request(options=[option | {"available": 1} for option in OPTIONS])
        async with sqlite_service.client() as client:
            plan = await made(client, short | {"policy": {"explain": "none"}})
            found = await post(client, plan["id"], "explanation")
        assert (found["status"], found["same_mix"]) == ("infeasible", True)
        assert found["explanation"]["conflicts"]


class TestReplay:
    async def test_the_stored_mix_is_replayed_with_its_slo(self, service: RunningService) -> None:
        slo = {"ttft_ms": {"p99": 1500}, "tpot_ms": {"p99": 60}}
        async with service.client() as client:
            plan = await made(client, from_offers(slo=slo))
            first = await post(client, plan["id"], "replay", **FAST)
            again = await post(client, plan["id"], "replay", **FAST)
            other = await post(client, plan["id"], "replay", **FAST | {"seed": 4})
        assert first == again
        assert first["replay"] != other["replay"]
        (proof,) = first["replay"]["proofs"]
        assert first["replay"]["verified"] is proof["slo_check"]["verified"]
        assert {limit["metric"] for limit in proof["slo_check"]["limits"]} == {"ttft_ms", "tpot_ms"}
        assert proof["requests"] == pytest.approx(20 * 0.02 * 3600, rel=0.1)

    async def test_a_validated_plan_holds_again_with_its_own_seed(self, sqlite_service: RunningService) -> None:
        slo = {"ttft_ms": {"p99": 1500}, "tpot_ms": {"p99": 60}}
        async with sqlite_service.client() as client:
            plan = await made(client, from_offers(slo=slo) | {"replay": FAST})
            found = await post(client, plan["id"], "replay", **FAST)
        assert plan["plan"]["verified"] is True
        assert found["replay"]["proofs"][0]["slo_check"] == plan["plan"]["proofs"][0]["slo_check"]

    async def test_what_cannot_be_replayed_is_named(self, sqlite_service: RunningService) -> None:
        short = plan_request(options=[option | {"available": 1} for option in OPTIONS])
        async with sqlite_service.client() as client:
            given, infeasible = await made(client, plan_request()), await made(client, short)
            found = await post(client, given["id"], "replay")
            refused = await client.post(f"/v1/plans/{infeasible['id']}/replay", json={})
            long = await made(client, from_offers(rate_rps=2000))
            too_long = await client.post(f"/v1/plans/{long['id']}/replay", json={"hours": 100})
        assert "has given rates" in found["replay"]["obstacle"]
        assert found["replay"]["verified"] is None
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "id")
        assert (too_long.status_code, too_long.json()["errors"][0]["path"]) == (422, "hours")
