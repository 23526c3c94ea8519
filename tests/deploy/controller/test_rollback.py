"""Rollback of a harmful plan: health verification, rollback, and no retry without an operator."""

from dataclasses import dataclass, field

import httpx
import pytest

from api.schemas.probes import HealthProbe
from api.schemas.target_state import Readings
from api.schemas.targets import Phase
from deploy.controller.health_check import Health
from tests.deploy.actuators.serve_double import ServeDouble
from tests.deploy.controller.harness import Harness, app

pytestmark = pytest.mark.anyio
PROBE = {
    "prometheus_url": "http://prometheus:9090",
    "error_rate_query": "errors",
    "max_error_rate": 0.05,
    "judge_after_s": 10.0,
}


@dataclass
class HealthDouble:
    """The health of an application, set by the test."""

    error_rate: float | None = 0.01
    probes: list[HealthProbe] = field(default_factory=list)

    async def __call__(self, probe: HealthProbe) -> Health:
        self.probes.append(probe)
        missing = {} if self.error_rate is not None else {"error rate": "the query gives no value"}
        return Health(readings=Readings(error_rate=self.error_rate), missing=missing)


async def register_verified(harness: Harness, serve: ServeDouble, health: HealthDouble) -> None:
    """Register a target whose first plan, 2 B200, is applied and verified."""
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}), health=PROBE)
    await harness.round(harness.controller(health=health))
    state = (await harness.status("chat")).state
    assert state is not None
    assert state.verified_plan_id is not None


async def rounds(harness: Harness, health: HealthDouble, number: int) -> list[Phase]:
    """Reconcile `number` times, each with a new controller, and return the phases."""
    phases = []
    for _ in range(number):
        await harness.round(harness.controller(health=health))
        phases.append((await harness.status("chat")).phase)
    return phases


async def verified_plan_id(harness: Harness) -> str | None:
    state = (await harness.status("chat")).state
    return state.verified_plan_id if state is not None else None


async def test_without_a_probe_an_applied_plan_is_verified(harness: Harness) -> None:
    plan_id = await harness.plan({"B200": 2})
    await harness.register("chat", app(B200=1), plan_id=plan_id)
    controller = harness.controller()
    await harness.round(controller)
    assert await verified_plan_id(harness) is None
    await harness.round(controller)
    assert await verified_plan_id(harness) == plan_id


async def test_a_failure_reported_by_the_target_prevents_verification(harness: Harness) -> None:
    serve = app(B200=2)
    serve.status = "DEPLOY_FAILED"
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert (status.phase, await verified_plan_id(harness)) == (Phase.APPLIED, None)
    assert (status.message or "").endswith("; not verified")


async def test_a_healthy_change_is_verified_after_the_configured_time(harness: Harness) -> None:
    serve, health = app(B200=2), HealthDouble()
    await register_verified(harness, serve, health)
    first = await verified_plan_id(harness)
    plan_id = await harness.plan({"B200": 3})
    await harness.change("chat", plan_id=plan_id)
    assert await rounds(harness, health, 2) == [Phase.APPLYING, Phase.APPLIED]
    assert await verified_plan_id(harness) == first
    assert (await harness.status("chat")).message == "health check at 12:00:20 UTC"
    await rounds(harness, health, 1)
    assert await verified_plan_id(harness) == plan_id
    probes = len(health.probes)
    await rounds(harness, health, 3)
    assert len(health.probes) == probes, "a verified plan is not checked again"


async def test_a_harmful_plan_is_rolled_back_and_not_retried(harness: Harness) -> None:
    serve, health = app(B200=2), HealthDouble()
    await register_verified(harness, serve, health)
    first = await verified_plan_id(harness)
    await harness.change("chat", plan_id=await harness.plan({"B200": 3}))
    await rounds(harness, health, 1)
    health.error_rate = 0.2
    assert await rounds(harness, health, 4) == [
        Phase.APPLIED,  # before the health check
        Phase.ROLLING_BACK,  # harm detected
        Phase.ROLLING_BACK,  # counts requested
        Phase.ROLLED_BACK,
    ]
    assert serve.writes == [("on-B200", 3), ("on-B200", 2)]
    status = await harness.status("chat")
    assert (status.plan_id, status.planned, status.applied) == (first, {"B200": 2}, {"B200": 2})
    assert "error rate is 0.2, beyond 0.05; before the change it was 0.01" in (status.message or "")
    assert set(await rounds(harness, health, 5)) == {Phase.ROLLED_BACK}
    assert len(serve.writes) == 2


