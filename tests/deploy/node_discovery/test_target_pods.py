"""Which pods belong to a target, by their controllers, labels and namespaces."""

from typing import Any

import pytest

from api.schemas.targets import Target, TargetSpec
from deploy.node_discovery.target_pods import target_pods

RAY = {"kind": "ray_service", "namespace": "ml", "service": "chat", "groups": {"H100": "h100"}}


def target(application: dict[str, Any]) -> Target:
    spec = TargetSpec.model_validate({"workload": "chat", "application": application})
    return Target(name="chat", version=1, spec=spec)


def scaled(**described: Any) -> Target:
    return target({"kind": "kubernetes_scale", "namespace": "ml", "objects": {"H100": {"name": "llm"} | described}})


def pod(
    labels: dict[str, str] | None = None, *, namespace: str = "ml", owner: tuple[str, str] | None = None
) -> dict[str, Any]:
    owners = [] if owner is None else [{"kind": owner[0], "name": owner[1], "controller": True}]
    return {"metadata": {"name": "p", "namespace": namespace, "labels": labels or {}, "ownerReferences": owners}}


LWS = {"api_version": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
KSERVE = {"api_version": "serving.kserve.io/v1beta1", "kind": "InferenceService"}


@pytest.mark.parametrize(
    ("found", "of", "expected"),
    [
        (pod({"pod-template-hash": "7f9"}, owner=("ReplicaSet", "llm-7f9")), scaled(), True),
        (pod({"pod-template-hash": "7f9"}, owner=("ReplicaSet", "llm-other-7f9")), scaled(), False),
        (pod({"pod-template-hash": "7f9"}, owner=("ReplicaSet", "llm-7f9"), namespace="other"), scaled(), False),
        (pod(owner=("StatefulSet", "llm")), scaled(kind="StatefulSet"), True),
        (pod(owner=("StatefulSet", "llm")), scaled(), False),
        (pod({"leaderworkerset.sigs.k8s.io/name": "llm"}), scaled(**LWS), True),
        (pod({"serving.kserve.io/inferenceservice": "llm", "component": "predictor"}), scaled(**KSERVE), True),
        (pod({"serving.kserve.io/inferenceservice": "llm", "component": "explainer"}), scaled(**KSERVE), False),
        (pod({"ray.io/cluster": "chat-1"}), target(RAY), True),
        (pod({"ray.io/cluster": "chat-0"}), target(RAY), False),
        (pod({"fleetwright.io/target": "chat"}), scaled(), True),
        (pod({"fleetwright.io/target": "other"}), scaled(), False),
    ],
)
def test_a_pod_belongs_to_a_target(found: dict[str, Any], of: Target, expected: bool) -> None:  # noqa: FBT001
    owned = target_pods([found], [of], ray_clusters={"chat": ["chat-1", "chat-2"]})
    assert owned == ({(found["metadata"]["namespace"], "p")} if expected else frozenset())
