"""Applies a plan for three GPU types to a running Serve application under load, and rolls it back.

Simulated engines run behind the router.  Both plans have capacity for eight requests a second, so the running replicas
must never have less, neither during the rollout nor during the rollback.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from api.schemas.applications import RayServeApplication
from api.schemas.targets import Phase, TargetStatus
from deploy.actuators.base import ConfigWrite, Replicas, TargetSnapshot
from deploy.actuators.ray_serve.actuator import RayServeActuator
from deploy.router.settings import SERVE_NAME, RouterConfig
from deploy.router.table import CellWeights, Route, RoutingTable
from planner.request import PlanRequest
from tests.deploy.controller.harness import WORKLOAD, Harness, harness_of
from tests.testbed.chat_load import ChatLoad, calling
from tests.testbed.processes import LOOPBACK
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.ray_serve import declared_applications
from tests.testbed.service import RunningService
from tests.testbed.waiting import PATIENCE_S

pytestmark = [pytest.mark.ray, pytest.mark.anyio]

H100, A100, L4 = "H100-SXM", "A100-80GB-SXM", "L4"  # names of the catalogue
DEPLOYMENTS = {H100: "on-h100", A100: "on-a100", L4: "on-l4"}
RATE_RPS = {H100: 3.0, A100: 2.0, L4: 1.0}  # of one replica, as in the plans
FEW_FAST = {H100: 2, A100: 1, L4: 0}
MANY_SLOW = {H100: 1, A100: 1, L4: 3}
CAPACITY_RPS = 8.0  # of either
TOKENS = 24


def capacity_rps(running: Replicas) -> float:
    return sum(RATE_RPS[gpu] * count for gpu, count in running.items())


def request_for(replicas: Replicas) -> PlanRequest:
    """Return a request whose only solution is these replicas: all are needed, and no others are available."""
    options = [
        {"name": DEPLOYMENTS[gpu], "gpu": gpu, "price_usd_per_h": rate, "max_rps": [[rate]], "available": replicas[gpu]}
        for gpu, rate in RATE_RPS.items()
        if replicas[gpu]
    ]
    buckets = {"input_tokens": [1000], "output_tokens": [100], "share": [[1.0]]}
    workload = {"name": WORKLOAD, "rate_rps": capacity_rps(replicas) - 0.5, "buckets": buckets, "options": options}
    return PlanRequest.model_validate({"workloads": [workload]})


@pytest.fixture(scope="module")
def application(ray_cluster: RayCluster) -> Iterator[RayServeApplication]:
    """Run simulated engines on three types of GPU behind one router, with the slow plan."""
    pools = {DEPLOYMENTS[gpu]: {"gpu": gpu, "replicas": count} for gpu, count in MANY_SLOW.items()}
    config = RouterConfig(table=table()).model_dump(mode="json")
    app = {
        "name": "chat",
        "import_path": "deploy.emulator.serve_app:build",
        "args": {"pools": pools, "time_scale": 4.0, "router": {"patience_s": PATIENCE_S}},
        "external_scaler_enabled": True,
        "deployments": [{"name": SERVE_NAME, "user_config": config}],
    }
    described = {"dashboard_url": ray_cluster.dashboard_url, "application": "chat", "deployments": DEPLOYMENTS}
    with declared_applications(ray_cluster, [app]):
        yield RayServeApplication.model_validate(described)


def table() -> RoutingTable:
    """Split evenly; the share of a deployment without replicas goes to the others."""
    weights = dict.fromkeys(DEPLOYMENTS.values(), 1 / 3)
    return RoutingTable(
        version="even",
        input_tokens=(1000,),
        output_tokens=(100,),
        share=((1.0,),),
        routes={name: Route(replicas=1, max_in_flight=100) for name in weights},
        cells=(CellWeights(row=0, column=0, weights=weights),),
    )


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        yield http


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    async with harness_of(sqlite_service) as harness:
        yield harness


@asynccontextmanager
async def observed(actuator: RayServeActuator) -> AsyncIterator[list[TargetSnapshot]]:
    """Record all observations during the block, and one at its end."""
    observations: list[TargetSnapshot] = []

    async def watch() -> None:
        while True:
            observations.append(await actuator.observe())
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    try:
        yield observations
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    observations.append(await actuator.observe())


async def carried_out(harness: Harness, http: httpx.AsyncClient, plan: Replicas) -> list[TargetStatus]:
    """Reconcile with a new controller until the plan is applied; return every report."""
    await harness.change("chat", plan_id=(await harness.api.create_plan(request_for(plan))).id)
    statuses: list[TargetStatus] = []
    controller = harness.controller(http=http)
    async with asyncio.timeout(PATIENCE_S):
        while not statuses or statuses[-1].phase is not Phase.APPLIED:
            await harness.round(controller)
            statuses.append(await harness.status("chat"))
            await asyncio.sleep(0.1)
    return statuses


async def test_a_plan_is_applied_and_rolled_back_under_load(
    harness: Harness, http: httpx.AsyncClient, application: RayServeApplication, ray_cluster: RayCluster
) -> None:
    """No request is lost, capacity never falls below the old plan's, and the plan is applied at the end."""
    actuator = RayServeActuator(http, application)
    await harness.register_real("chat", application)
    async with calling(ChatLoad(http=http, url=url_of(ray_cluster), tokens=TOKENS)) as calls:
        await calls.some_more()
        for old, new in ((MANY_SLOW, FEW_FAST), (FEW_FAST, MANY_SLOW)):
            async with observed(actuator) as observations:
                reports = await carried_out(harness, http, new)
                await calls.some_more()
            assert [each.running for each in observations if capacity_rps(each.running) < CAPACITY_RPS] == []
            both = {gpu: max(old[gpu], new[gpu]) for gpu in old}
            assert both in [report.applied for report in reports], "old replicas run until all new ones are running"
            assert (observations[-1].running, observations[-1].requested, reports[-1].applied) == (new, new, new)
    assert calls.faults == []


async def test_replicas_change_their_clock_under_load_without_a_restart(
    http: httpx.AsyncClient, application: RayServeApplication, ray_cluster: RayCluster
) -> None:
    """Each replica keeps serving, at the new clock; all other keys and counts stay."""
    actuator = RayServeActuator(http, application)
    before = await actuator.observe()
    clocks: dict[str, float] = {}  # last reported clock by replica

    def record_clock(document: dict[str, Any]) -> None:
        clocks[document["emulator"]["replica"]] = document["emulator"]["clock"]

    async with calling(ChatLoad(http=http, url=url_of(ray_cluster), tokens=TOKENS, on_response=record_clock)) as calls:
        await calls.some_more()
        for deployment in DEPLOYMENTS.values():
            await actuator.apply(ConfigWrite(deployment=deployment, key="clock", value=0.7))
        replicas = sum(before.running.values())
        async with asyncio.timeout(PATIENCE_S):
            while list(clocks.values()) != [0.7] * replicas and not calls.faults:
                await asyncio.sleep(0.1)
                assert len(clocks) <= replicas, "a new replica responds, so one was restarted"
        assert (await settled(actuator)).requested == before.requested
    assert calls.faults == []


def url_of(cluster: RayCluster) -> str:
    return f"http://{LOOPBACK}:{cluster.serve_port}"


async def settled(actuator: RayServeActuator) -> TargetSnapshot:
    """Wait until all requested replicas run."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await actuator.observe()).running != found.requested:
            await asyncio.sleep(0.1)
    return found
