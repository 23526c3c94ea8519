"""A dry run says what the next round would do, and does none of it."""

import httpx
import pytest

from api.client import NotFoundError
from api.schemas.targets import Mode, Phase
from deploy.actuators.ray_serve.actuator import ray_serve_actuators
from deploy.actuators.registry import Actuators
from deploy.common.clock import Clock
from deploy.controller.controller import ControllerSettings
from deploy.controller.dry_run import DryRun, dry_run
from deploy.controller.prometheus_health import unread_health
from tests.deploy.controller.harness import House, app

pytestmark = pytest.mark.anyio


async def look_ahead(house: House) -> dict[str, DryRun]:
    async with httpx.AsyncClient(transport=httpx.MockTransport(house._route)) as http:
        found = await dry_run(
            [target async for target in house.api.iter_targets()],
            api=house.api,
            http=http,
            actuators=Actuators(ray_serve=ray_serve_actuators(http)),
            health=unread_health,
            settings=ControllerSettings(),
            clock=Clock(now=house.clock.now, steady_s=house.clock.monotonic_s),
        )
    return {each.target.name: each for each in found}


def changes(foreseen: DryRun) -> list[tuple[str, int, int]]:
    return [(change.gpu, change.replicas_now, change.replicas_planned) for change in foreseen.status.changes]


@pytest.mark.parametrize("mode", list(Mode))
async def test_the_exact_change_set_is_told_in_every_mode_and_nothing_is_written(house: House, mode: Mode) -> None:
    serve = app(B200=1, L4=2)
    await house.register("chat", serve, plan_id=await house.plan({"B200": 4}), mode=mode, max_step=2)
    found = (await look_ahead(house))["chat"]
    assert changes(found) == [("B200", 1, 4), ("L4", 2, 0)]
    steps = [(step.part, step.replicas_before, step.replicas_after) for step in found.steps]
    assert steps == ([("B200", 1, 3)] if mode is Mode.APPLY else [])
    assert {request.method for request in serve.requests} == {"GET"}
    with pytest.raises(NotFoundError):
        await house.status("chat")


async def test_what_the_next_round_then_writes_is_what_was_told(house: House) -> None:
    serve = app(B200=1, L40S=3, L4=2)
    await house.register("chat", serve, plan_id=await house.plan({"B200": 4, "L40S": 1}), max_step=2)
    for _ in range(8):
        told = (await look_ahead(house))["chat"]
        before = len(serve.writes)
        await house.round(house.controller())
        assert serve.writes[before:] == [(f"on-{step.part}", step.replicas_after) for step in told.steps]
    assert changes((await look_ahead(house))["chat"]) == []


async def test_what_holds_a_change_back_is_told_too(house: House) -> None:
    plan_id = await house.plan({"B200": 4})
    await house.register("ask", app(B200=1), plan_id=plan_id, require_approval=True)
    await house.register("wait", app(B200=1), plan_id=plan_id, settle_s=60.0)
    await house.register("used", app(B200=1), plan_id=plan_id, max_step_per_window=1)
    await house.round(house.controller())
    found = await look_ahead(house)
    assert {name: each.status.phase for name, each in found.items()} == {
        "ask": Phase.AWAITING_APPROVAL,
        "wait": Phase.SETTLING,
        "used": Phase.APPLYING,
    }
    assert all(each.steps == () for each in found.values())
    assert found["ask"].status.digest == (await house.status("ask")).digest
    await house.freeze(frozen=True, reason="audit")
    await house.change("wait", settle_s=0.0)
    frozen = (await look_ahead(house))["wait"]
    assert (frozen.status.phase, frozen.status.message, frozen.steps) == (Phase.FROZEN, "audit", ())
