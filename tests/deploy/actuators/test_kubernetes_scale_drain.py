"""Draining before a stop: which replicas are marked, what the count waits for, and controllers that die in between."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.schemas.applications import KubernetesScale
from deploy.actuators.base import Change, Drain, TargetSnapshot
from deploy.actuators.kubernetes_scale.actuator import KubernetesScaleActuator
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError, UnreachableError
from deploy.controller.rollout import drained_first, plan_changes, verify
from tests.deploy.actuators.scale_double import COST, HPAS, NAMESPACE, ScaleDouble, unready
from tests.deploy.actuators.test_kubernetes_scale import KINDS, reference

pytestmark = pytest.mark.anyio

BEGAN = "fleetwright.io/drain-began"
START = datetime(2026, 11, 2, tzinfo=UTC)
MAX_WAIT_S = 300.0


class Killed(BaseException):
    """The controller's process ends here."""


@dataclass
class World:
    """A drained target, and a controller without memory."""

    resource: str = "deployments"
    kube: ScaleDouble = field(default_factory=ScaleDouble)
    now: datetime = START

    @property
    def driver(self) -> KubernetesScaleActuator:
        described = {
            "namespace": NAMESPACE,
            "objects": {"H100": {"name": "chat"} | KINDS[self.resource]},
            "drain": {"metrics_port": 8000, "max_wait_s": MAX_WAIT_S},
        }
        application = KubernetesScale.model_validate(described)
        return KubernetesScaleActuator(self.kube, self.kube.engines(), application, Clock(now=lambda: self.now))

    @property
    def marked(self) -> list[str]:
        return sorted(name for name, pod in self.kube.pods.items() if BEGAN in pod["metadata"]["annotations"])

    async def round(self, wanted: int, *, max_step: int = 9) -> TargetSnapshot:
        """Reconcile once; the object's controller follows."""
        self.now += timedelta(seconds=5)
        observation = await self.driver.observe()
        steps = plan_changes(wanted={"H100": wanted}, observation=observation, max_step=max_step)
        steps, drains = drained_first(steps, wanted={"H100": wanted}, observation=observation)
        changes: list[Change] = [step for step in steps if step.is_increase]
        changes += [*drains, *(step for step in steps if not step.is_increase)]
        for change in changes:
            await self.driver.apply(change)
        self.kube.settle()
        return observation

    def pods(self) -> list[str]:
        return sorted(self.kube.pods)


def deployed(replicas: int, *, resource: str = "deployments", **requests: float) -> World:
    """A world of `replicas` pods `chat-00001`, ..., in which the pods of this ordinal have requests."""
    world = World(resource=resource)
    world.kube.add(resource, replicas)
    names = world.pods()
    world.kube.requests = {names[int(at.removeprefix("pod"))]: count for at, count in requests.items()}
    return world


async def test_a_deployment_gives_up_the_pods_with_the_fewest_requests() -> None:
    world = deployed(4, pod0=9, pod1=2, pod2=5, pod3=0)
    names = world.pods()
    await world.round(2)
    assert world.marked == [names[1], names[3]]
    assert {world.kube.pods[name]["metadata"]["annotations"][COST] for name in world.marked} == {"-2147483648"}
    assert world.kube.count("/apis/apps/v1/namespaces/ml/deployments/chat") == 4, "pod 1 still runs requests"
    waiting = await world.round(2)
    assert waiting.drains["H100"].waits_for == (
        f"waits for 2 running requests on pod {names[1]}, until 00:05:05 UTC at most"
    )
    assert waiting.warning == waiting.drains["H100"].waits_for
    assert waiting.note is None
    world.kube.requests[names[1]] = 0
    await world.round(2)
    assert world.pods() == [names[0], names[2]]


@pytest.mark.parametrize("resource", ["statefulsets", "leaderworkersets"])
async def test_a_set_drains_its_highest_ordinals_whatever_their_load(resource: str) -> None:
    world = deployed(12, resource=resource)
    world.kube.requests = {"chat-11": 3}
    await world.round(10)
    assert world.marked == ["chat-10", "chat-11"], "by number, not by text"
    assert all(COST not in pod["metadata"]["annotations"] for pod in world.kube.pods.values())
    for _ in range(3):
        await world.round(10)
    assert len(world.kube.pods) == 12
    world.kube.requests = {}
    await world.round(10)
    assert len(world.kube.pods) == 10
    assert verify(wanted={"H100": 10}, observation=await world.round(10))


async def test_a_set_with_a_missing_pod_drains_the_ordinals_that_stop() -> None:
    world = deployed(4, resource="statefulsets")
    world.kube.requests = {"chat-3": 2}
    del world.kube.pods["chat-1"]
    await world.driver.apply(Drain(part="H100", keep=3))
    assert world.marked == ["chat-3"]
    assert (await world.driver.observe()).drains["H100"].keep == 3
    await world.driver.apply(Drain(part="H100", keep=4))
    assert world.marked == []


