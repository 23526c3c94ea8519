"""Clock levels of a plan, told to Serve's deployments by the controller."""

from datetime import date
from typing import Any

import pytest

from api.schemas.targets import Mode, Phase, RayServeApplication
from deploy.clock_levels import ClockChange, changes_left, due
from deploy.errors import PlanUnusableError
from deploy.plans import planned_clocks
from deploy.twin.acts import ACTS, POOLS, WORKLOAD
from tests.deploy.house import House
from tests.deploy.serve_double import Deployment, ServeDouble

pytestmark = pytest.mark.anyio

H100 = "H100-SXM"
NIGHT, DAY, POWER_CUT = ACTS
UP = ClockChange(gpu="A", deployment="a", now=0.7, planned=1.0)
DOWN = ClockChange(gpu="B", deployment="b", now=1.0, planned=0.7)


def test_only_what_differs_is_left() -> None:
    deployments = {"A": "a", "B": "b", "C": "c"}
    left = changes_left({"A": 1.0, "B": 0.7}, deployments=deployments, told={"A": 0.7, "B": 0.7, "C": 0.3})
    assert left == (UP,)


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.APPLYING, (UP,)),
        (Phase.ROLLING_BACK, (UP,)),
        (Phase.APPLIED, (UP, DOWN)),
        (Phase.ROLLED_BACK, (UP, DOWN)),
        (Phase.FROZEN, ()),
        (Phase.FAILED, ()),
        (Phase.SETTLING, ()),
        (Phase.AWAITING_APPROVAL, ()),
    ],
)
def test_speed_is_given_at_any_time_and_taken_only_when_all_replicas_stand(
    phase: Phase, expected: tuple[ClockChange, ...]
) -> None:
    assert due((UP, DOWN), phase=phase) == expected


async def plan_id(house: House, act: object = POWER_CUT) -> str:
    request = next(each for each in ACTS if each is act).request(today=date(2026, 11, 21))
    return (await house.api.create_plan(request)).id


def serve_of(**counts: int) -> ServeDouble:
    return ServeDouble(
        {name: Deployment(asked=counts.get(gpu, 0), running=counts.get(gpu, 0)) for gpu, name in POOLS.items()},
    )


async def register(house: House, serve: ServeDouble, *, follow_clocks: bool = True, **spec: Any) -> None:
    house.targets["chat"] = serve
    described = {
        "dashboard_url": "http://chat:8265",
        "application": "chat",
        "deployments": POOLS,
        "follow_clocks": follow_clocks,
    }
    given = {"workload": WORKLOAD, "plan_id": await plan_id(house)} | spec
    await house.register_real("chat", RayServeApplication.model_validate(described), **given)


async def test_the_plans_clock_is_told_once_its_replicas_run_and_other_keys_stay(house: House) -> None:
    serve = serve_of(**{"A100-80GB-SXM": 1})
    serve.deployments["on-h100"].user_config = {"expert_map": {"version": 3}}
    await register(house, serve)
    controller, phases, clocks = house.controller(), [], []
    for _ in range(6):
        await house.round(controller)
        phases.append((await house.status("chat")).phase)
        clocks.append(serve.deployments["on-h100"].user_config.get("clock", 1.0))
    assert phases[-1] is Phase.APPLIED
    assert clocks[0] == 1.0, "the old replicas still stand: nothing is taken"
    assert serve.deployments["on-h100"].user_config == {"expert_map": {"version": 3}, "clock": 0.7}
    assert serve.counts == {"on-h100": 1, "on-a100": 0, "on-l4": 0}
    assert phases.index(Phase.APPLIED) > clocks.index(0.7), "applied only once it was read back"
    assert house.counted("fleetwright_controller_writes_total", target="chat", kind="clock") == 1


async def test_a_plan_at_full_clock_gives_the_speed_back(house: House) -> None:
    serve = serve_of(**{H100: 1})
    serve.deployments["on-h100"].user_config = {"clock": 0.7}
    await register(house, serve, plan_id=await plan_id(house, DAY))
    controller = house.controller()
    await house.round(controller)
    assert serve.deployments["on-h100"].user_config["clock"] == 1.0
    assert serve.deployments["on-h100"].asked == 1, "a count that was scaled stays"


@pytest.mark.parametrize(
    ("spec", "phase"),
    [
        ({"mode": Mode.OBSERVE}, Phase.OBSERVED),
        ({"mode": Mode.RECOMMEND}, Phase.RECOMMENDED),
        ({"require_approval": True}, Phase.RECOMMENDED),
        ({"follow_clocks": False}, Phase.APPLIED),
    ],
)
async def test_nothing_is_told_where_nothing_may_be_written(house: House, spec: dict[str, Any], phase: Phase) -> None:
    serve = serve_of(**{H100: 1})
    await register(house, serve, **spec)
    await house.round(house.controller())
    status = await house.status("chat")
    assert status.phase is phase
    assert ("clock of H100-SXM: 1, planned 0.7" in (status.message or "")) is (phase is not Phase.APPLIED)
    assert serve.deployments["on-h100"].user_config == {}


async def test_a_freeze_holds_clocks_too(house: House) -> None:
    serve = serve_of(**{H100: 1})
    await register(house, serve)
    await house.freeze(frozen=True)
    await house.round(house.controller())
    assert (await house.status("chat")).phase is Phase.FROZEN
    assert serve.deployments["on-h100"].user_config == {}


async def test_two_clocks_on_one_deployment_are_no_plan_for_it(house: House) -> None:
    serve = serve_of(**{H100: 1})
    await register(house, serve)
    record = await house.api.get_plan(await plan_id(house))
    spec = (await house.api.get_target("chat")).document.spec
    assert planned_clocks(record, spec) == {H100: 0.7}
    twice = (record.plan.allocation[0], record.plan.allocation[0].model_copy(update={"clock": 1.0}))
    doubled = record.model_copy(update={"plan": record.plan.model_copy(update={"allocation": twice})})
    with pytest.raises(PlanUnusableError, match=r"H100-SXM replicas at clocks 0\.7 and 1; a deployment's replicas"):
        planned_clocks(doubled, spec)


@pytest.mark.parametrize("phase", [Phase.ROLLING_BACK, Phase.ROLLED_BACK])
async def test_going_back_needs_no_fresh_plan(house: House, phase: Phase) -> None:
    serve = serve_of(**{H100: 1})
    serve.deployments["on-h100"].user_config = {"clock": 0.7}
    day = await plan_id(house, DAY)
    await register(house, serve, plan_id=day)
    house.clock.advance(8 * 86_400.0)
    controller = house.controller()
    await controller._leadership.renew()
    target = (await house.api.get_target("chat")).document
    clocks = controller._reconciler.clocks
    with pytest.raises(PlanUnusableError, match="days old"):
        await clocks.advance(target, day, phase=Phase.APPLIED, message=None, only_looks=False, may_write=True)
    await clocks.advance(target, day, phase=phase, message=None, only_looks=False, may_write=True)
    assert serve.deployments["on-h100"].user_config["clock"] == 1.0
