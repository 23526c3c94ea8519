"""Rate limits of the controller: windows, settling and approval, each across restarts."""

import pytest

from api.client import ConflictError
from api.schemas.targets import Mode, Phase
from tests.deploy.controller.harness import Harness, app

pytestmark = pytest.mark.anyio


async def test_the_window_limit_holds_across_controller_restarts(harness: Harness) -> None:
    """Each reconcile uses a new controller, so the used part of the window comes from the stored status."""
    serve = app(B200=0, L4=4)
    plan_id = await harness.plan({"B200": 4})
    await harness.register("chat", serve, plan_id=plan_id, max_step_per_window=3, window_s=20.0, max_step=2)
    requested = []
    for _ in range(16):
        before = sum(deployment.requested for deployment in serve.deployments.values())
        await harness.round(harness.controller())
        requested.append(abs(sum(deployment.requested for deployment in serve.deployments.values()) - before))
    assert all(sum(requested[first : first + 4]) <= 3 for first in range(len(requested))), requested
    assert serve.counts == {"on-B200": 4, "on-L4": 0}
    assert (await harness.status("chat")).phase is Phase.APPLIED


async def test_the_status_names_the_end_of_a_used_up_window(harness: Harness) -> None:
    serve = app(B200=0)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 4}), max_step_per_window=2, window_s=60.0)
    for _ in range(2):
        await harness.round(harness.controller())
    status = await harness.status("chat")
    assert (status.phase, serve.counts) == (Phase.APPLYING, {"on-B200": 2})
    assert status.message == "max_step_per_window is used up until 12:01:05 UTC"


async def test_a_failed_write_still_uses_up_the_window(harness: Harness) -> None:
    """The controller stores the use of the window before the write."""
    serve = app(B200=0)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}), max_step_per_window=2, window_s=60.0)
    serve.external_scaler_enabled = False
    serve.deployments["on-B200"].autoscaled = True
    await harness.round(harness.controller())
    assert (await harness.status("chat")).phase is Phase.FAILED
    serve.external_scaler_enabled = True
    await harness.round(harness.controller())
    assert (serve.writes, (await harness.status("chat")).phase) == ([], Phase.APPLYING)
    harness.clock.advance(60.0)
    await harness.round(harness.controller())
    assert serve.writes == [("on-B200", 2)]


async def test_a_plan_is_applied_once_it_has_settled(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}), settle_s=10.0)
    phases = []
    for _ in range(4):
        await harness.round(harness.controller())
        phases.append((await harness.status("chat")).phase)
    assert phases == [Phase.SETTLING, Phase.SETTLING, Phase.APPLYING, Phase.APPLIED]
    assert serve.writes == [("on-B200", 2)]


async def test_alternating_plans_are_never_applied(harness: Harness) -> None:
    serve = app(B200=2, L4=2)
    plans = [await harness.plan({"B200": 3, "L4": 1}), await harness.plan({"B200": 1, "L4": 3})]
    await harness.register("chat", serve, plan_id=plans[0], settle_s=10.0)
    for turn in range(12):
        await harness.change("chat", plan_id=plans[turn // 2 % 2])
        await harness.round(harness.controller())
    assert serve.writes == []
    assert (await harness.status("chat")).phase is Phase.SETTLING


async def test_a_transient_difference_is_not_corrected(harness: Harness) -> None:
    serve = app(B200=2)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}), settle_s=10.0)
    for turn in range(12):
        serve.deployments["on-B200"].requested = serve.deployments["on-B200"].running = 2 + turn % 2
        await harness.round(harness.controller())
    assert serve.writes == []


