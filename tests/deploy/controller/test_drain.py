"""The controller drains replicas before it lowers a count: order, limits, freeze and reports."""

from typing import Any

import pytest

from api.schemas.applications import KubernetesScale
from api.schemas.targets import Mode, Phase, TargetStatus
from deploy.actuators.base import Drain, DrainState, Step, TargetSnapshot
from deploy.actuators.kubernetes_scale.actuator import kubernetes_scale_actuators
from deploy.actuators.registry import Actuators
from deploy.common.clock import Clock
from deploy.controller.controller import Controller
from deploy.controller.rollout import drained_first, stale_drains
from tests.deploy.actuators.scale_double import NAMESPACE, ScaleDouble
from tests.deploy.controller.harness import Harness
from tests.deploy.controller.test_dry_run import dry_run_by_target

GPU = "H100-SXM"
DOWN = Step(part=GPU, replicas_before=5, replicas_after=3)
BEGAN = "fleetwright.io/drain-began"


def observed(*, keep: int, marked: int, waits_for: str | None = None) -> TargetSnapshot:
    state = DrainState(keep=keep, marked=marked, waits_for=waits_for)
    return TargetSnapshot(requested={GPU: 5}, running={GPU: 5}, drains={GPU: state})


@pytest.mark.parametrize(
    ("observation", "steps", "drains"),
    [
        (TargetSnapshot(requested={GPU: 5}, running={GPU: 5}), (DOWN,), ()),
        (observed(keep=5, marked=0), (), (Drain(part=GPU, keep=3),)),
        (observed(keep=4, marked=1), (), (Drain(part=GPU, keep=3),)),
        (observed(keep=3, marked=2, waits_for="1 request"), (), ()),
        (observed(keep=3, marked=2), (DOWN,), ()),
        (observed(keep=2, marked=3), (DOWN,), ()),
        (observed(keep=1, marked=4), (DOWN,), (Drain(part=GPU, keep=2),)),
    ],
    ids=["no drain", "unmarked", "partly marked", "waits", "drained", "more marked", "marked beyond the plan"],
)
def test_a_decrease_waits_for_its_drain(
    observation: TargetSnapshot, steps: tuple[Step, ...], drains: tuple[Drain, ...]
) -> None:
    assert drained_first((DOWN,), wanted={GPU: 2}, observation=observation) == (steps, drains)


def test_an_increase_never_waits_and_removes_the_marks() -> None:
    up = Step(part=GPU, replicas_before=5, replicas_after=6)
    observation = observed(keep=3, marked=2, waits_for="1 request")
    assert drained_first((up,), wanted={GPU: 6}, observation=observation) == ((up,), (Drain(part=GPU, keep=6),))


def test_replicas_that_are_not_created_yet_are_no_stale_drain() -> None:
    assert stale_drains(wanted={GPU: 5}, observation=observed(keep=2, marked=0)) == ()


class Drained:
    """A target of five pods in a real service, and the controller that drives it."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.kube = harness, ScaleDouble()
        self.path = self.kube.add("deployments", 5)
        clock = Clock(now=harness.clock.now)
        make = kubernetes_scale_actuators(self.kube, self.kube.engines(), clock=clock)
        self.actuators = Actuators(kubernetes_scale=make)
        self.controller: Controller = harness.controller(actuators=self.actuators)

    async def register(self, planned: int, **spec: Any) -> None:
        described = {"namespace": NAMESPACE, "objects": {GPU: {"name": "chat"}}, "drain": {}}
        plan_id = await self.harness.plan({GPU: planned})
        application = KubernetesScale.model_validate(described)
        await self.harness.register_real("chat", application, plan_id=plan_id, **spec)

    async def round(self) -> TargetStatus:
        await self.harness.round(self.controller)
        self.kube.settle()
        return await self.harness.status("chat")

    @property
    def marked(self) -> int:
        return sum(BEGAN in pod["metadata"]["annotations"] for pod in self.kube.pods.values())


@pytest.mark.anyio
async def test_a_drain_is_reported_and_counts_no_change_until_the_count_is_written(harness: Harness) -> None:
    world = Drained(harness)
    world.kube.requests = dict.fromkeys(world.kube.pods, 2.0)
    await world.register(3, max_step_per_window=2, window_s=3600.0, max_step=2)
    for _ in range(2):
        await world.round()
    status = await world.round()
    assert status.phase is Phase.APPLYING
    assert "waits for 2 running requests on pod chat-" in (status.message or "")
    assert status.state is not None
    assert (status.state.spent, world.marked, world.kube.count(world.path)) == ((), 2, 5)
    assert harness.counted("fleetwright_controller_writes_total", target="chat", kind="drain") == 1
    world.kube.requests = {}
    await world.round()
    assert world.kube.count(world.path) == 3
    status = await world.round()
    assert (status.phase, status.applied) == (Phase.APPLIED, {GPU: 3})
    assert status.state is not None
    assert [entry.replicas for entry in status.state.spent] == [2]


@pytest.mark.anyio
async def test_a_dry_run_shows_the_drain_before_the_count_and_marks_nothing(harness: Harness) -> None:
    world = Drained(harness)
    await world.register(3)
    drain = (await dry_run_by_target(harness, world.actuators))["chat"]
    assert (drain.steps, drain.drains, world.marked) == ((), (Drain(part=GPU, keep=3),), 0)
    await world.round()
    harness.clock.advance(5.0)
    lower = (await dry_run_by_target(harness, world.actuators))["chat"]
    assert (lower.steps, lower.drains) == ((DOWN,), ())


@pytest.mark.anyio
async def test_a_new_controller_continues_a_drain_that_another_began(harness: Harness) -> None:
    world = Drained(harness)
    world.kube.requests = dict.fromkeys(world.kube.pods, 2.0)
    await world.register(3)
    await world.round()
    world.kube.requests = {}
    world.controller = harness.controller(actuators=world.actuators)
    await world.round()
    assert (world.kube.count(world.path), len(world.kube.annotated)) == (3, 2)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
async def test_no_pod_is_marked_below_mode_apply(harness: Harness, mode: Mode) -> None:
    world = Drained(harness)
    await world.register(3, mode=mode)
    status = await world.round()
    assert (status.applied, world.marked, world.kube.annotated) == ({GPU: 5}, 0, [])


@pytest.mark.anyio
async def test_no_pod_is_marked_while_the_freeze_is_on(harness: Harness) -> None:
    world = Drained(harness)
    await world.register(3)
    await harness.freeze(frozen=True, reason="launch")
    assert (await world.round()).phase is Phase.FROZEN
    assert world.kube.annotated == []
    await harness.freeze(frozen=False)
    await world.round()
    assert world.marked == 2


@pytest.mark.anyio
async def test_marks_of_a_plan_that_is_no_longer_wanted_are_removed(harness: Harness) -> None:
    world = Drained(harness)
    world.kube.requests = dict.fromkeys(world.kube.pods, 2.0)
    await world.register(3)
    await world.round()
    assert world.marked == 2
    await harness.change("chat", plan_id=await harness.plan({GPU: 5}))
    await world.round()
    assert (await world.round()).phase is Phase.APPLIED
    assert (world.marked, len(world.kube.pods)) == (0, 5)
