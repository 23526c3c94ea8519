"""Budgets that the guard fetches from the real API on a real socket, also while the API does not respond."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from api.client import AsyncClient
from api.client.calls import Versioned
from api.schemas.power import PowerBudget, StoredBudget
from api.schemas.tokens import TokenScope
from deploy.common.clock import Clock
from deploy.power_guard.budget_client import BudgetFetcher, fetching_budgets
from deploy.power_guard.config import BudgetsFrom
from power.guard import BudgetRequest, Cause, GuardMode
from tests.deploy.power_guard.row_of_agents import Guarding, guarding, staged
from tests.power.trees import group, row
from tests.testbed.processes import LOOPBACK
from tests.testbed.service import TOKENS, RunningService
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio
EVERY_S = 0.1


@asynccontextmanager
async def on_loopback(service: RunningService) -> AsyncIterator[tuple[str, AsyncClient]]:
    """The API behind a socket, with its clock at the present, and a client that stored a tree of one row."""
    service.clock.at = datetime.now(UTC)
    listener = socket.create_server((LOOPBACK, 0))
    server = uvicorn.Server(uvicorn.Config(service.app, lifespan="off", log_config=None, access_log=False))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    try:
        async with AsyncClient(url, token=TOKENS[TokenScope.ADMIN]) as planner:
            await planner.create_power_tree(row(50_000.0, [group("batch", "row")]))
            yield url, planner
    finally:
        server.should_exit = server.force_exit = True
        await serving
        listener.close()


@asynccontextmanager
async def fetching(url: str, folder: Path) -> AsyncIterator[Guarding]:
    """A guard of two servers that fetches its budget from this URL."""
    file = folder / "token"
    file.write_text(TOKENS[TokenScope.READ] + "\n")
    with staged(2) as nodes:
        guard = guarding(nodes.config(row="row"), manual_clock=nodes.manual_clock)
        source = BudgetsFrom(url=url, token_file=file, every_s=EVERY_S)
        async with contextlib.aclosing(guard.agents), fetching_budgets(source, loop=guard.loop):
            yield guard


def budget(limit_w: float, *, lasts_s: float = 600.0) -> PowerBudget:
    return PowerBudget(limit_w=limit_w, expires_at=datetime.now(UTC) + timedelta(seconds=lasts_s))


async def until(guard: Guarding, holds: Callable[[], object]) -> None:
    """Budgets use the guard's clock, which advances little; requests use real time."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await guard.reconcile(1, every_s=0.01)
            await asyncio.sleep(0.01)


def fetches(guard: Guarding, result: str) -> float:
    return guard.sample("power_budget_fetches_total", result=result)


async def test_a_budget_of_the_service_is_applied_changed_and_withdrawn(
    sqlite_service: RunningService, tmp_path: Path
) -> None:
    async with on_loopback(sqlite_service) as (url, planner), fetching(url, tmp_path) as guard:
        await until(guard, lambda: fetches(guard, "none") > 0)
        assert guard.mode() is GuardMode.DEGRADED
        made = await planner.create_power_budget("row", budget(9_000.0))
        await until(guard, lambda: guard.loop.state.limit_w == 9_000.0)
        assert guard.mode() is GuardMode.NORMAL

        made = await planner.replace_power_budget(
            "row", budget(40_000.0), if_match=made.etag
        )  # above the rating of the guard's feed
        await until(guard, lambda: guard.sample("power_budget_refusals_total") > 0)
        before = fetches(guard, "found")
        await until(guard, lambda: fetches(guard, "found") > before + 2)
        assert guard.sample("power_budget_refusals_total") == 1  # one request, rejected once
        assert guard.loop.state.limit_w == 9_000.0

        made = await planner.replace_power_budget("row", budget(9_500.0), if_match=made.etag)
        await until(guard, lambda: guard.loop.state.limit_w == 9_500.0)
        await planner.delete_power_budget("row", if_match=made.etag)
        await until(guard, lambda: guard.mode() is GuardMode.DEGRADED)
        assert guard.loop.state.cause is Cause.BUDGET_EXPIRED


