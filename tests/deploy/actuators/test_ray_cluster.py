"""The worker group actuator: observed counts, patches, and fields of other managers."""

import copy
from typing import Any

import pytest

from api.schemas.applications import RayClusterGroups
from deploy.actuators.base import Step
from deploy.actuators.ray_cluster.actuator import RayClusterActuator
from deploy.common.errors import ActuationError, PlanUnusableError
from deploy.common.kubernetes_client import RefusedError
from deploy.controller.rollout import plan_changes, verify
from tests.deploy.actuators.kube_double import CLUSTER, NAMESPACE, KubeDouble, group, managed, pod

pytestmark = pytest.mark.anyio

UP = Step(part="H100", replicas_before=2, replicas_after=4)
DOWN = Step(part="H100", replicas_before=4, replicas_after=2)


def actuator(kube: KubeDouble, *, cluster: str = CLUSTER, **groups: str) -> RayClusterActuator:
    described = {"namespace": NAMESPACE, "cluster": cluster, "groups": groups or {"H100": "h100"}}
    return RayClusterActuator(kube, RayClusterGroups.model_validate(described))


async def test_observes_requested_and_ready_replicas_by_gpu() -> None:
    kube = KubeDouble.of(group("cpu", 3), group("h100", 4), group("l4", 0))
    kube.pods = [
        pod("a", "h100"),
        pod("b", "h100", ready=False),
        pod("c", "h100", deletionTimestamp="2026-11-02T00:00:00Z"),
        pod("d", "cpu"),
    ]
    observation = await actuator(kube, H100="h100", L4="l4").observe()
    assert observation.requested == {"H100": 4, "L4": 0}
    assert observation.running == {"H100": 1, "L4": 0}, "neither unready nor terminating workers are capacity"
    assert observation.note is None


async def test_requested_counts_are_clamped_to_the_group_bounds_as_in_kuberay() -> None:
    kube = KubeDouble.of(group("h100", 9, maxReplicas=6), group("l4", 1, minReplicas=2))
    observation = await actuator(kube, H100="h100", L4="l4").observe()
    assert observation.requested == observation.running == {"H100": 6, "L4": 2}


async def test_a_multi_host_replica_runs_only_when_all_its_hosts_are_ready() -> None:
    kube = KubeDouble.of(group("h100", 0, numOfHosts=2))
    hosts = [("r1", True), ("r1", True), ("r2", True), ("r2", False), ("r3", True)]
    kube.pods = [
        pod(f"{replica}-{index}", "h100", ready=ready, labels={"ray.io/worker-group-replica-name": replica})
        for index, (replica, ready) in enumerate(hosts)
    ]
    assert (await actuator(kube).observe()).running == {"H100": 1}


async def test_apply_changes_only_the_replica_count() -> None:
    kube = KubeDouble.of(group("cpu", 1), group("h100", 2))
    wanted = copy.deepcopy(kube.cluster["spec"])
    wanted["workerGroupSpecs"][1]["replicas"] = 4
    await actuator(kube).apply(UP)
    assert kube.cluster["spec"] == wanted


async def test_applying_a_step_twice_patches_once() -> None:
    kube = KubeDouble.of(group("h100", 2))
    for _ in range(2):
        await actuator(kube).apply(UP)
    assert len(kube.patches) == 1


async def test_apply_fails_when_the_count_has_changed_since_it_was_read() -> None:
    kube = KubeDouble.of(group("h100", 3), managers=[managed("kubectl-edit")])
    with pytest.raises(ActuationError, match=r"'h100' of RayCluster ml/llm changed .* last written by kubectl-edit"):
        await actuator(kube).apply(UP)
    assert kube.patches == []


@pytest.mark.parametrize("change", ["count", "order"])
async def test_a_concurrent_change_wins_and_the_error_names_its_manager(change: str) -> None:
    kube = KubeDouble.of(group("h100", 2), group("l4", 2))

    def change_concurrently() -> None:
        groups = kube.cluster["spec"]["workerGroupSpecs"]
        if change == "count":
            groups[0]["replicas"] = 7
        else:
            groups.reverse()
        kube.cluster["metadata"]["managedFields"].append(managed("kubectl-edit", at="2026-11-03T00:00:00Z"))

    kube.before_patch = change_concurrently
    with pytest.raises(ActuationError, match=r"last written by kubectl-edit: .*testing value .* failed"):
        await actuator(kube).apply(UP)
    assert kube.patches == []


