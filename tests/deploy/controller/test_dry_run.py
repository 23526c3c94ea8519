"""A dry run reports the changes of the next reconcile without writing them."""

import httpx
import pytest

from api.client import NotFoundError
from api.schemas.targets import Mode, Phase
from deploy.actuators.ray_serve.actuator import ray_serve_actuators
from deploy.actuators.registry import Actuators
from deploy.common.clock import Clock
from deploy.controller.controller import DryRun, dry_run
from deploy.controller.prometheus_health import unread_health
from deploy.controller.reconcile import ControllerSettings
from tests.deploy.controller.harness import Harness, app

pytestmark = pytest.mark.anyio


async def dry_run_by_target(harness: Harness, actuators: Actuators | None = None) -> dict[str, DryRun]:
    async with httpx.AsyncClient(transport=httpx.MockTransport(harness._route)) as http:
        found = await dry_run(
            [target async for target in harness.api.iter_targets()],
            api=harness.api,
            http=http,
            actuators=actuators or Actuators(ray_serve=ray_serve_actuators(http)),
            health=unread_health,
            settings=ControllerSettings(),
            clock=Clock(now=harness.clock.now, steady_s=harness.clock.monotonic_s),
        )
    return {each.target.name: each for each in found}


def changes(result: DryRun) -> list[tuple[str, int, int]]:
    return [(change.gpu, change.replicas_now, change.replicas_planned) for change in result.status.changes]


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_dry_run_reports_the_change_set_in_every_mode_and_writes_nothing(harness: Harness, mode: Mode) -> None:
    serve = app(B200=1, L4=2)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 4}), mode=mode, max_step=2)
    found = (await dry_run_by_target(harness))["chat"]
    assert changes(found) == [("B200", 1, 4), ("L4", 2, 0)]
    steps = [(step.part, step.replicas_before, step.replicas_after) for step in found.steps]
    assert steps == ([("B200", 1, 3)] if mode is Mode.APPLY else [])
    assert {request.method for request in serve.requests} == {"GET"}
    with pytest.raises(NotFoundError):
        await harness.status("chat")


async def test_the_next_reconcile_writes_the_steps_of_the_dry_run(harness: Harness) -> None:
    serve = app(B200=1, L40S=3, L4=2)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 4, "L40S": 1}), max_step=2)
    for _ in range(8):
        forecast = (await dry_run_by_target(harness))["chat"]
        before = len(serve.writes)
        await harness.round(harness.controller())
        assert serve.writes[before:] == [(f"on-{step.part}", step.replicas_after) for step in forecast.steps]
    assert changes((await dry_run_by_target(harness))["chat"]) == []


async def test_a_dry_run_reports_why_a_change_is_held_back(harness: Harness) -> None:
    plan_id = await harness.plan({"B200": 4})
    await harness.register("ask", app(B200=1), plan_id=plan_id, require_approval=True)
    await harness.register("wait", app(B200=1), plan_id=plan_id, settle_s=60.0)
    await harness.register("used", app(B200=1), plan_id=plan_id, max_step_per_window=1)
    await harness.round(harness.controller())
    found = await dry_run_by_target(harness)
    assert {name: each.status.phase for name, each in found.items()} == {
        "ask": Phase.AWAITING_APPROVAL,
        "wait": Phase.SETTLING,
        "used": Phase.APPLYING,
    }
    assert all(each.steps == () for each in found.values())
    assert found["ask"].status.digest == (await harness.status("ask")).digest
    await harness.freeze(frozen=True, reason="audit")
    await harness.change("wait", settle_s=0.0)
    frozen = (await dry_run_by_target(harness))["wait"]
    assert (frozen.status.phase, frozen.status.message, frozen.steps) == (Phase.FROZEN, "audit", ())
