"""Tests that the Serve actuator and the controller read and scale a real Ray cluster correctly."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest

from api.schemas.applications import RayServeApplication
from api.schemas.targets import Mode, Phase, TargetStatus
from deploy.actuators.base import Actuator, Replicas, Step, TargetSnapshot
from deploy.actuators.ray_serve.actuator import RayServeActuator
from deploy.common.errors import ActuationError
from deploy.controller.controller import Controller
from deploy.controller.rollout import plan_changes, verify
from tests.deploy.controller.harness import Harness, harness_of
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.ray_serve import APPLICATIONS, ServeApp, running_serve_app
from tests.testbed.service import RunningService
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.anyio]

H100, A100, L4 = "H100-SXM", "A100-80GB-SXM", "L4"  # names of the catalogue
DEPLOYMENTS = {H100: "on-h100", A100: "on-a100", L4: "on-l4"}
POOLS = {"on-h100": "H100", "on-a100": "A100", "on-l4": "L4"}  # node labels of Ray


@pytest.fixture(scope="module")
def app(ray_cluster: RayCluster) -> Iterator[ServeApp]:
    """Share one application among all tests here; each scales it from any state."""
    with running_serve_app(ray_cluster, pools=POOLS, name="chat") as app:
        yield app


@pytest.fixture
def application(app: ServeApp, ray_cluster: RayCluster) -> RayServeApplication:
    described = {"dashboard_url": ray_cluster.dashboard_url, "application": app.name, "deployments": DEPLOYMENTS}
    return RayServeApplication.model_validate(described)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as http:
        yield http


@pytest.fixture
def actuator(http: httpx.AsyncClient, application: RayServeApplication) -> RayServeActuator:
    return RayServeActuator(http, application)


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    async with harness_of(sqlite_service) as harness:
        yield harness


async def bring_about(actuator: Actuator, target: Replicas, *, max_step: int = 100) -> list[TargetSnapshot]:
    """Reconcile until the target is reached; return every observation."""
    seen = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            observation = await actuator.observe()
            seen.append(observation)
            if verify(wanted=target, observation=observation):
                return seen
            for step in plan_changes(wanted=target, observation=observation, max_step=max_step):
                await actuator.apply(step)
            await asyncio.sleep(0.05)


async def rounds_until(harness: Harness, controller: Controller, phase: Phase) -> list[TargetStatus]:
    """Reconcile until the target is in a phase; return every report."""
    seen: list[TargetStatus] = []
    async with asyncio.timeout(PATIENCE_S):
        while not seen or seen[-1].phase is not phase:
            await harness.round(controller)
            seen.append(await harness.status("chat"))
            await asyncio.sleep(0.05)
    return seen


def counts(app: ServeApp) -> dict[str, int]:
    return {deployment: len(app.replicas(deployment)) for deployment in POOLS}


async def test_replica_counts_are_scaled_up_and_down_and_read_back(actuator: RayServeActuator, app: ServeApp) -> None:
    for target in ({H100: 2, A100: 1, L4: 3}, {H100: 1, A100: 0, L4: 1}, {H100: 1, A100: 1, L4: 1}):
        last = (await bring_about(actuator, target))[-1]
        assert (last.running, last.requested, last.note) == (target, target, None)
        assert counts(app) == {DEPLOYMENTS[gpu]: count for gpu, count in target.items()}


async def test_replicas_run_on_the_requested_gpus(
    actuator: RayServeActuator, app: ServeApp, ray_cluster: RayCluster
) -> None:
    await bring_about(actuator, {H100: 2, A100: 1, L4: 2})
    for deployment, accelerator in POOLS.items():
        node_ids = {replica.node_id for replica in app.replicas(deployment)}
        assert node_ids == {ray_cluster.node_ids[accelerator.lower()]}


async def test_replicas_stop_only_after_new_ones_are_running(actuator: RayServeActuator) -> None:
    before, after = {H100: 0, A100: 1, L4: 4}, {H100: 3, A100: 1, L4: 0}
    await bring_about(actuator, before)
    seen = await bring_about(actuator, after, max_step=2)
    ready = next(index for index, observation in enumerate(seen) if observation.running[H100] >= 3)
    assert all(observation.running[L4] == 4 for observation in seen[:ready])
    assert all(sum(observation.running.values()) >= sum(after.values()) for observation in seen)
    requested = [sum(observation.requested.values()) for observation in seen]
    assert max(abs(later - earlier) for earlier, later in pairwise(requested)) == 2


async def test_a_rollout_waits_for_missing_gpus_and_can_be_reverted(actuator: RayServeActuator) -> None:
    """The node has 8 H100s.  The ninth replica never starts, so the L4s that it would replace stay."""
    start, too_much = {H100: 1, A100: 1, L4: 2}, {H100: 9, A100: 1, L4: 0}
    await bring_about(actuator, start)
    await actuator.apply(Step(part=H100, replicas_before=1, replicas_after=9))
    running = 0
    async with asyncio.timeout(PATIENCE_S):
        while running < 8:
            observation = await actuator.observe()
            running = observation.running[H100]
            assert plan_changes(wanted=too_much, observation=observation, max_step=100) == ()
            await asyncio.sleep(0.1)
    assert (await bring_about(actuator, start))[-1].running == start


async def test_an_unknown_application_or_deployment_is_named(
    http: httpx.AsyncClient, application: RayServeApplication
) -> None:
    misspelt = application.model_copy(update={"application": "chta"})
    with pytest.raises(ActuationError, match="no application 'chta'; it has: chat"):
        await RayServeActuator(http, misspelt).observe()
    stranger = RayServeActuator(http, application.model_copy(update={"deployments": {H100: "nowhere"}}))
    with pytest.raises(ActuationError, match="has no deployment 'nowhere'; it has: Ingress, on-a100"):
        await stranger.observe()
    with pytest.raises(ActuationError, match="nowhere"):
        await stranger.apply(Step(part=H100, replicas_before=0, replicas_after=1))


async def test_an_application_without_external_scaler_is_scaled_by_its_declaration(
    actuator: RayServeActuator, app: ServeApp
) -> None:
    """The other declared settings stay, and so do the replicas that need not stop."""
    await bring_about(actuator, {H100: 1, A100: 1, L4: 2})
    kept = {replica.replica_id for name in POOLS for replica in app.replicas(name)}
    with external_scaler_off(app) as declared:
        assert "external_scaler_enabled is off" in ((await actuator.observe()).note or "")
        for target in ({H100: 2, A100: 1, L4: 2}, {H100: 1, A100: 1, L4: 1}):
            assert (await bring_about(actuator, target))[-1].running == target
        assert kept & {replica.replica_id for replica in app.replicas("on-a100")}
        with pytest.raises(ActuationError, match="cannot be declared with 0 replicas; allowed: 1 or more"):
            await actuator.apply(Step(part=L4, replicas_before=1, replicas_after=0))
        now = app.status()["deployed_app_config"]
        assert {key: now[key] for key in declared} == declared
        assert now["deployments"] == [{"name": "on-h100", "num_replicas": 1}, {"name": "on-l4", "num_replicas": 1}]


async def test_the_controller_applies_a_plan_and_reverts_it(
    harness: Harness,
    app: ServeApp,
    actuator: RayServeActuator,
    application: RayServeApplication,
    http: httpx.AsyncClient,
) -> None:
    start, planned = {H100: 1, A100: 1, L4: 3}, {H100: 3, A100: 1, L4: 0}
    await bring_about(actuator, start)
    await harness.register_real("chat", application, plan_id=await harness.plan(planned), max_step=2)
    seen = await rounds_until(harness, harness.controller(http=http), Phase.APPLIED)
    assert seen[-1].applied == seen[-1].planned == planned
    assert counts(app) == {DEPLOYMENTS[gpu]: count for gpu, count in planned.items()}
    ready = next(index for index, status in enumerate(seen) if status.applied[H100] >= 3)
    assert {status.applied[L4] for status in seen[:ready]} == {3}

    await harness.change("chat", plan_id=await harness.plan(start))
    back = await rounds_until(harness, harness.controller(http=http), Phase.APPLIED)
    assert back[-1].applied == start


async def test_the_controller_writes_nothing_in_observe_mode(
    harness: Harness, actuator: RayServeActuator, application: RayServeApplication, http: httpx.AsyncClient
) -> None:
    start = {H100: 1, A100: 1, L4: 1}
    await bring_about(actuator, start)
    await harness.register_real("chat", application, plan_id=await harness.plan({H100: 2}), mode=Mode.OBSERVE)
    controller = harness.controller(http=http)
    await rounds_until(harness, controller, Phase.OBSERVED)
    await harness.change("chat", mode=Mode.RECOMMEND)
    recommended = (await rounds_until(harness, controller, Phase.RECOMMENDED))[-1]
    await harness.freeze(frozen=True)
    await harness.change("chat", mode=Mode.APPLY)
    frozen = (await rounds_until(harness, controller, Phase.FROZEN))[-1]
    assert frozen.changes == recommended.changes
    assert [change.deployment for change in frozen.changes] == ["on-a100", "on-h100", "on-l4"]
    assert (await actuator.observe()).requested == start

    await harness.freeze(frozen=False)
    assert (await rounds_until(harness, controller, Phase.APPLIED))[-1].applied == {H100: 2, A100: 0, L4: 0}


@contextmanager
def external_scaler_off(app: ServeApp) -> Iterator[dict[str, Any]]:
    """Declare the application with one switch changed; restore it at the end."""
    declared = app.status()["deployed_app_config"]
    switched_off = declared | {"external_scaler_enabled": False}
    declare(app, switched_off)
    try:
        yield switched_off
    finally:
        declare(app, declared)


def declare(app: ServeApp, config: dict[str, Any]) -> None:
    app.dashboard.put(APPLICATIONS, json={"applications": [config]}).raise_for_status()
    wait_for(
        app.status,
        lambda status: (status["deployed_app_config"], status["status"]) == (config, "RUNNING"),
        what="application as declared",
    )
