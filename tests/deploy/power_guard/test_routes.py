"""The HTTP routes of the guard: a budget is accepted as a whole, or refused with its field and the old one stays."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
import pytest

from deploy.power_guard.routes import MAX_BYTES, guard_app
from tests.deploy.power_guard.row_of_agents import PERIOD_S, AgentRow, Guarding, guarding, staged

pytestmark = pytest.mark.anyio
TOKEN = "of-the-planner-of-row-a"
GOOD = {"domain": "row-a", "limits": [{"limit_w": 9000.0}], "valid_s": 60.0}


@asynccontextmanager
async def serving(row: AgentRow, **changes: Any) -> AsyncIterator[tuple[Guarding, httpx.AsyncClient]]:
    guard = guarding(row.config(**changes), manual_clock=row.manual_clock)
    app = guard_app(guard.loop, registry=guard.registry, budget_token=TOKEN)
    async with (
        aclosing(guard.agents),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://guard") as http,
    ):
        http.headers["Authorization"] = f"Bearer {TOKEN}"
        yield guard, http


async def test_a_valid_budget_is_accepted() -> None:
    with staged(2) as row:
        async with serving(row) as (guard, http):
            done = await http.put("/budget", json=GOOD)
            assert done.status_code == 200
            assert done.json()["limit_w"] == 9000.0
            await guard.loop.reconcile()
            state = (await http.get("/state")).json()
            assert (state["state"], state["limit_w"], state["brakes"]) == ("normal", 9000.0, 0)


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"limits": [{"limit_w": -1.0}]}, "limits[0].limit_w", "at most the rating (10000 W)"),
    ({"limits": [{"limit_w": 10_001.0}]}, "limits[0].limit_w", "at most the rating (10000 W)"),
    ({"domain": "row-b"}, "domain", "unknown domain 'row-b'; this guard's is 'row-a'"),
    ({"valid_s": -5.0}, "valid_s", "(it would have expired already)"),
    ({"valid_s": "60"}, "valid_s", "expected a number"),
    ({"limits": []}, "limits", "is empty"),
    ({"watts": 5}, "watts", "is not a known field"),
]


async def test_an_invalid_budget_is_refused_by_field_and_the_old_one_stays() -> None:
    with staged(2) as row:
        async with serving(row) as (guard, http):
            await http.put("/budget", json=GOOD)
            for bad, path, message in BAD:
                refused = await http.put("/budget", json=GOOD | bad)
                assert refused.status_code == 422, bad
                assert refused.headers["content-type"] == "application/problem+json"
                (error,) = refused.json()["errors"]
                assert error["path"] == path, bad
                assert message in error["message"], bad
                assert (await http.get("/state")).json()["budget"]["limit_w"] == 9000.0
                await guard.loop.reconcile()
                assert guard.loop.state.limit_w == 9000.0, bad


async def test_invalid_json_and_oversized_bodies_are_refused() -> None:
    with staged(1) as row:
        async with serving(row) as (guard, http):
            text = {"Content-Type": "application/json"}
            half = await http.put("/budget", content=b"{", headers=text)
            assert (half.status_code, half.json()["errors"][0]["message"][:13]) == (422, "is not JSON: "[:13])
            assert guard.sample("power_budget_refusals_total") == 1
            announced = await http.put("/budget", content=b" " * (MAX_BYTES + 1), headers=text)
            assert (announced.status_code, announced.json()["detail"]) == (413, "the body is over 262144 bytes")

            async def unannounced() -> AsyncIterator[bytes]:
                for _ in range(9):
                    yield b" " * (MAX_BYTES // 8)

            http.headers["Authorization"] = "none"  # the body is read before the token is checked
            assert (await http.put("/budget", content=unannounced(), headers=text)).status_code == 413
            assert guard.loop.budget is None


async def test_only_the_planner_may_set_the_budget() -> None:
    with staged(1) as row:
        async with serving(row) as (guard, http):
            for header in ("", "Bearer guess", f"Basic {TOKEN}"):
                refused = await http.put("/budget", json=GOOD, headers={"Authorization": header})
                assert refused.status_code == 401
            assert guard.loop.budget is None


async def test_without_a_token_file_no_budget_is_accepted() -> None:
    with staged(1) as row:
        guard = guarding(row.config(), manual_clock=row.manual_clock)
        app = guard_app(guard.loop, registry=guard.registry, budget_token=None)
        async with (
            aclosing(guard.agents),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://guard") as http,
        ):
            assert (await http.put("/budget", json=GOOD)).status_code == 404


async def test_the_guard_is_healthy_while_its_cycles_end() -> None:
    with staged(1) as row:
        async with serving(row) as (guard, http):
            assert (await http.get("/healthz")).status_code == 503
            await guard.loop.reconcile()
            assert (await http.get("/healthz")).status_code == 200
            row.advance(3 * PERIOD_S)
            assert (await http.get("/healthz")).status_code == 200
            row.advance(0.1)
            assert (await http.get("/healthz")).status_code == 503


async def test_metrics_have_base_units_and_the_documented_names() -> None:
    with staged(2) as row:
        async with serving(row) as (guard, http):
            await http.put("/budget", json=GOOD)
            await guard.loop.reconcile()
            text = (await http.get("/metrics")).text
    for line in (
        'fleetwright_row_power_budget_watts{row="row-a"} 9000.0',
        'fleetwright_power_brake_events_total{cause="over-budget",row="row-a"} 0.0',
        'fleetwright_power_budget_exceeded_seconds_total{row="row-a"} 0.0',
        'fleetwright_gpu_clock_cap_hertz{phase="low_token",row="row-a"} 1.41e+09',
        'fleetwright_guard_mode{mode="normal",row="row-a"} 1.0',
        'fleetwright_power_cap_actuations_total{path="clocks",result="ok",row="row-a"} 2.0',
    ):
        assert line in text.splitlines()
    for source in ("planned", "applied", "enforced"):
        assert f'fleetwright_power_cap_watts{{row="row-a",server="n0",source="{source}"}}' in text
