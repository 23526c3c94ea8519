"""The actuator of the scale subresource: observed counts, the written count, and other owners of the count."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from api.schemas.applications import KubernetesScale
from deploy.actuators.base import ConfigWrite, Step
from deploy.actuators.kubernetes_scale.actuator import KubernetesScaleActuator
from deploy.common.errors import ActuationError, OvertakenError
from deploy.common.kubernetes_client import RefusedError
from deploy.controller.rollout import plan_changes, verify
from tests.deploy.actuators.scale_double import AIBRIX, HPAS, KEDA, NAMESPACE, ScaleDouble, managed, unready

pytestmark = pytest.mark.anyio

KINDS = {
    "deployments": {"kind": "Deployment"},
    "statefulsets": {"kind": "StatefulSet"},
    "leaderworkersets": {"api_version": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"},
}
UP = Step(part="H100", replicas_before=2, replicas_after=4)


def actuator(kube: ScaleDouble, *, resource: str = "deployments", **scaled: str) -> KubernetesScaleActuator:
    described = {"namespace": NAMESPACE, "objects": {"H100": {"name": "chat"} | KINDS[resource] | scaled}}
    return KubernetesScaleActuator(kube, httpx.AsyncClient(), KubernetesScale.model_validate(described))


def reference(kind: str, name: str = "chat", *, api_version: str | None = "apps/v1", **fields: str) -> dict[str, Any]:
    """A list with one autoscaler named `auto`."""
    target = {"kind": kind, "name": name} | ({"apiVersion": api_version} if api_version else {}) | fields
    return {"items": [{"metadata": {"name": "auto"}, "spec": {"scaleTargetRef": target}}]}


@pytest.mark.parametrize("resource", KINDS)
async def test_observes_requested_and_ready_replicas(resource: str) -> None:
    kube = ScaleDouble()
    kube.add(resource, 4)
    names = list(kube.pods)
    unready(kube.pods[names[0]])
    kube.pods[names[1]]["metadata"]["deletionTimestamp"] = "2026-11-02T00:00:00Z"
    observation = await actuator(kube, resource=resource).observe()
    assert (observation.requested, observation.running) == ({"H100": 4}, {"H100": 2})
    assert (observation.note, observation.drains) == (None, {})


async def test_a_group_of_a_leader_worker_set_runs_only_when_all_its_pods_are_ready() -> None:
    kube = ScaleDouble()
    kube.add("leaderworkersets", 3, size=2)
    unready(kube.pods["chat-1-1"])
    del kube.pods["chat-2-1"]
    assert (await actuator(kube, resource="leaderworkersets").observe()).running == {"H100": 1}


@pytest.mark.parametrize("resource", KINDS)
async def test_counts_reach_the_plan_from_and_to_zero(resource: str) -> None:
    kube = ScaleDouble()
    kube.add(resource, 0)
    driver = actuator(kube, resource=resource)
    for wanted in ({"H100": 3}, {"H100": 1}, {"H100": 0}):
        for step in plan_changes(wanted=wanted, observation=await driver.observe(), max_step=9):
            await driver.apply(step)
        kube.settle()
        assert verify(wanted=wanted, observation=await driver.observe())


async def test_apply_writes_only_the_count_and_tests_the_version_and_the_old_count() -> None:
    kube = ScaleDouble()
    kube.add("deployments", 2)
    await actuator(kube).apply(UP)
    (patch,) = kube.scaled
    assert patch == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "add", "path": "/spec/replicas", "value": 4},
    ]


async def test_applying_a_step_twice_patches_once() -> None:
    kube = ScaleDouble()
    kube.add("deployments", 2)
    for _ in range(2):
        await actuator(kube).apply(UP)
    assert len(kube.scaled) == 1


async def test_a_count_that_another_manager_writes_meanwhile_wins_and_the_error_names_that_manager() -> None:
    kube = ScaleDouble()
    path = kube.add("deployments", 2)
    kube.before_scale = lambda: kube.touch(path, replicas=7, manager="kubectl-scale")
    with pytest.raises(OvertakenError, match=r"Deployment ml/chat changed .* last written by kubectl-scale$"):
        await actuator(kube).apply(UP)
    assert (kube.scaled, kube.count(path)) == ([], 7)


async def test_a_status_written_meanwhile_does_not_stop_the_step() -> None:
    kube, changes = ScaleDouble(), iter([True, False])
    path = kube.add("deployments", 2)
    kube.before_scale = lambda: kube.touch(path) if next(changes) else None
    await actuator(kube).apply(UP)
    assert kube.count(path) == 4


async def test_an_object_that_changes_before_every_write_is_left_for_the_next_reconcile() -> None:
    kube = ScaleDouble()
    path = kube.add("deployments", 2)
    kube.before_scale = lambda: kube.touch(path)
    with pytest.raises(OvertakenError, match=r"Deployment ml/chat changed before each of 5 writes: .* 422"):
        await actuator(kube).apply(UP)
    assert kube.count(path) == 2


async def test_an_autoscaler_created_meanwhile_stops_the_step() -> None:
    kube = ScaleDouble()
    path = kube.add("deployments", 2)

    def create() -> None:
        kube.lists[HPAS] = reference("Deployment")
        kube.touch(path)

    kube.before_scale = create
    with pytest.raises(ActuationError, match="HorizontalPodAutoscaler auto"):
        await actuator(kube).apply(UP)
    assert kube.scaled == []


@pytest.mark.parametrize("status", [403, 422])
async def test_a_refusal_of_the_api_server_is_raised_unchanged(status: int) -> None:
    kube = ScaleDouble()
    kube.add("deployments", 2)

    def refuse() -> None:
        raise RefusedError(f"https://kube returned {status}: at most 3 replicas", status=status)

    kube.before_scale = refuse
    with pytest.raises(RefusedError, match=f"{status}: at most 3 replicas"):
        await actuator(kube).apply(UP)


def _hpa(kube: ScaleDouble, _path: str) -> None:
    kube.lists[HPAS] = reference("Deployment")


def _keda(kube: ScaleDouble, _path: str) -> None:
    """ScaledObject.spec.scaleTargetRef needs a name only: kind and version have defaults."""
    kube.lists[KEDA] = {"items": [{"metadata": {"name": "auto"}, "spec": {"scaleTargetRef": {"name": "chat"}}}]}


def _aibrix(kube: ScaleDouble, _path: str) -> None:
    kube.lists[AIBRIX] = reference("Deployment")


def _operator(kube: ScaleDouble, path: str) -> None:
    owners = [{"apiVersion": "serving.kserve.io/v1", "kind": "InferenceService", "name": "llm", "controller": True}]
    kube.objects[path]["metadata"]["ownerReferences"] = owners


def _applied(kube: ScaleDouble, path: str) -> None:
    kube.objects[path]["metadata"]["managedFields"] = [managed("argocd-controller", "Apply", subresource="")]


@pytest.mark.parametrize(
    ("own", "owner"),
    [
        (_hpa, "HorizontalPodAutoscaler auto"),
        (_keda, "ScaledObject auto"),
        (_aibrix, "PodAutoscaler auto"),
        (_operator, "InferenceService llm, which owns the object"),
        (_applied, "field manager argocd-controller, which applies spec.replicas"),
    ],
    ids=["HPA", "KEDA", "AIBrix", "operator", "server-side apply"],
)
async def test_another_owner_of_the_count_is_named_and_nothing_is_written(
    own: Callable[[ScaleDouble, str], None], owner: str
) -> None:
    kube = ScaleDouble()
    own(kube, kube.add("deployments", 2))
    driver = actuator(kube)
    observation = await driver.observe()
    assert (observation.running, observation.note) == ({"H100": 2}, f"Deployment chat is scaled by {owner}")
    with pytest.raises(ActuationError, match=f"^Deployment ml/chat is scaled by {owner}: publish the count"):
        await driver.apply(UP)
    assert kube.scaled == []


async def test_a_scaling_adapter_of_an_operator_is_written_although_the_operator_owns_it() -> None:
    kube = ScaleDouble()
    owners = [{"kind": "DynamoGraphDeployment", "name": "llm", "controller": True}]
    path = kube.add("dynamographdeploymentscalingadapters", 2, ownerReferences=owners)
    adapter = {"api_version": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentScalingAdapter"}
    driver = actuator(kube, **adapter)
    assert (await driver.observe()).note is None
    await driver.apply(UP)
    assert kube.count(path) == 4


async def test_of_groups_below_another_kind_the_leaders_count() -> None:
    kube = ScaleDouble()
    kube.add("dynamographdeploymentscalingadapters", 4)
    for at, pod in enumerate(kube.pods.values()):
        pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] = str(at % 2)
    driver = actuator(kube, api_version="nvidia.com/v1alpha1", kind="DynamoGraphDeploymentScalingAdapter")
    assert (await driver.observe()).running == {"H100": 2}


@pytest.mark.parametrize(
    "other",
    [
        reference("Deployment", "other"),
        reference("StatefulSet"),
        reference("Deployment", api_version="example.com/v1"),
    ],
    ids=["other name", "other kind", "other group"],
)
async def test_autoscalers_of_other_objects_do_not_stop_a_step(other: dict[str, Any]) -> None:
    kube = ScaleDouble()
    path = kube.add("deployments", 2)
    kube.lists[HPAS] = other
    await actuator(kube).apply(UP)
    assert kube.count(path) == 4


async def test_an_autoscaler_that_names_an_older_version_of_the_kind_owns_the_count() -> None:
    kube = ScaleDouble()
    kube.add("leaderworkersets", 2)
    kube.lists[HPAS] = reference("LeaderWorkerSet", api_version="leaderworkerset.x-k8s.io/v1alpha1")
    with pytest.raises(ActuationError, match="HorizontalPodAutoscaler auto"):
        await actuator(kube, resource="leaderworkersets").apply(UP)


async def test_without_the_right_to_list_autoscalers_counts_are_read_and_not_written() -> None:
    kube = ScaleDouble()
    kube.add("deployments", 2)
    kube.lists[KEDA] = RefusedError("https://kube returned 403: cannot list scaledobjects", status=403)
    driver = actuator(kube)
    observation = await driver.observe()
    assert observation.running == {"H100": 2}
    assert observation.note == "owners are not known: https://kube returned 403: cannot list scaledobjects"
    with pytest.raises(RefusedError, match="403: cannot list scaledobjects"):
        await driver.apply(UP)
    assert kube.scaled == []


async def test_managers_of_other_fields_and_former_writers_do_not_own_the_count() -> None:
    kube = ScaleDouble()
    path = kube.add("deployments", 2)
    other = managed("labeller", "Apply", subresource="") | {"fieldsV1": {"f:metadata": {"f:labels": {}}}}
    kube.objects[path]["metadata"]["managedFields"] = [
        other,
        managed("kubectl-create"),
        managed("fleetwright", "Apply"),
    ]
    await actuator(kube).apply(UP)
    assert kube.count(path) == 4


@pytest.mark.parametrize(
    ("scaled", "message"),
    [
        ({"kind": "DaemonSet"}, r"DaemonSet of apps/v1 has no scale subresource; allowed .*: Deployment, StatefulSet;"),
        ({"kind": "Model", "api_version": "kubeai.org/v1"}, r"does not serve kubeai.org/v1: .* 404"),
        ({"name": "caht"}, r"there is no Deployment ml/caht: .* 404"),
    ],
)
async def test_an_object_that_cannot_be_scaled_is_explained(scaled: dict[str, str], message: str) -> None:
    kube = ScaleDouble()
    kube.add("deployments", 2)
    with pytest.raises(ActuationError, match=message):
        await actuator(kube, **scaled).observe()


async def test_pods_that_cannot_be_created_are_noted() -> None:
    kube = ScaleDouble()
    path = kube.add("deployments", 2)
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"}
    kube.objects[path]["status"]["conditions"] = [{"odd": 1}, failure]
    assert (await actuator(kube).observe()).note == "Deployment chat reports ReplicaFailure: exceeded quota: gpus"


@pytest.mark.parametrize(
    ("container", "grace_s", "warning"),
    [
        ({}, 600, "no preStop hook: a pod that stops gets requests until its endpoint is removed"),
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 60}}}}, 60, "is 60, and its preStop hook sleeps 60 s: "),
        ({"lifecycle": {"preStop": {"exec": {"command": ["wait"]}}}}, 30, "requests longer than 30 s are cut off"),
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 10}}}}, 600, None),
    ],
)
async def test_a_template_that_cuts_requests_off_is_reported(
    container: dict[str, Any], grace_s: int, warning: str | None
) -> None:
    kube = ScaleDouble(container=container, grace_s=grace_s)
    kube.add("deployments", 2)
    observation = await actuator(kube).observe()
    assert observation.note is None, "a template does not keep a plan from being verified"
    assert (warning or "") in (observation.warning or "")
    assert (observation.warning is None) == (warning is None)


async def test_configuration_is_refused() -> None:
    kube = ScaleDouble()
    kube.add("deployments", 2)
    with pytest.raises(ActuationError, match="have no user_config"):
        await actuator(kube).apply(ConfigWrite(deployment="chat", key="clock", value=1.0))


def test_the_application_is_stored_as_it_was_given() -> None:
    described = {
        "kind": "kubernetes_scale",
        "namespace": "ml",
        "objects": {
            "H100-SXM": {
                "api_version": "apps/v1",
                "kind": "Deployment",
                "name": "chat",
                "replicas_field": None,
                "pod_labels": None,
            }
        },
        "drain": {"metrics_port": 8000, "max_wait_s": 300.0},
    }
    assert json.loads(KubernetesScale.model_validate(described).model_dump_json()) == described