async def test_worker_groups_applied_by_another_manager_are_not_patched() -> None:
    kube = KubeDouble.of(group("h100", 2), managers=[managed("argocd-controller", "Apply"), managed("fleetwright")])
    driver = actuator(kube)
    assert (await driver.observe()).note == "spec.workerGroupSpecs is applied by argocd-controller, which keeps it"
    with pytest.raises(ActuationError, match=r"spec.workerGroupSpecs of RayCluster ml/llm is applied by argocd-contr"):
        await driver.apply(UP)
    assert kube.patches == []


async def test_managers_that_apply_other_fields_do_not_block_the_patch() -> None:
    other = managed("labeller", "Apply") | {"fieldsV1": {"f:metadata": {"f:labels": {}}}}
    status = managed("kuberay-operator", "Apply") | {"subresource": "status"}
    kube = KubeDouble.of(group("h100", 2), managers=[other, status])
    await actuator(kube).apply(UP)
    assert kube.groups["h100"]["replicas"] == 4


@pytest.mark.parametrize("count", [1, 9])
async def test_a_plan_outside_the_group_bounds_is_refused_as_a_whole(count: int) -> None:
    kube = KubeDouble.of(group("h100", 4, minReplicas=2, maxReplicas=8), group("l4", 1))
    driver = actuator(kube, H100="h100", L4="l4")
    observation = await driver.observe()
    expected = rf"the plan has {count} H100: spec.workerGroupSpecs\[h100\].replicas of .* allows 2 to 8"
    with pytest.raises(PlanUnusableError, match=expected):
        plan_changes(wanted={"H100": count, "L4": 4}, observation=observation, max_step=100)


async def test_with_the_autoscaler_on_only_min_and_max_replicas_are_set() -> None:
    kube = KubeDouble.of(group("h100", 3, minReplicas=1, maxReplicas=5), enableInTreeAutoscaling=True)
    driver = actuator(kube)
    observation = await driver.observe()
    (step,) = plan_changes(wanted={"H100": 6}, observation=observation, max_step=100)
    await driver.apply(step)
    assert kube.groups["h100"] == group("h100", 3, minReplicas=6, maxReplicas=6)
    kube.settle()
    assert verify(wanted={"H100": 6}, observation=await driver.observe())


async def test_with_the_autoscaler_on_no_workers_to_delete_are_named() -> None:
    kube = KubeDouble.of(group("h100", 4), enableInTreeAutoscaling=True)
    await actuator(kube).apply(DOWN)
    assert kube.groups["h100"] == group("h100", 4, minReplicas=2, maxReplicas=2)


async def test_workers_to_delete_are_ordered_by_readiness_deletion_cost_and_age() -> None:
    cheap = {"controller.kubernetes.io/pod-deletion-cost": "-5"}
    kube = KubeDouble.of(group("h100", 5))
    kube.pods = [
        pod("dear", "h100", annotations={"controller.kubernetes.io/pod-deletion-cost": "10"}),
        pod("old", "h100", creationTimestamp="2026-10-01T00:00:00Z"),
        pod("young", "h100", creationTimestamp="2026-11-01T00:00:00Z"),
        pod("cheap", "h100", annotations=cheap, creationTimestamp="2026-09-01T00:00:00Z"),
        pod("starting", "h100", ready=False, annotations={"controller.kubernetes.io/pod-deletion-cost": "99"}),
        pod("leaving", "h100", deletionTimestamp="2026-11-02T00:00:00Z"),
        pod("other", "cpu", ready=False),
    ]
    await actuator(kube).apply(Step(part="H100", replicas_before=5, replicas_after=2))
    assert kube.groups["h100"]["scaleStrategy"] == {"workersToDelete": ["starting", "cheap", "young"]}


async def test_no_workers_to_delete_are_named_when_running_workers_fit_the_new_count() -> None:
    kube = KubeDouble.of(group("h100", 4))
    kube.pods = kube.pods[:2]
    await actuator(kube).apply(DOWN)
    assert "scaleStrategy" not in kube.groups["h100"]


