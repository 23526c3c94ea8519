"""The controller applies a plan in order, in steps, verifies each step by a read, and respects mode and freeze."""

import httpx
import pytest

from api.schemas.targets import Change, Mode, Phase
from deploy.controller.reconcile import ControllerSettings
from tests.deploy.controller.harness import Harness, app

pytestmark = pytest.mark.anyio


async def test_a_plan_is_applied_make_before_break(harness: Harness) -> None:
    serve = app(B200=1, L40S=1, L4=4)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 3, "L40S": 1}))
    controller = harness.controller()

    await harness.round(controller, settle=False)
    assert serve.writes == [("on-B200", 3)]
    first = await harness.status("chat")
    assert (first.phase, first.planned) == (Phase.APPLYING, {"B200": 3, "L40S": 1, "L4": 0})
    assert first.applied == {"B200": 1, "L40S": 1, "L4": 4}

    await harness.round(controller)
    assert serve.writes == [("on-B200", 3)], "no replica is removed while added ones are missing"
    waiting = await harness.status("chat")
    assert (waiting.phase, waiting.message) == (Phase.APPLYING, "waiting for 2 B200")

    await harness.round(controller)
    assert serve.writes == [("on-B200", 3), ("on-L4", 0)]
    assert (await harness.status("chat")).phase is Phase.APPLYING, "a requested count is not yet observed"

    await harness.round(controller)
    done = await harness.status("chat")
    assert (done.phase, done.applied, done.changes) == (Phase.APPLIED, {"B200": 3, "L40S": 1, "L4": 0}, ())
    assert len(serve.writes) == 2


async def test_no_writes_follow_once_the_plan_is_applied(harness: Harness) -> None:
    serve = app(B200=2, L4=0)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))
    controller = harness.controller()
    for _ in range(5):
        assert await harness.round(controller)
    assert (await harness.status("chat")).phase is Phase.APPLIED
    assert serve.writes == []


async def test_every_reconcile_updates_observed_at(harness: Harness) -> None:
    await harness.register("chat", app(B200=1))
    controller = harness.controller()
    observed_at = []
    for _ in range(3):
        await harness.round(controller)
        observed_at.append((await harness.status("chat")).observed_at)
    assert [(later - observed_at[0]).total_seconds() for later in observed_at] == [0, 5, 10]


async def test_counts_changed_by_others_are_set_back_to_the_plan(harness: Harness) -> None:
    """A redeployment resets Serve's counts to those of its config."""
    serve = app(B200=2, L4=0)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))
    controller = harness.controller()
    await harness.round(controller)
    serve.deployments["on-B200"].requested = serve.deployments["on-L4"].requested = 1
    serve.settle()
    for _ in range(4):
        await harness.round(controller)
    assert serve.counts == {"on-B200": 2, "on-L4": 0}
    assert (await harness.status("chat")).phase is Phase.APPLIED


async def test_at_most_max_step_replicas_change_in_one_reconcile(harness: Harness) -> None:
    serve = app(B200=0, L4=5)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 5}), max_step=2)
    controller = harness.controller()
    per_reconcile = []
    for _ in range(8):
        before = {name: deployment.requested for name, deployment in serve.deployments.items()}
        await harness.round(controller)
        per_reconcile.append(sum(abs(serve.deployments[name].requested - count) for name, count in before.items()))
    assert per_reconcile == [2, 2, 1, 2, 2, 1, 0, 0]
    assert serve.counts == {"on-B200": 5, "on-L4": 0}


async def test_min_replicas_are_kept_against_the_plan(harness: Harness) -> None:
    serve = app(B200=0, L4=4)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 1}), min_replicas=3)
    controller = harness.controller()
    for _ in range(4):
        await harness.round(controller)
    assert serve.counts == {"on-B200": 1, "on-L4": 2}
    status = await harness.status("chat")
    assert (status.phase, status.planned) == (Phase.APPLIED, {"B200": 1, "L4": 0})
    assert status.message == "the plan has 1 in all; min_replicas keeps 3"


