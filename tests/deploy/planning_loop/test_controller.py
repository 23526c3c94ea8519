"""Planning loops on a real service: windows of a request log, decisions, modes, changes of the leader."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from api.schemas.planning_loops import LoopPhase, PlanningLoopSpec, PlanningLoopStatus
from api.schemas.target_hosts import LOOPBACK_HOSTS, AllowedHosts
from api.schemas.targets import Mode
from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.demand.reader import DemandFolders
from deploy.planning_loop.controller import READ_DELAY_S, PlanningLoops
from deploy.planning_loop.process import planning_loops
from fleet.stock import FreeNodes, Stock, StockEntry
from planner.forecast import ForecastState
from planner.request import PlanRequest
from tests.deploy.controller.harness import Harness, app
from tests.planner.demand.scraped import Served, scraped
from tests.planner.requests import from_offers, offer
from tests.testbed.stored_series import stored_series

pytestmark = pytest.mark.anyio

WINDOW_S = 60.0
A100 = "A100-80GB-SXM"
REQUEST = PlanRequest.model_validate(
    {
        "workloads": [
            {
                "name": "chat",
                "rate_rps": 1.0,
                "buckets": {"input_tokens": [500, 2000], "output_tokens": [500], "share": [[0.5], [0.5]]},
                "options": [{"name": "a", "gpu": "A", "price_usd_per_h": 4.0, "max_rps": [[4.0], [1.0]]}],
            }
        ]
    }
)
DEMAND = {"sources": [{"kind": "request_log", "file": "requests.jsonl", "max_age_s": 30}]}


@dataclass
class Traffic:
    """A gateway's log, written as time passes."""

    harness: Harness
    log: Path
    sizes: tuple[int, int] = (300, 100)

    async def window(self, loops: PlanningLoops, *, rps: float) -> None:
        """One window at this rate, and the loops' decision after it."""
        start_s = self.harness.clock.now().timestamp() // WINDOW_S * WINDOW_S
        count = round(rps * WINDOW_S)
        with self.log.open("a", encoding="utf-8") as file:
            for n in range(count):
                line = {
                    "time": start_s + (n + 0.5) * WINDOW_S / count,
                    "input_tokens": self.sizes[0],
                    "output_tokens": self.sizes[1],
                }
                file.write(json.dumps(line) + "\n")
        self.harness.clock.advance(WINDOW_S)
        await loops.leadership.renew()
        await loops.advance()


@asynccontextmanager
async def loops_of(
    harness: Harness, folder: Path, *, holder: str = "first", **more: Any
) -> AsyncIterator[PlanningLoops]:
    clock = Clock(now=harness.clock.now, steady_s=harness.clock.monotonic_s)
    leadership = Leadership(api=harness.api, settings=LeaseSettings(holder=holder), clock=clock)
    harness.registry = CollectorRegistry()
    async with planning_loops(
        api=more.pop("api", harness.api),
        leadership=leadership,
        registry=harness.registry,
        allowed=AllowedHosts.parse(LOOPBACK_HOSTS),
        clock=clock,
        folders=DemandFolders(logs=folder),
        **more,
    ) as loops:
        yield loops


@dataclass
class Scene:
    harness: Harness
    folder: Path
    traffic: Traffic = field(init=False)

    def __post_init__(self) -> None:
        self.traffic = Traffic(self.harness, self.folder / "requests.jsonl")

    async def begin(self, *, mode: Mode = Mode.APPLY, demand: Mapping[str, Any] = DEMAND, **spec: Any) -> None:
        self.harness.clock.advance(WINDOW_S - self.harness.clock.now().timestamp() % WINDOW_S + READ_DELAY_S + 1)
        await self.harness.register("chat", app(A=1), mode=Mode.OBSERVE, demand=demand)
        described = {
            "request": REQUEST.model_dump(mode="json", exclude_defaults=True),
            "targets": {"chat": "chat"},
            "mode": mode,
            "window_s": WINDOW_S,
            "warm_up_s": 60.0,
            "patience": 2,
        } | spec
        await self.harness.api.create_planning_loop("chat", PlanningLoopSpec.model_validate(described))

    async def status(self) -> PlanningLoopStatus:
        return await self.harness.api.get_planning_loop_status("chat")

    async def plan_id(self) -> str | None:
        return (await self.harness.api.get_target("chat")).document.spec.plan_id

    async def versions(self) -> int:
        return (await self.harness.api.get_target("chat")).document.version


@pytest.fixture
def scene(harness: Harness, tmp_path: Path) -> Scene:
    return Scene(harness, tmp_path)