async def test_nothing_is_written_before_an_operator_approves_the_change_set(harness: Harness) -> None:
    serve = app(B200=1, L4=2)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 3}), require_approval=True, max_step=1)
    for _ in range(3):
        await harness.round(harness.controller())
    waiting = await harness.status("chat")
    assert (waiting.phase, serve.writes) == (Phase.AWAITING_APPROVAL, [])
    assert [(change.gpu, change.replicas_now, change.replicas_planned) for change in waiting.changes] == [
        ("B200", 1, 3),
        ("L4", 2, 0),
    ]
    assert await harness.approve("chat") == await harness.approve("chat"), "a second approval is the same approval"
    for _ in range(6):
        await harness.round(harness.controller())
    assert serve.counts == {"on-B200": 3, "on-L4": 0}
    assert (await harness.status("chat")).phase is Phase.APPLIED
    actions = [entry.action async for entry in harness.api.iter_audit()]
    assert actions.count("target.approved") == 1


async def test_an_approval_is_valid_for_one_rollout(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}), require_approval=True)
    await harness.round(harness.controller())
    await harness.approve("chat")
    for _ in range(2):
        await harness.round(harness.controller())
    serve.deployments["on-B200"].requested = 1
    serve.settle()
    for _ in range(2):
        await harness.round(harness.controller())
    assert serve.writes == [("on-B200", 2)]
    assert (await harness.status("chat")).phase is Phase.AWAITING_APPROVAL
    await harness.approve("chat")
    await harness.round(harness.controller())
    assert serve.writes == [("on-B200", 2)] * 2


async def test_a_changed_change_set_needs_a_new_approval(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}), require_approval=True)
    await harness.round(harness.controller())
    await harness.approve("chat")
    serve.deployments["on-B200"].requested = 4
    serve.settle()
    await harness.round(harness.controller())
    assert (serve.writes, (await harness.status("chat")).phase) == ([], Phase.AWAITING_APPROVAL)

    await harness.approve("chat")
    await harness.change("chat", plan_id=await harness.plan({"B200": 3}))
    await harness.round(harness.controller())
    assert (serve.writes, (await harness.status("chat")).phase) == ([], Phase.AWAITING_APPROVAL)


async def test_a_target_changed_during_its_rollout_needs_a_new_approval(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 4}), require_approval=True, max_step=1)
    await harness.round(harness.controller())
    await harness.approve("chat")
    await harness.round(harness.controller())
    await harness.change("chat", min_replicas=6)
    await harness.round(harness.controller())
    assert serve.writes == [("on-B200", 2)]
    assert (await harness.status("chat")).phase is Phase.AWAITING_APPROVAL


async def test_an_outdated_change_set_cannot_be_approved(harness: Harness) -> None:
    serve = app(B200=1)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 2}), require_approval=True)
    await harness.round(harness.controller())
    await harness.change("chat", plan_id=await harness.plan({"B200": 3}))
    with pytest.raises(ConflictError, match="another change set is ready"):
        await harness.approve("chat")


async def test_a_recommendation_has_a_digest_and_an_observed_target_has_none(harness: Harness) -> None:
    plan_id = await harness.plan({"B200": 2})
    await harness.register("observed", app(B200=1), plan_id=plan_id, mode=Mode.OBSERVE)
    await harness.register("recommended", app(B200=1), plan_id=plan_id, mode=Mode.RECOMMEND)
    await harness.round(harness.controller())
    assert (await harness.status("observed")).digest is None
    assert (await harness.status("recommended")).digest is not None


async def test_a_target_registered_again_has_no_approval(harness: Harness) -> None:
    serve, plan_id = app(B200=1), await harness.plan({"B200": 2})
    await harness.register("chat", serve, plan_id=plan_id, require_approval=True)
    await harness.round(harness.controller())
    await harness.approve("chat")
    await harness.api.delete_target("chat", if_match=(await harness.api.get_target("chat")).etag)
    await harness.register("chat", serve, plan_id=plan_id, require_approval=True)
    for _ in range(2):
        await harness.round(harness.controller())
    assert (serve.writes, (await harness.status("chat")).phase) == ([], Phase.AWAITING_APPROVAL)