async def test_ordinals_are_counted_from_the_first_of_the_set() -> None:
    world = deployed(4, resource="statefulsets")
    path = "/apis/apps/v1/namespaces/ml/statefulsets/chat"
    world.kube.objects[path]["spec"]["ordinals"] = {"start": 2}
    del world.kube.pods["chat-0"], world.kube.pods["chat-1"]
    assert (await world.driver.observe()).drains["H100"].keep == 2
    await world.driver.apply(Drain(part="H100", keep=1))
    assert world.marked == ["chat-3"]


async def test_an_evicted_pod_is_no_replica_that_could_stop() -> None:
    world = deployed(3, pod0=1, pod1=2, pod2=3)
    evicted, idlest, _ = world.pods()
    world.kube.pods[evicted]["status"]["phase"] = "Failed"
    unready(world.kube.pods[evicted])
    assert (await world.driver.observe()).running == {"H100": 2}
    await world.driver.apply(Drain(part="H100", keep=1))
    assert world.marked == [idlest]


@pytest.mark.parametrize("resource", KINDS)
async def test_a_repeated_drain_writes_nothing(resource: str) -> None:
    world = deployed(3, resource=resource, pod0=1, pod1=1, pod2=1)
    for _ in range(2):
        await world.driver.apply(Drain(part="H100", keep=1))
    assert len(world.kube.annotated) == len(world.marked) == 2


async def test_the_leader_of_a_group_is_marked_and_read() -> None:
    world = World(resource="leaderworkersets")
    world.kube.add("leaderworkersets", 2, size=3)
    world.kube.requests = {"chat-1": 1, "chat-1-2": 7}
    await world.round(1)
    waiting = await world.round(1)
    assert world.marked == ["chat-1"]
    assert "1 running request on pod chat-1," in (waiting.warning or "")
    world.kube.requests = {"chat-1-2": 7}
    await world.round(1)
    assert world.pods() == ["chat-0", "chat-0-1", "chat-0-2"]


async def test_the_wait_ends_after_max_wait_s_and_the_report_names_the_pod() -> None:
    world = deployed(2, pod0=4, pod1=4)
    await world.round(1)
    (stopping,) = world.marked
    world.now += timedelta(seconds=MAX_WAIT_S - 5.1)
    assert (await world.round(1)).drains["H100"].waits_for is not None
    late = await world.round(1)
    assert late.warning == f"max_wait_s of 300 s is over with 4 running requests on pod {stopping}"
    assert len(world.kube.pods) == 1


async def test_an_idle_replica_stops_only_after_routers_had_the_time_to_read_its_mark() -> None:
    world = deployed(2)
    await world.round(1)
    world.now -= timedelta(seconds=4)
    early = await world.round(1)
    assert early.drains["H100"].waits_for == (
        f"waits for routers to stop sending to pod {world.marked[0]}, until 00:05:05 UTC at most"
    )
    assert len(world.kube.pods) == 2
    await world.round(1)
    assert len(world.kube.pods) == 1


async def test_an_engine_that_does_not_report_is_never_taken_for_idle() -> None:
    world = deployed(2, pod0=1, pod1=1)
    world.kube.silent = set(world.pods())
    await world.round(1)
    waiting = await world.round(1)
    assert f"an unknown number of requests on pod {world.marked[0]} (no response)" in (waiting.warning or "")
    assert len(world.kube.pods) == 2
    world.now += timedelta(seconds=MAX_WAIT_S)
    await world.round(1)
    assert len(world.kube.pods) == 1


async def test_pods_that_are_not_ready_stop_first_as_a_replica_set_stops_them() -> None:
    world = deployed(3, pod2=0)
    broken = world.pods()[0]
    world.kube.requests = dict.fromkeys(world.pods()[:2], 5.0)
    unready(world.kube.pods[broken])
    await world.driver.apply(Drain(part="H100", keep=2))
    assert world.marked == [broken]


async def test_a_plan_that_rises_again_removes_the_marks_and_restores_the_deletion_costs() -> None:
    world = deployed(3, pod0=9, pod1=9, pod2=1)
    for pod in world.kube.pods.values():
        pod["metadata"]["annotations"][COST] = "7"
    before = {name: dict(pod["metadata"]["annotations"]) for name, pod in world.kube.pods.items()}
    await world.round(2)
    assert world.marked == [world.pods()[2]]
    await world.round(3)
    assert {name: pod["metadata"]["annotations"] for name, pod in world.kube.pods.items()} == before
    assert len(world.kube.pods) == 3


async def test_a_drain_for_fewer_replicas_grows_without_a_new_start() -> None:
    world = deployed(4, pod0=1, pod1=2, pod2=3, pod3=4)
    await world.round(3)
    (first,) = world.marked
    began = world.kube.pods[first]["metadata"]["annotations"][BEGAN]
    await world.round(1)
    assert len(world.marked) == 3
    assert world.kube.pods[first]["metadata"]["annotations"][BEGAN] == began