class TestDecisions:
    async def test_the_first_plan_follows_the_observed_demand(self, scene: Scene) -> None:
        await scene.begin()
        async with loops_of(scene.harness, scene.folder) as loops:
            await scene.traffic.window(loops, rps=4)
            assert (await scene.status()).phase is LoopPhase.WARMING_UP
            assert await scene.plan_id() is None
            await scene.traffic.window(loops, rps=4)
        status = await scene.status()
        assert status.phase is LoopPhase.APPLIED
        assert status.demand["chat"].arrivals_rps == pytest.approx(4, rel=0.01)
        assert status.plan_id == await scene.plan_id()
        stored = await scene.harness.api.get_plan(status.plan_id or "")
        assert stored.request.workloads[0].planned_rps >= 4
        assert status.wanted["chat"]["A"] == sum(entry.count for entry in stored.plan.allocation)

    async def test_a_doubled_rate_and_longer_prompts_change_the_plan_in_the_next_window(self, scene: Scene) -> None:
        await scene.begin()
        async with loops_of(scene.harness, scene.folder) as loops:
            for _ in range(8):
                await scene.traffic.window(loops, rps=4)
            before = (await scene.status()).wanted["chat"]["A"]
            scene.traffic.sizes = (1500, 100)
            await scene.traffic.window(loops, rps=8)
        status = await scene.status()
        assert status.phase is LoopPhase.APPLIED
        assert status.wanted["chat"]["A"] >= max(8, before + 1)  # each serves one long request a second

    async def test_a_steady_load_changes_nothing(self, scene: Scene) -> None:
        await scene.begin()
        async with loops_of(scene.harness, scene.folder) as loops:
            for _ in range(4):
                await scene.traffic.window(loops, rps=4)
            before = await scene.versions()
            for _ in range(4):
                await scene.traffic.window(loops, rps=4)
        assert (await scene.status()).phase is LoopPhase.STEADY
        assert await scene.versions() <= before + 1

    async def test_a_window_is_decided_once(self, scene: Scene) -> None:
        await scene.begin()
        async with loops_of(scene.harness, scene.folder) as loops:
            for _ in range(3):
                await scene.traffic.window(loops, rps=4)
            before = await scene.status()
            await loops.advance()
            assert await scene.status() == before
        counted = sum(
            scene.harness.counted("fleetwright_planning_windows_total", phase=phase.value) or 0.0 for phase in LoopPhase
        )
        assert counted == 3


class TestHistory:
    async def test_a_new_loop_decides_on_the_windows_that_prometheus_has(self, scene: Scene) -> None:
        now_s = scene.harness.clock.now().timestamp()
        requests = [Served(now_s - 1_200 + n / 4, now_s - 1_199.5 + n / 4) for n in range(4 * 1_500)]
        series = scraped(requests, labels={"pod": "a"}, since_s=now_s - 1_200, until_s=now_s + 300, every_s=15.0)
        with stored_series(series) as server:
            source = {"kind": "prometheus", "url": server.url, "profile": "vllm"}
            await scene.begin(demand={"sources": [source | {"parts": {"*": {}}}]})
            async with loops_of(scene.harness, scene.folder) as loops:
                await loops.leadership.renew()
                await loops.advance()
        status = await scene.status()
        assert status.phase is LoopPhase.APPLIED
        assert status.state is not None
        state = ForecastState.model_validate(status.state.forecasts["chat"])
        assert state.observed >= 18
        assert status.demand["chat"].forecast_rps == pytest.approx(4, rel=0.25)


class TestModes:
    async def test_observe_stores_no_plan(self, scene: Scene) -> None:
        await scene.begin(mode=Mode.OBSERVE)
        async with loops_of(scene.harness, scene.folder) as loops:
            for _ in range(3):
                await scene.traffic.window(loops, rps=4)
        status = await scene.status()
        assert status.phase is LoopPhase.OBSERVED
        assert status.message is not None
        assert status.message.startswith("a new plan is due: ")
        assert [plan async for plan in scene.harness.api.iter_plans()] == []

    async def test_recommend_stores_a_plan_once_and_leaves_the_target(self, scene: Scene) -> None:
        await scene.begin(mode=Mode.RECOMMEND)
        async with loops_of(scene.harness, scene.folder) as loops:
            for _ in range(2):
                await scene.traffic.window(loops, rps=4)
            recommended = await scene.status()
            for _ in range(3):
                await scene.traffic.window(loops, rps=4)
        assert recommended.phase is LoopPhase.RECOMMENDED
        assert recommended.wanted["chat"]["A"] >= 1
        assert await scene.plan_id() is None

    async def test_an_observing_controller_sets_no_plan(self, scene: Scene) -> None:
        await scene.begin()
        async with loops_of(scene.harness, scene.folder, observe_only=True) as loops:
            for _ in range(3):
                await scene.traffic.window(loops, rps=4)
        assert (await scene.status()).plan_id is not None
        assert await scene.plan_id() is None

    async def test_a_freeze_stops_the_change_until_it_is_lifted(self, scene: Scene) -> None:
        await scene.begin()
        await scene.harness.freeze(frozen=True, reason="audit")
        async with loops_of(scene.harness, scene.folder) as loops:
            for _ in range(2):
                await scene.traffic.window(loops, rps=4)
            assert (await scene.status()).phase is LoopPhase.FROZEN
            assert await scene.plan_id() is None
            await scene.harness.freeze(frozen=False)
            await scene.traffic.window(loops, rps=4)
        assert (await scene.status()).phase is LoopPhase.APPLIED
        assert await scene.plan_id() is not None


