"""Runs `fleetwright demo`: applies plans to emulated workers under load, act by act, and measures each.

The API and its controller run already.  The demo requests plans, sets them on the target, generates load and reports
the measurements; the controller applies counts, clocks and the routing table.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import numpy as np

from api.client import AsyncClient, NotFoundError
from api.schemas.applications import RayServeApplication
from api.schemas.plans import PlanRecord
from api.schemas.targets import Mode, Phase, TargetSpec, TargetStatus
from deploy.actuators.ray_serve.client import RUNNING, ServeClient
from deploy.controller.serve_settings import routing_table
from deploy.emulator.openai_protocol import METER_PATH
from deploy.emulator.ray_sandbox import Sandbox, SandboxError, wait_until
from deploy.emulator.scenario import MAX_IN_FLIGHT, MODEL, POOLS, WORKLOAD, Act
from deploy.router.settings import SERVE_NAME, TABLE_PATH, RouterConfig
from fleet.documents import Frozen
from fleet.sizes.histogram import SizeBuckets
from power.controls import FULL_CLOCK

PATH = "/v1/completions"
OK = 200
MAX_ERROR_CHARS = 200
NAME = "demo"
IMPORT_PATH = "deploy.emulator.serve_app:build"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedRequest:
    sent_s: float
    ttft_s: float
    e2e_s: float


@dataclass(slots=True, kw_only=True)
class Load:
    """Open-loop load: slow responses do not delay arrivals."""

    http: httpx.AsyncClient
    url: str
    buckets: SizeBuckets
    rng: np.random.Generator
    rate_rps: float  # in seconds of this machine
    completed: list[CompletedRequest] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    _under_way: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def sent(self) -> int:
        return len(self.completed) + len(self.lost) + len(self._under_way)

    async def keep_sending(self) -> None:
        while True:
            task = asyncio.create_task(self._send_request(*self._size()))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            await asyncio.sleep(self.rng.exponential(1.0 / self.rate_rps))

    async def finish(self) -> None:
        if self._under_way:
            await asyncio.wait(set(self._under_way))

    def _size(self) -> tuple[int, int]:
        cells = list(self.buckets.buckets())
        weights = np.array([cell.share for cell in cells])
        return cells[self.rng.choice(len(cells), p=weights / weights.sum())].edge

    async def _send_request(self, prompt_tokens: int, output_tokens: int) -> None:
        sent_s = asyncio.get_running_loop().time()
        body = {"prompt": [1] * prompt_tokens, "max_tokens": output_tokens}
        try:
            response = await self.http.post(f"{self.url}{PATH}", json=body)
            if response.status_code != OK:
                self.lost.append(f"{response.status_code}: {response.text[:MAX_ERROR_CHARS]}")
                return
            document = response.json()
            if document["usage"]["completion_tokens"] != output_tokens:
                self.lost.append("an incomplete response")
                return
        except (httpx.HTTPError, ValueError, KeyError) as error:
            self.lost.append(repr(error)[:MAX_ERROR_CHARS])
            return
        timing = document["emulator"]
        self.completed.append(CompletedRequest(sent_s=sent_s, ttft_s=timing["ttft_s"], e2e_s=timing["e2e_s"]))


@asynccontextmanager
async def sending(load: Load) -> AsyncIterator[Load]:
    task = asyncio.create_task(load.keep_sending())
    try:
        yield load
    finally:
        task.cancel()
        await asyncio.wait({task})
        await load.finish()


def percentile_s(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(np.array(values), share)) if values else None


class ActResult(Frozen):
    act: str
    plan_id: str
    rate_rps: float
    cost_usd_per_h: float
    planned: dict[str, int]
    applied: dict[str, int]
    clocks: dict[str, float]  # of the plan
    planned_power_w: float  # at full load, servers included
    power_w: float  # of all GPUs, the mean over the polls
    applied_after_s: float
    requests: int
    lost: int
    lost_because: str | None  # of the first of them
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    e2e_p50_s: float | None
    e2e_p95_s: float | None

    @property
    def as_planned(self) -> bool:
        return self.applied == self.planned and not self.lost


@dataclass(slots=True, kw_only=True)
class Demo:
    api: AsyncClient
    sandbox: Sandbox
    seconds: float  # to measure each act, once its plan is in place
    time_scale: float
    patience_s: float
    seed: int = 1

    async def run(self, acts: Sequence[Act]) -> AsyncGenerator[ActResult, None]:
        records = [await self.api.create_plan(act.request(today=datetime.now(UTC).date())) for act in acts]
        spec = self._spec(records[0])
        async with self.sandbox.deployed(self._application(records[0], spec), patience_s=self.patience_s):
            await self._wait_for_router()
            await self.api.create_target(NAME, spec)
            async with httpx.AsyncClient(trust_env=False, timeout=self.patience_s, limits=httpx.Limits()) as http:
                for act, record in zip(acts, records, strict=True):
                    yield await self._act(act, record, http)
            await self.api.delete_target(NAME, if_match="*")

    async def _act(self, act: Act, record: PlanRecord, http: httpx.AsyncClient) -> ActResult:
        load = Load(
            http=http,
            url=self.sandbox.url,
            buckets=record.request.workloads[0].buckets,
            rng=np.random.default_rng(self.seed),
            rate_rps=act.rate_rps * self.time_scale,
        )
        loop = asyncio.get_running_loop()
        async with sending(load):
            began_s = loop.time()
            status = await self._apply_plan(record)
            applied_s = loop.time()
            power_w = await self._mean_w(until_s=applied_s + self.seconds)
        measured = [each for each in load.completed if each.sent_s >= applied_s]
        return ActResult(
            act=act.name,
            plan_id=record.id,
            rate_rps=act.rate_rps,
            cost_usd_per_h=record.plan.cost_usd_per_h or 0.0,
            planned=_kept(status.planned),
            applied=_kept(status.applied),
            clocks=_clocks(record),
            planned_power_w=record.plan.power_w or 0.0,
            power_w=power_w,
            applied_after_s=applied_s - began_s,
            requests=load.sent,
            lost=len(load.lost),
            lost_because=load.lost[0] if load.lost else None,
            ttft_p50_s=percentile_s([each.ttft_s for each in measured], 0.5),
            ttft_p95_s=percentile_s([each.ttft_s for each in measured], 0.95),
            e2e_p50_s=percentile_s([each.e2e_s for each in measured], 0.5),
            e2e_p95_s=percentile_s([each.e2e_s for each in measured], 0.95),
        )

    async def _apply_plan(self, record: PlanRecord) -> TargetStatus:
        spec = self._spec(record)
        target = await self.api.get_target(NAME)
        if target.document.spec != spec:
            await self.api.replace_target(NAME, spec, if_match=target.etag)
        latest: list[TargetStatus] = []

        async def in_place() -> bool:
            try:
                found = await self.api.get_target_status(NAME)
            except NotFoundError:
                return False  # no reconcile yet
            latest[:] = [found]
            return found.phase is Phase.APPLIED and found.plan_id == record.id

        try:
            await wait_until(in_place, description="the plan to be in place", patience_s=self.patience_s)
        except SandboxError as error:
            message = latest[0].message if latest else None
            raise SandboxError(f"{error}; the controller reports: {message or 'nothing'}") from error
        return latest[0]

    async def _wait_for_router(self) -> None:
        async def responds() -> bool:
            try:
                return (await self.sandbox.http.get(f"{self.sandbox.url}{METER_PATH}")).is_success
            except httpx.HTTPError:
                return False

        await wait_until(responds, description="a response through the router", patience_s=self.patience_s)

    async def _mean_w(self, *, until_s: float) -> float:
        """Return the mean power of all running replicas, over the polls with reports of all of them, at least one."""
        samples: list[float] = []

        async def is_over() -> bool:
            response = await self.sandbox.http.get(f"{self.sandbox.url}{METER_PATH}")
            reports = response.json() if response.is_success else {}
            if (running := await self._running()) <= reports.keys():
                samples.append(sum(reports[replica]["power_w"] for replica in running))
            return bool(samples) and asyncio.get_running_loop().time() >= until_s

        await wait_until(is_over, description="reports of all workers", patience_s=self.seconds + self.patience_s)
        return float(np.mean(samples))

    async def _running(self) -> set[str]:
        served = await ServeClient(self.sandbox.http, self.sandbox.dashboard_url).read()
        found = served.application(NAME)
        replicas = [replica for name in POOLS.values() for replica in found.deployment(name).replicas]
        return {replica.replica_id for replica in replicas if replica.state == RUNNING}

    def _spec(self, record: PlanRecord) -> TargetSpec:
        described = {
            "dashboard_url": self.sandbox.dashboard_url,
            "application": NAME,
            "deployments": POOLS,
            "follow_clocks": True,
            "router": {
                "deployment": SERVE_NAME,
                "url": f"{self.sandbox.url}{TABLE_PATH}",
                "max_in_flight": MAX_IN_FLIGHT,
            },
        }
        return TargetSpec(
            workload=WORKLOAD,
            application=RayServeApplication.model_validate(described),
            mode=Mode.APPLY,
            plan_id=record.id,
        )

    def _application(self, record: PlanRecord, spec: TargetSpec) -> dict[str, Any]:
        """Return an application with one replica of each type, because Serve cannot start with none."""
        pools = {name: {"gpu": gpu, "model": MODEL} for gpu, name in POOLS.items()}
        table = routing_table(record, spec, max_in_flight=MAX_IN_FLIGHT)
        config = RouterConfig(table=table).model_dump(mode="json")
        router = {"patience_s": self.patience_s, "max_waiting": 100_000}
        return {
            "name": NAME,
            "import_path": IMPORT_PATH,
            "args": {"pools": pools, "time_scale": self.time_scale, "meter": True, "router": router},
            "external_scaler_enabled": True,
            "deployments": [{"name": SERVE_NAME, "user_config": config}],
        }


def _kept(replicas: dict[str, int]) -> dict[str, int]:
    return {gpu: count for gpu, count in sorted(replicas.items()) if count}


def _clocks(record: PlanRecord) -> dict[str, float]:
    return {
        each.gpu: each.clock for each in record.plan.allocation if each.clock is not None and each.clock < FULL_CLOCK
    }