async def test_a_target_without_a_plan_is_only_observed(harness: Harness) -> None:
    serve = app(B200=2, L4=1)
    await harness.register("chat", serve)
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert (status.phase, status.applied, status.planned) == (Phase.OBSERVED, {"B200": 2, "L4": 1}, {})
    assert serve.writes == []


async def test_mode_observe_reports_planned_and_applied_counts_and_writes_nothing(harness: Harness) -> None:
    serve = app(B200=1, L4=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 3}), mode=Mode.OBSERVE)
    controller = harness.controller()
    for _ in range(3):
        await harness.round(controller)
    status = await harness.status("chat")
    assert (status.phase, status.planned, status.changes) == (Phase.OBSERVED, {"B200": 3, "L4": 0}, ())
    assert {request.method for request in serve.requests} == {"GET"}
    assert harness.counted("fleetwright_controller_writes_total", target="chat", kind="scale") == 0


async def test_an_observe_only_controller_overrides_mode_apply(harness: Harness) -> None:
    serve = app(B200=1, L4=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 3}), mode=Mode.APPLY)
    await harness.round(harness.controller(settings=ControllerSettings(observe_only=True)))
    status = await harness.status("chat")
    assert (status.phase, status.planned, status.changes) == (Phase.OBSERVED, {"B200": 3, "L4": 0}, ())
    assert serve.writes == []


async def test_mode_recommend_reports_the_change_set_and_writes_nothing(harness: Harness) -> None:
    serve = app(B200=1, L40S=2, L4=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 3, "L40S": 2}), mode=Mode.RECOMMEND)
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert status.phase is Phase.RECOMMENDED
    assert status.changes == (
        Change(gpu="B200", deployment="on-B200", replicas_now=1, replicas_planned=3),
        Change(gpu="L4", deployment="on-L4", replicas_now=1, replicas_planned=0),
    )
    assert {request.method for request in serve.requests} == {"GET"}


async def test_mode_recommend_without_changes_is_observed(harness: Harness) -> None:
    await harness.register("chat", app(B200=3), plan_id=await harness.plan({"B200": 3}), mode=Mode.RECOMMEND)
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert (status.phase, status.changes) == (Phase.OBSERVED, ())


async def test_a_freeze_blocks_changes_until_it_is_lifted(harness: Harness) -> None:
    serve = app(B200=1, L4=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))
    await harness.freeze(frozen=True, reason="audit until Monday")
    controller = harness.controller()
    for _ in range(3):
        await harness.round(controller)
    held = await harness.status("chat")
    assert (held.phase, held.message, len(held.changes)) == (Phase.FROZEN, "audit until Monday", 2)
    assert serve.writes == []
    await harness.freeze(frozen=False)
    for _ in range(4):
        await harness.round(controller)
    assert serve.counts == {"on-B200": 2, "on-L4": 0}


async def test_a_freeze_between_two_steps_blocks_the_second(harness: Harness) -> None:
    serve = app(B200=1, L4=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))
    controller = harness.controller()
    await harness.round(controller)
    await harness.freeze(frozen=True)
    for _ in range(3):
        await harness.round(controller)
    assert serve.counts == {"on-B200": 2, "on-L4": 1}
    assert (await harness.status("chat")).phase is Phase.FROZEN


async def test_a_frozen_target_without_changes_is_applied(harness: Harness) -> None:
    await harness.register("chat", app(B200=2), plan_id=await harness.plan({"B200": 2}))
    await harness.freeze(frozen=True)
    await harness.round(harness.controller())
    assert (await harness.status("chat")).phase is Phase.APPLIED


async def test_a_freeze_set_while_a_target_is_read_blocks_the_write(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))

    async def freeze_meanwhile(_request: httpx.Request) -> None:
        await harness.freeze(frozen=True)

    serve.interruptions = [freeze_meanwhile]
    await harness.round(harness.controller())
    assert serve.writes == []
    assert (await harness.status("chat")).phase is Phase.FROZEN