async def test_a_mark_below_an_unmarked_ordinal_starts_again_when_its_turn_comes() -> None:
    world = deployed(4, resource="statefulsets")
    world.kube.pods["chat-2"]["metadata"]["annotations"][BEGAN] = "2026-11-01T00:00:00+00:00"
    world.kube.requests = {"chat-2": 1, "chat-3": 0}
    await world.round(2)
    assert world.kube.pods["chat-2"]["metadata"]["annotations"][BEGAN] == "2026-11-02T00:00:05+00:00"
    await world.round(2)
    assert len(world.kube.pods) == 4, "the drain of chat-2 has just begun"


async def test_a_controller_killed_between_two_marks_is_continued_by_the_next() -> None:
    world = deployed(4, pod0=1, pod1=1, pod2=1, pod3=1)

    def kill() -> None:
        if world.kube.annotated:
            raise Killed

    world.kube.before_annotate = kill
    with pytest.raises(Killed):
        await world.round(2)
    assert len(world.marked) == 1
    (first,) = world.marked
    world.kube.before_annotate = lambda: None
    await world.round(2)
    assert (len(world.marked), first in world.marked) == (2, True)
    assert len(world.kube.annotated) == 2, "no pod is marked twice"


async def test_a_controller_killed_between_the_marks_and_the_count_is_continued_by_the_next() -> None:
    world = deployed(3)
    await world.driver.apply(Drain(part="H100", keep=2))
    stopping = world.marked

    def kill() -> None:
        raise Killed

    world.kube.before_scale = kill
    with pytest.raises(Killed):
        await world.round(2)
    world.kube.before_scale = lambda: None
    await world.round(2)
    assert len(world.kube.annotated) == 1
    assert set(stopping).isdisjoint(world.kube.pods)
    assert len(world.kube.scaled) == 1


async def test_a_pod_replaced_under_its_name_gets_no_mark() -> None:
    world = deployed(2, resource="statefulsets")

    def replace() -> None:
        for pod in world.kube.pods.values():
            pod["metadata"]["uid"] += "-new"

    world.kube.before_annotate = replace
    await world.round(1)
    assert world.marked == []


async def test_an_owned_count_leaves_the_pods_unmarked() -> None:
    world = deployed(2)
    world.kube.lists[HPAS] = reference("Deployment")
    with pytest.raises(ActuationError, match="HorizontalPodAutoscaler auto"):
        await world.round(1)
    assert world.marked == []


async def test_a_deployment_that_is_being_updated_is_not_drained_yet() -> None:
    world = deployed(2)
    _own(world.kube.pods[world.pods()[0]], "ReplicaSet", "chat-2")
    with pytest.raises(UnreachableError, match="Deployment ml/chat is being updated"):
        await world.round(1)


async def test_pods_of_two_sets_have_no_common_order() -> None:
    world = deployed(2, resource="statefulsets")
    _own(world.kube.pods["chat-1"], "StatefulSet", "other")
    assert (await world.driver.observe()).drains["H100"].keep == 2
    with pytest.raises(ActuationError, match="its pods belong to StatefulSet chat-1, StatefulSet other; remove"):
        await world.round(1)


async def test_pods_of_a_controller_with_unknown_order_are_not_drained() -> None:
    world = deployed(2)
    for pod in world.kube.pods.values():
        _own(pod, "PodClique", "chat")
    with pytest.raises(ActuationError, match=r"its pods belong to PodClique chat; remove `drain` from the target"):
        await world.round(1)


def _own(pod: dict[str, Any], kind: str, name: str) -> None:
    pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "controller": True}]


@given(
    resource=st.sampled_from(["deployments", "statefulsets"]),
    replicas=st.integers(1, 5),
    plans=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    max_step=st.integers(1, 3),
    kills=st.sets(st.integers(0, 20), max_size=4),
    load=st.lists(st.integers(0, 3), min_size=40, max_size=40),
)
@settings(max_examples=60, deadline=None)
async def test_no_request_is_lost_before_max_wait_s_and_each_plan_is_reached(
    *, resource: str, replicas: int, plans: list[int], max_step: int, kills: set[int], load: list[int]
) -> None:
    """Requests end round by round on marked pods only, so a pod that stops with requests stopped too early."""
    world, writes = deployed(replicas, resource=resource), 0

    def count_write() -> None:
        nonlocal writes
        writes += 1
        if writes in kills:
            raise Killed

    world.kube.before_scale = count_write
    world.kube.before_annotate = count_write
    amounts = iter(load)
    for wanted in plans:
        for _ in range(40):
            for name in world.kube.pods.keys() - world.kube.requests.keys():
                world.kube.requests[name] = float(next(amounts, 1))
            before = dict(world.kube.pods)
            try:
                observation = await world.round(wanted, max_step=max_step)
            except Killed:
                world.kube.settle()
                continue
            assert all(world.kube.requests[name] == 0 for name in before.keys() - world.kube.pods.keys())
            for name in before.keys() - world.kube.pods.keys():
                del world.kube.requests[name]
            for name in world.marked:
                world.kube.requests[name] = max(0.0, world.kube.requests[name] - 1)
            if verify(wanted={"H100": wanted}, observation=observation) and not world.marked:
                break
        else:
            pytest.fail(f"{wanted} not reached: {len(world.kube.pods)} pods, marked {world.marked}")