class TestUnusableDemand:
    async def test_the_last_decision_stays_and_the_reason_is_reported(self, scene: Scene) -> None:
        await scene.begin()
        async with loops_of(scene.harness, scene.folder) as loops:
            for _ in range(3):
                await scene.traffic.window(loops, rps=4)
            before, plan_id = await scene.status(), await scene.plan_id()
            await scene.traffic.window(loops, rps=0)
            held = await scene.status()
            assert held.phase is LoopPhase.HOLDING
            assert held.problems[0].startswith("chat: stale: the newest line is ")
            assert held.wanted == before.wanted
            assert held.demand == {}  # no figure of a window that cannot be trusted
            assert await scene.plan_id() == plan_id
            await scene.traffic.window(loops, rps=4)
        resumed = await scene.status()
        assert resumed.phase in {LoopPhase.STEADY, LoopPhase.APPLIED}
        assert resumed.problems == ()

    async def test_a_target_without_a_source_is_a_problem(self, scene: Scene) -> None:
        await scene.begin()
        await scene.harness.change("chat", demand=None)
        async with loops_of(scene.harness, scene.folder) as loops:
            await scene.traffic.window(loops, rps=4)
        assert (await scene.status()).problems == ("chat: missing: the target has no `demand`",)


class TestStaleStock:
    async def test_a_loop_holds_until_the_stock_is_fresh_again(self, scene: Scene) -> None:
        own = offer("own/a100", A100, 1.0, market="owned", stock={"name": "prod"})
        await scene.begin(request=from_offers() | {"offers": [own]})
        on_a100 = {"dashboard_url": "http://chat:8265", "application": "chat", "deployments": {A100: "on-A"}}
        await scene.harness.change("chat", application=on_a100)
        async with loops_of(scene.harness, scene.folder) as loops:
            for _ in range(2):
                await scene.traffic.window(loops, rps=4)
            missing = await scene.status()
            assert (missing.phase, missing.problems) == (LoopPhase.HOLDING, ("stock 'prod' is not stored",))
            stored = await scene.harness.api.create_stock("prod", stock_at(scene, age_s=400.0))
            await scene.traffic.window(loops, rps=4)
            stale = await scene.status()
            assert stale.phase is LoopPhase.HOLDING
            assert stale.message == "the stock of this window is not usable; the last decision stays"
            (problem,) = stale.problems
            assert re.fullmatch(r"stock 'prod' was observed 4\d\d s ago; allowed: at most 300 s", problem)
            assert await scene.plan_id() is None
            await scene.harness.api.replace_stock("prod", stock_at(scene, age_s=0.0), if_match=stored.etag)
            await scene.traffic.window(loops, rps=4)
        assert (await scene.status()).phase is LoopPhase.APPLIED
        plan = (await scene.harness.api.get_plan(await scene.plan_id() or "")).plan
        assert [(use.name, use.stale) for use in plan.stock] == [("prod", False)]


def stock_at(scene: Scene, *, age_s: float) -> Stock:
    free = (FreeNodes(gpus=1, nodes=50),)
    entry = StockEntry(gpu=A100, region="one", gpus_per_node=1, total=50, available=50, free=free)
    observed_at = scene.harness.clock.now() - timedelta(seconds=age_s)
    return Stock(observed_at=observed_at, stale_after_s=300.0, source="a test", entries=(entry,))


class TestLeaders:
    async def test_a_new_leader_continues_without_a_second_change(self, scene: Scene) -> None:
        await scene.begin()
        async with loops_of(scene.harness, scene.folder) as loops:
            for _ in range(4):
                await scene.traffic.window(loops, rps=4)
        before, plan_id = await scene.versions(), await scene.plan_id()
        scene.harness.clock.advance(30)  # the lease of the first expires
        async with loops_of(scene.harness, scene.folder, holder="second") as successor:
            await successor.leadership.renew()
            for _ in range(3):
                await scene.traffic.window(successor, rps=4)
        assert (await scene.versions(), await scene.plan_id()) == (before, plan_id)

    async def test_a_controller_that_dies_before_its_report_changed_the_plan_once(self, scene: Scene) -> None:
        await scene.begin()
        async with loops_of(scene.harness, scene.folder) as loops:
            await scene.traffic.window(loops, rps=4)
            loops.api = Dying(scene.harness)  # type: ignore[assignment]
            with pytest.raises(KilledError):
                await scene.traffic.window(loops, rps=4)
        before, plan_id = await scene.versions(), await scene.plan_id()
        assert plan_id is not None
        scene.harness.clock.advance(30)
        async with loops_of(scene.harness, scene.folder, holder="second") as successor:
            await successor.leadership.renew()
            await successor.advance()
            await scene.traffic.window(successor, rps=4)
        assert (await scene.versions(), await scene.plan_id()) == (before, plan_id)


class KilledError(BaseException):
    """The process ends; no handler of the loop's errors may catch this."""


class Dying:
    """The API of a process that ends before it reports."""

    def __init__(self, harness: Harness) -> None:
        self._api = harness.api

    def __getattr__(self, name: str) -> Any:
        if name == "report_planning_loop_status":
            raise KilledError
        return getattr(self._api, name)