async def test_workers_to_delete_of_an_earlier_step_are_cleared() -> None:
    kube = KubeDouble.of(group("h100", 4))
    driver = actuator(kube)
    await driver.apply(DOWN)
    kube.settle()
    await driver.apply(UP)
    assert kube.groups["h100"]["scaleStrategy"] == {"workersToDelete": []}


async def test_one_host_is_named_to_delete_a_multi_host_replica() -> None:
    kube = KubeDouble.of(group("h100", 2, numOfHosts=2))
    kube.pods = [
        pod(f"{replica}-{index}", "h100", labels={"ray.io/worker-group-replica-name": replica})
        for replica in ("r1", "r2")
        for index in range(2)
    ]
    await actuator(kube).apply(Step(part="H100", replicas_before=2, replicas_after=1))
    assert kube.groups["h100"]["scaleStrategy"] == {"workersToDelete": ["r2-0"]}


async def test_two_gpu_types_reach_the_plan_and_return_without_a_capacity_gap() -> None:
    kube = KubeDouble.of(group("h100", 4), group("l4", 0))
    driver = actuator(kube, H100="h100", L4="l4")
    for wanted in ({"H100": 1, "L4": 3}, {"H100": 4, "L4": 0}):
        before = await driver.observe()
        for _ in range(4):
            observation = await driver.observe()
            for gpu, running in observation.running.items():
                assert running >= min(before.running[gpu], wanted[gpu])
            for step in plan_changes(wanted=wanted, observation=observation, max_step=2):
                await driver.apply(step)
            kube.settle()
        assert verify(wanted=wanted, observation=await driver.observe())
    assert kube.counts == {"h100": 4, "l4": 0}


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"spec": {"suspend": True}}, "spec.suspend is on: no worker runs"),
        (
            {"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}},
            "spec.managedBy is kueue.x-k8s.io/multikueue: the KubeRay operator does not reconcile the cluster",
        ),
        (
            {"metadata": {"ownerReferences": [{"kind": "RayService", "name": "chat", "controller": True}]}},
            "RayService chat owns the RayCluster and may reset its counts",
        ),
        (
            {"status": {"conditions": [{"type": "HeadPodReady", "status": "False", "message": "CrashLoopBackOff"}]}},
            "KubeRay reports HeadPodReady False: CrashLoopBackOff",
        ),
        (
            {"status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]}},
            "KubeRay reports ReplicaFailure True: FailedCreate",
        ),
        ({"status": {"conditions": [{"type": "HeadPodReady", "status": "True"}]}}, None),
    ],
    ids=["suspended", "managed elsewhere", "owned", "no head", "no pods", "healthy"],
)
async def test_conditions_that_invalidate_the_counts_are_noted(change: dict[str, Any], note: str | None) -> None:
    kube = KubeDouble.of(group("h100", 2))
    for part, fields in change.items():
        kube.cluster[part] |= fields
    assert (await actuator(kube).observe()).note == note


async def test_a_suspended_group_is_noted() -> None:
    note = (await actuator(KubeDouble.of(group("h100", 2, suspend=True))).observe()).note
    assert note == "worker group h100 is suspended"


async def test_the_error_for_a_missing_cluster_names_it() -> None:
    with pytest.raises(ActuationError, match=r"there is no RayCluster ml/lmm: .* 404"):
        await actuator(KubeDouble.of(group("h100", 2)), cluster="lmm").observe()


async def test_the_error_for_a_missing_group_lists_the_existing_groups() -> None:
    kube = KubeDouble.of(group("l4", 2), group("h100", 2))
    with pytest.raises(ActuationError, match=r"no worker group 'b200'; it has: h100, l4$"):
        await actuator(kube, B200="b200").observe()


async def test_other_refusals_of_the_api_server_are_raised_unchanged() -> None:
    kube = KubeDouble.of(group("h100", 2))

    def forbid() -> None:
        raise RefusedError("https://kube returned 403: cannot patch", status=403)

    kube.before_patch = forbid
    with pytest.raises(RefusedError, match="403: cannot patch"):
        await actuator(kube).apply(UP)


async def test_an_invalid_ray_cluster_response_is_reported() -> None:
    kube = KubeDouble.of(group("h100", 2))
    kube.answers["/apis/ray.io/v1/namespaces/ml/rayclusters/llm"] = {"spec": []}
    with pytest.raises(ActuationError, match="the API server returned no valid RayCluster"):
        await actuator(kube).observe()
