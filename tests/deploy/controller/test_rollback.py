"""A plan that does harm is undone: verified by its health, rolled back, and not tried again unasked."""

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
class Vitals:
    """The health of an application, as the test says."""

    error_rate: float | None = 0.01
    asked: list[HealthProbe] = field(default_factory=list)

    async def __call__(self, probe: HealthProbe) -> Health:
        self.asked.append(probe)
        missing = {} if self.error_rate is not None else {"error rate": "the query gives no value"}
        return Health(readings=Readings(error_rate=self.error_rate), missing=missing)


async def verified_at(harness: Harness, serve: ServeDouble, vitals: Vitals) -> None:
    """A target whose first plan, 2 B200, is in place and verified."""
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}), health=PROBE)
    await harness.round(harness.controller(health=vitals))
    memory = (await harness.status("chat")).memory
    assert memory is not None
    assert memory.verified_plan_id is not None


async def rounds(harness: Harness, vitals: Vitals, number: int) -> list[Phase]:
    """So many rounds, each of a new controller."""
    phases = []
    for _ in range(number):
        await harness.round(harness.controller(health=vitals))
        phases.append((await harness.status("chat")).phase)
    return phases


async def verified_plan_id(harness: Harness) -> str | None:
    memory = (await harness.status("chat")).memory
    return memory.verified_plan_id if memory is not None else None


async def test_without_a_probe_a_plan_in_place_is_verified(harness: Harness) -> None:
    plan_id = await harness.plan({"B200": 2})
    await harness.register("chat", app(B200=1), plan_id=plan_id)
    controller = harness.controller()
    await harness.round(controller)
    assert await verified_plan_id(harness) is None
    await harness.round(controller)
    assert await verified_plan_id(harness) == plan_id


async def test_what_the_target_itself_says_is_wrong_is_not_verified(harness: Harness) -> None:
    serve = app(B200=2)
    serve.status = "DEPLOY_FAILED"
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert (status.phase, await verified_plan_id(harness)) == (Phase.APPLIED, None)
    assert (status.message or "").endswith("; not verified")


async def test_a_good_change_is_verified_after_its_time(harness: Harness) -> None:
    serve, vitals = app(B200=2), Vitals()
    await verified_at(harness, serve, vitals)
    first = await verified_plan_id(harness)
    plan_id = await harness.plan({"B200": 3})
    await harness.change("chat", plan_id=plan_id)
    assert await rounds(harness, vitals, 2) == [Phase.APPLYING, Phase.APPLIED]
    assert await verified_plan_id(harness) == first
    assert (await harness.status("chat")).message == "health check at 12:00:20 UTC"
    await rounds(harness, vitals, 1)
    assert await verified_plan_id(harness) == plan_id
    asked = len(vitals.asked)
    await rounds(harness, vitals, 3)
    assert len(vitals.asked) == asked, "a verified plan is not judged again"


async def test_a_plan_that_does_harm_is_rolled_back_and_not_tried_again(harness: Harness) -> None:
    serve, vitals = app(B200=2), Vitals()
    await verified_at(harness, serve, vitals)
    first = await verified_plan_id(harness)
    await harness.change("chat", plan_id=await harness.plan({"B200": 3}))
    await rounds(harness, vitals, 1)
    vitals.error_rate = 0.2
    assert await rounds(harness, vitals, 4) == [
        Phase.APPLIED,  # too early to tell
        Phase.ROLLING_BACK,  # told
        Phase.ROLLING_BACK,  # asked for
        Phase.ROLLED_BACK,
    ]
    assert serve.writes == [("on-B200", 3), ("on-B200", 2)]
    status = await harness.status("chat")
    assert (status.plan_id, status.planned, status.applied) == (first, {"B200": 2}, {"B200": 2})
    assert "error rate is 0.2, beyond 0.05; before the change it was 0.01" in (status.message or "")
    assert set(await rounds(harness, vitals, 5)) == {Phase.ROLLED_BACK}
    assert len(serve.writes) == 2


async def test_it_is_rolled_back_halfway_too(harness: Harness) -> None:
    serve, vitals = app(B200=2, L4=4), Vitals()
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2, "L4": 4}), health=PROBE)
    await rounds(harness, vitals, 1)
    await harness.change("chat", plan_id=await harness.plan({"B200": 6}), max_step=1)
    await rounds(harness, vitals, 1)
    vitals.error_rate = 0.2
    await rounds(harness, vitals, 20)
    assert (await harness.status("chat")).phase is Phase.ROLLED_BACK
    assert serve.counts == {"on-B200": 2, "on-L4": 4}
    assert max(count for name, count in serve.writes if name == "on-B200") < 6