async def test_a_target_switched_to_observe_while_it_is_read_is_not_written(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}))

    async def switch_meanwhile(_request: httpx.Request) -> None:
        await harness.change("chat", mode=Mode.OBSERVE)

    serve.interruptions = [switch_meanwhile]
    controller = harness.controller()
    await harness.round(controller)
    assert "changed meanwhile" in ((await harness.status("chat")).message or "")
    await harness.round(controller)
    assert (await harness.status("chat")).phase is Phase.OBSERVED
    assert serve.writes == []


async def test_a_target_switched_to_observe_between_two_writes_gets_no_second_write(harness: Harness) -> None:
    serve = app(B200=0, L4=0)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 1, "L4": 1}))

    async def let_through(_request: httpx.Request) -> None:
        """Let the read pass."""

    async def switch_meanwhile(_request: httpx.Request) -> None:
        await harness.change("chat", mode=Mode.OBSERVE)

    serve.interruptions = [let_through, switch_meanwhile]
    await harness.round(harness.controller())
    assert serve.writes == [("on-B200", 1)]
    assert "nothing more was written" in ((await harness.status("chat")).message or "")


async def test_an_infeasible_plan_is_never_applied(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}, missing=10))
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert status.phase is Phase.FAILED
    assert "is infeasible" in (status.message or "")
    assert status.applied == {"B200": 1}
    assert serve.writes == []


async def test_gpus_without_a_deployment_are_reported_and_nothing_is_applied(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2, "L40S": 1, "L4": 3}))
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert status.phase is Phase.FAILED
    assert "uses L4, L40S, for which the target names no deployment; it has: B200" in (status.message or "")
    assert serve.writes == []


async def test_a_plan_for_other_workloads_is_not_applied(harness: Harness) -> None:
    """A plan without the workload must not scale the application to zero."""
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}, workload="search"))
    await harness.round(harness.controller())
    status = await harness.status("chat")
    assert status.phase is Phase.FAILED
    assert "has no workload 'chat'; it has: search" in (status.message or "")
    assert serve.writes == []


@pytest.mark.parametrize("mode", [Mode.RECOMMEND, Mode.APPLY])
async def test_an_expired_plan_is_not_applied(harness: Harness, mode: Mode) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}), mode=mode)
    harness.clock.advance(3 * 86_400.0)
    await harness.round(harness.controller(settings=ControllerSettings(plan_max_age_s=2 * 86_400.0)))
    status = await harness.status("chat")
    assert status.phase is Phase.FAILED
    assert "is 3.0 days old; allowed: at most 2 days" in (status.message or "")
    assert serve.writes == []


async def test_an_applied_plan_does_not_expire(harness: Harness) -> None:
    await harness.register("chat", app(B200=2), plan_id=await harness.plan({"B200": 2}))
    harness.clock.advance(30 * 86_400.0)
    await harness.round(harness.controller())
    assert (await harness.status("chat")).phase is Phase.APPLIED


async def test_a_new_plan_replaces_a_partly_applied_one(harness: Harness) -> None:
    """The B200 replicas of the first plan never start; the second plan continues from the current counts."""
    serve = app(B200=1, L4=3)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 4}))
    controller = harness.controller()
    await harness.round(controller, settle=False)
    await harness.change("chat", plan_id=await harness.plan({"B200": 1, "L4": 3}))
    await harness.round(controller)
    assert serve.writes == [("on-B200", 4), ("on-B200", 1)]
    await harness.round(controller)
    assert (await harness.status("chat")).phase is Phase.APPLIED


async def test_reconciles_and_writes_are_counted(harness: Harness) -> None:
    await harness.register("chat", app(B200=1, L4=1), plan_id=await harness.plan({"B200": 2}))
    controller = harness.controller()
    for _ in range(3):
        await harness.round(controller)
    assert harness.counted("fleetwright_controller_reconciles_total", outcome="ok") == 3
    assert harness.counted("fleetwright_controller_reconciles_total", outcome="failed") == 0
    assert harness.counted("fleetwright_controller_reconcile_duration_seconds_count") == 3
    assert harness.counted("fleetwright_controller_writes_total", target="chat", kind="scale") == 2
