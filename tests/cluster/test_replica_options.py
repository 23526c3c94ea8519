"""Tests replicas of one GPU type in two sizes, each in its own deployment, on a real Ray cluster."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from api.schemas.applications import RayServeApplication
from api.schemas.targets import Phase
from deploy.actuators.ray_serve.actuator import RayServeActuator
from planner.request import PlanRequest
from tests.deploy.controller.harness import WORKLOAD, Harness, harness_of
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.ray_serve import declared_applications
from tests.testbed.service import RunningService
from tests.testbed.waiting import PATIENCE_S

pytestmark = [pytest.mark.ray, pytest.mark.anyio]

H100 = "H100-SXM"
PARTS = {f"{H100}/x1": "on-h100", f"{H100}/x2": "on-h100-2"}
ON_H100 = {"num_cpus": 0.1, "label_selector": {"ray.io/accelerator-type": "H100"}}
APPLICATION: dict[str, Any] = {
    "name": "chat",
    "import_path": "tests.testbed.serve_apps:build",
    "external_scaler_enabled": True,
    "args": {"pools": dict.fromkeys(PARTS.values(), "H100")},
    "deployments": [{"name": "on-h100-2", "ray_actor_options": ON_H100 | {"num_gpus": 2}}],
}


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    async with harness_of(sqlite_service) as harness:
        yield harness


async def plan_of(harness: Harness, *, small: int, large: int) -> str:
    """Create a plan that needs all these replicas of one and of two GPUs."""
    counts = {"small": (1, small), "large": (2, large)}
    options = [
        {"name": name, "gpu": H100, "gpus": gpus, "price_usd_per_h": 1.0, "max_rps": [[1.0]], "available": count}
        for name, (gpus, count) in counts.items()
    ]
    buckets = {"input_tokens": [1000], "output_tokens": [100], "share": [[1.0]]}
    workload = {"name": WORKLOAD, "rate_rps": small + large - 0.5, "buckets": buckets, "options": options}
    return (await harness.api.create_plan(PlanRequest.model_validate({"workloads": [workload]}))).id


async def test_two_replica_sizes_of_one_gpu_type_reach_their_planned_counts(
    harness: Harness, ray_cluster: RayCluster
) -> None:
    described = {"dashboard_url": ray_cluster.dashboard_url, "application": "chat", "deployments": PARTS}
    application = RayServeApplication.model_validate(described)
    with declared_applications(ray_cluster, [APPLICATION]):
        async with httpx.AsyncClient(trust_env=False) as http:
            await harness.register_real("chat", application, plan_id=await plan_of(harness, small=2, large=3))
            controller = harness.controller(http=http)
            async with asyncio.timeout(PATIENCE_S):
                phase = None
                while phase is not Phase.APPLIED:
                    await harness.round(controller)
                    phase = (await harness.status("chat")).phase
                    await asyncio.sleep(0.05)
            planned = {f"{H100}/x1": 2, f"{H100}/x2": 3}
            assert (await harness.status("chat")).applied == planned
            observation = await RayServeActuator(http, application).observe()
            assert (observation.requested, observation.running) == (planned, planned)