async def test_a_partly_applied_plan_is_rolled_back(harness: Harness) -> None:
    serve, health = app(B200=2, L4=4), HealthDouble()
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2, "L4": 4}), health=PROBE)
    await rounds(harness, health, 1)
    await harness.change("chat", plan_id=await harness.plan({"B200": 6}), max_step=1)
    await rounds(harness, health, 1)
    health.error_rate = 0.2
    await rounds(harness, health, 20)
    assert (await harness.status("chat")).phase is Phase.ROLLED_BACK
    assert serve.counts == {"on-B200": 2, "on-L4": 4}
    assert max(count for name, count in serve.writes if name == "on-B200") < 6


@pytest.mark.parametrize("how", ["changed", "approved"])
async def test_a_refused_plan_is_retried_after_a_change_or_an_approval(harness: Harness, how: str) -> None:
    serve, health = app(B200=2), HealthDouble()
    await register_verified(harness, serve, health)
    plan_id = await harness.plan({"B200": 3})
    await harness.change("chat", plan_id=plan_id)
    await rounds(harness, health, 1)
    health.error_rate = 0.2
    await rounds(harness, health, 5)
    refused = await harness.status("chat")
    assert (refused.phase, [change.replicas_planned for change in refused.changes]) == (Phase.ROLLED_BACK, [3])
    health.error_rate = 0.01
    if how == "changed":
        await harness.change("chat", max_step=5)
    else:
        await harness.approve("chat")
    await rounds(harness, health, 5)
    assert (serve.counts, await verified_plan_id(harness)) == ({"on-B200": 3}, plan_id)


@pytest.mark.parametrize("during", ["before", "after"])
async def test_unknown_health_neither_rolls_back_nor_verifies(harness: Harness, during: str) -> None:
    serve, health = app(B200=2), HealthDouble()
    await register_verified(harness, serve, health)
    first = await verified_plan_id(harness)
    await harness.change("chat", plan_id=await harness.plan({"B200": 3}))
    if during == "before":
        health.error_rate = None
    await rounds(harness, health, 1)
    health.error_rate = None
    assert set(await rounds(harness, health, 6)) == {Phase.APPLIED}
    status = await harness.status("chat")
    assert status.message == "not verified: error rate is not known: the query gives no value"
    assert (serve.counts, await verified_plan_id(harness)) == ({"on-B200": 3}, first)


async def test_health_that_was_already_bad_causes_no_rollback(harness: Harness) -> None:
    """More replicas relieve an overload; they do not cause it."""
    serve, health = app(B200=2), HealthDouble()
    await register_verified(harness, serve, health)
    health.error_rate = 0.3
    await harness.change("chat", plan_id=await harness.plan({"B200": 3}))
    assert set(await rounds(harness, health, 6)) == {Phase.APPLYING, Phase.APPLIED}
    assert serve.counts == {"on-B200": 3}
    health.error_rate = 0.01
    await rounds(harness, health, 1)
    assert (await harness.status("chat")).message is None


async def test_without_a_verified_plan_a_harmful_rollout_stops(harness: Harness) -> None:
    serve, health = app(B200=1, L4=1), HealthDouble()
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 9}), health=PROBE, max_step=1)
    await rounds(harness, health, 1)
    health.error_rate = 0.2
    await rounds(harness, health, 10)
    status = await harness.status("chat")
    assert status.phase is Phase.FAILED
    assert (status.message or "").endswith("no plan was verified before, so nothing more is changed")
    assert serve.counts["on-B200"] < 9


async def test_a_freeze_blocks_a_rollback(harness: Harness) -> None:
    serve, health = app(B200=2), HealthDouble()
    await register_verified(harness, serve, health)
    await harness.change("chat", plan_id=await harness.plan({"B200": 3}))
    await rounds(harness, health, 1)
    health.error_rate = 0.2
    await rounds(harness, health, 2)
    await harness.freeze(frozen=True)
    assert await rounds(harness, health, 2) == [Phase.FROZEN] * 2
    assert serve.counts == {"on-B200": 3}
    await harness.freeze(frozen=False)
    assert (await rounds(harness, health, 2))[-1] is Phase.ROLLED_BACK


async def test_a_failed_read_keeps_the_stored_target_memory(harness: Harness) -> None:
    serve, health = app(B200=2), HealthDouble()
    await register_verified(harness, serve, health)
    first = await verified_plan_id(harness)

    async def refuse(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(500)

    serve.interruptions = [refuse] * 3
    await harness.round(harness.controller(health=health))
    assert ((await harness.status("chat")).phase, await verified_plan_id(harness)) == (Phase.FAILED, first)