@pytest.mark.parametrize("how", ["changed", "approved"])
async def test_a_refused_plan_is_tried_again_when_somebody_says_so(harness: Harness, how: str) -> None:
    serve, vitals = app(B200=2), Vitals()
    await verified_at(harness, serve, vitals)
    plan_id = await harness.plan({"B200": 3})
    await harness.change("chat", plan_id=plan_id)
    await rounds(harness, vitals, 1)
    vitals.error_rate = 0.2
    await rounds(harness, vitals, 5)
    refused = await harness.status("chat")
    assert (refused.phase, [change.replicas_planned for change in refused.changes]) == (Phase.ROLLED_BACK, [3])
    vitals.error_rate = 0.01
    if how == "changed":
        await harness.change("chat", max_step=5)
    else:
        await harness.approve("chat")
    await rounds(harness, vitals, 5)
    assert (serve.counts, await verified_plan_id(harness)) == ({"on-B200": 3}, plan_id)


@pytest.mark.parametrize("during", ["before", "after"])
async def test_health_that_is_not_known_neither_undoes_nor_verifies(harness: Harness, during: str) -> None:
    serve, vitals = app(B200=2), Vitals()
    await verified_at(harness, serve, vitals)
    first = await verified_plan_id(harness)
    await harness.change("chat", plan_id=await harness.plan({"B200": 3}))
    if during == "before":
        vitals.error_rate = None
    await rounds(harness, vitals, 1)
    vitals.error_rate = None
    assert set(await rounds(harness, vitals, 6)) == {Phase.APPLIED}
    status = await harness.status("chat")
    assert status.message == "not verified: error rate is not known: the query gives no value"
    assert (serve.counts, await verified_plan_id(harness)) == ({"on-B200": 3}, first)


async def test_what_was_as_bad_before_is_not_the_changes_doing(harness: Harness) -> None:
    """More replicas are the cure of an overload, not its cause."""
    serve, vitals = app(B200=2), Vitals()
    await verified_at(harness, serve, vitals)
    vitals.error_rate = 0.3
    await harness.change("chat", plan_id=await harness.plan({"B200": 3}))
    assert set(await rounds(harness, vitals, 6)) == {Phase.APPLYING, Phase.APPLIED}
    assert serve.counts == {"on-B200": 3}
    vitals.error_rate = 0.01
    await rounds(harness, vitals, 1)
    assert (await harness.status("chat")).message is None


async def test_without_a_verified_plan_it_stops_where_it_is(harness: Harness) -> None:
    serve, vitals = app(B200=1, L4=1), Vitals()
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 9}), health=PROBE, max_step=1)
    await rounds(harness, vitals, 1)
    vitals.error_rate = 0.2
    await rounds(harness, vitals, 10)
    status = await harness.status("chat")
    assert status.phase is Phase.FAILED
    assert (status.message or "").endswith("no plan was verified before, so nothing more is changed")
    assert serve.counts["on-B200"] < 9


async def test_a_freeze_holds_a_rollback_too(harness: Harness) -> None:
    serve, vitals = app(B200=2), Vitals()
    await verified_at(harness, serve, vitals)
    await harness.change("chat", plan_id=await harness.plan({"B200": 3}))
    await rounds(harness, vitals, 1)
    vitals.error_rate = 0.2
    await rounds(harness, vitals, 2)
    await harness.freeze(frozen=True)
    assert await rounds(harness, vitals, 2) == [Phase.FROZEN] * 2
    assert serve.counts == {"on-B200": 3}
    await harness.freeze(frozen=False)
    assert (await rounds(harness, vitals, 2))[-1] is Phase.ROLLED_BACK


async def test_a_memory_that_could_not_be_read_is_not_wiped_out(harness: Harness) -> None:
    serve, vitals = app(B200=2), Vitals()
    await verified_at(harness, serve, vitals)
    first = await verified_plan_id(harness)

    async def refuse(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(500)

    serve.interruptions = [refuse] * 3
    await harness.round(harness.controller(health=vitals))
    assert ((await harness.status("chat")).phase, await verified_plan_id(harness)) == (Phase.FAILED, first)