async def test_without_the_api_the_budget_expires_and_the_row_is_degraded(
    sqlite_service: RunningService, tmp_path: Path
) -> None:
    async with contextlib.AsyncExitStack() as serving:
        url, planner = await serving.enter_async_context(on_loopback(sqlite_service))
        await planner.create_power_budget("row", budget(9_000.0, lasts_s=3000.0))
        async with fetching(url, tmp_path) as guard:
            await until(guard, lambda: guard.loop.state.limit_w == 9_000.0)
            await serving.aclose()
            await until(guard, lambda: fetches(guard, "failed") > 0)
            assert guard.mode() is GuardMode.NORMAL
            await guard.reconcile(1, every_s=3000.0)
            await until(guard, lambda: guard.loop.state.cause is Cause.BUDGET_EXPIRED)
            assert guard.mode() is GuardMode.DEGRADED
            assert guard.sample("power_budget_remaining_seconds") <= 0


class UnresponsiveApi:
    """An API that accepts requests and never responds."""

    requests = 0

    async def send(self, _call: object) -> Any:
        self.requests += 1
        await asyncio.get_running_loop().create_future()


async def test_an_unresponsive_service_does_not_delay_the_control_loop() -> None:
    with staged(2) as nodes:
        guard, service = guarding(nodes.config(row="row"), manual_clock=nodes.manual_clock), UnresponsiveApi()
        source: Any = BudgetFetcher(api=service, loop=guard.loop)  # type: ignore[arg-type] # only `send` is used
        fetching_task = asyncio.create_task(source.run(every_s=EVERY_S))
        async with contextlib.aclosing(guard.agents):
            await guard.reconcile(5)
            assert guard.mode() is GuardMode.DEGRADED
        assert not fetching_task.done()
        assert service.requests == 1
        fetching_task.cancel()


async def test_validity_is_computed_with_the_clock_of_the_service(sqlite_service: RunningService) -> None:
    wrong_clock = Clock(now=lambda: datetime(2000, 1, 1, tzinfo=UTC))
    with staged(1) as nodes:
        guard = guarding(nodes.config(row="row"), manual_clock=nodes.manual_clock)
        async with on_loopback(sqlite_service) as (_url, planner), contextlib.aclosing(guard.agents):
            await planner.create_power_budget("row", budget(4_000.0, lasts_s=3000.0))
            await BudgetFetcher(api=planner, loop=guard.loop, clock=wrong_clock).fetch()
            assert guard.loop.budget is not None
            left_s = guard.loop.budget.expires_at_s - guard.loop.now_s()
            assert 2000 < left_s <= 3000


async def test_deleting_the_budget_keeps_a_later_one_set_directly(sqlite_service: RunningService) -> None:
    direct = BudgetRequest.model_validate({"domain": "row", "limits": [{"limit_w": 3_000.0}], "valid_s": 60.0})
    with staged(1) as nodes:
        guard = guarding(nodes.config(row="row"), manual_clock=nodes.manual_clock)
        async with on_loopback(sqlite_service) as (_url, planner), contextlib.aclosing(guard.agents):
            made: Versioned[StoredBudget] = await planner.create_power_budget("row", budget(4_000.0))
            source = BudgetFetcher(api=planner, loop=guard.loop)
            await source.fetch()
            held: Any = guard.loop.set_budget(direct)
            await source.fetch()  # the same version again
            await planner.delete_power_budget("row", if_match=made.etag)
            await source.fetch()
            assert guard.loop.budget is held


async def test_an_expired_budget_does_not_count_as_refused(sqlite_service: RunningService) -> None:
    with staged(1) as nodes:
        guard = guarding(nodes.config(row="row"), manual_clock=nodes.manual_clock)
        async with on_loopback(sqlite_service) as (_url, planner), contextlib.aclosing(guard.agents):
            await planner.create_power_budget("row", budget(4_000.0, lasts_s=0.2))
            await BudgetFetcher(api=planner, loop=guard.loop).fetch()
            assert guard.loop.budget is None
            assert guard.sample("power_budget_refusals_total") == 0
