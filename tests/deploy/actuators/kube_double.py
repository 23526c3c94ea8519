"""A double of the Kubernetes API with one RayCluster and its worker pods; `settle` runs the KubeRay operator once.

`settle` follows KubeRay v1.6: it keeps counts within the bounds, deletes the pods of `workersToDelete`, and then
deletes surplus pods in list order.  `tests/cluster/test_kuberay.py` runs the same actuator against the real operator.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.common.kubernetes_client import FIELD_MANAGER, Operations, Patch, RefusedError

NAMESPACE, CLUSTER = "ml", "llm"
GROUPS: Mapping[str, Any] = {"f:spec": {"f:workerGroupSpecs": {}}}


def group(name: str, replicas: int, **fields: Any) -> dict[str, Any]:
    """A worker group as the API server returns it, with its defaults."""
    defaults = {"minReplicas": 0, "maxReplicas": 64, "numOfHosts": 1, "rayStartParams": {}, "template": {"spec": {}}}
    return {"groupName": name, "replicas": replicas} | defaults | fields


def managed(manager: str, operation: str = "Update", *, at: str = "2026-11-01T00:00:00Z") -> dict[str, Any]:
    """An entry of managedFields that holds the worker groups."""
    return {"manager": manager, "operation": operation, "time": at, "fieldsType": "FieldsV1", "fieldsV1": GROUPS}


def pod(
    name: str, group_name: str, *, ready: bool = True, labels: Mapping[str, str] | None = None, **metadata: Any
) -> dict[str, Any]:
    """A worker pod."""
    own = {"ray.io/cluster": CLUSTER, "ray.io/group": group_name, "ray.io/node-type": "worker"}
    about = {"name": name, "labels": own | dict(labels or {}), "creationTimestamp": "2026-11-01T00:00:00Z"}
    conditions = [{"type": "Scheduled", "status": "True"}, {"type": "Ready", "status": str(ready)}]
    return {"metadata": about | metadata, "status": {"phase": "Running", "conditions": conditions}}


@dataclass
class KubeDouble:
    """The API server.  `patches` lists every accepted patch."""

    cluster: dict[str, Any]
    pods: list[dict[str, Any]] = field(default_factory=list)
    patches: list[Operations] = field(default_factory=list)
    before_patch: Callable[[], None] = lambda: None
    answers: dict[str, Any] = field(default_factory=dict)  # responses by path; they replace the objects
    _made: int = 0

    @classmethod
    def of(cls, *groups: dict[str, Any], managers: Sequence[Mapping[str, Any]] = (), **spec: Any) -> "KubeDouble":
        """A cluster with these groups, by default created by `kubectl create`; all its workers run."""
        metadata = {"name": CLUSTER, "managedFields": list(managers) or [managed("kubectl-create")]}
        double = cls({"metadata": metadata, "spec": {"workerGroupSpecs": list(groups)} | spec, "status": {}})
        double.settle()
        return double

    @property
    def groups(self) -> dict[str, dict[str, Any]]:
        """Worker groups by name."""
        return {entry["groupName"]: entry for entry in self.cluster["spec"]["workerGroupSpecs"]}

    @property
    def counts(self) -> dict[str, int]:
        """Pods by group."""
        return {name: len(self._pods_of(name)) for name in self.groups}

    async def get(self, path: str, **query: str) -> Any:
        """The cluster or its pods."""
        if path in self.answers:
            return self.answers[path]
        match path.split("/"):
            case ["", "apis", "ray.io", "v1", "namespaces", "ml", "rayclusters", "llm"] if not query:
                return copy.deepcopy(self.cluster)
            case ["", "api", "v1", "namespaces", "ml", "pods"]:
                assert query == {"labelSelector": "ray.io/cluster=llm,ray.io/node-type=worker"}
                return {"items": copy.deepcopy(self.pods)}
        raise RefusedError(f"https://kube returned 404: {path} not found", status=404)

    async def patch(self, path: str, patch: Patch) -> None:
        """Apply all operations of a JSON patch or none; the author of the patch becomes the manager of the groups."""
        self.before_patch()
        assert path == "/apis/ray.io/v1/namespaces/ml/rayclusters/llm"
        changed = copy.deepcopy(self.cluster)
        assert not isinstance(patch, Mapping)
        for operation in patch:
            operate(changed, operation)
        changed["metadata"]["managedFields"] = [managed(FIELD_MANAGER, at="2026-11-02T00:00:00Z")]
        self.cluster = changed
        self.patches.append(patch)

    def settle(self) -> None:
        """Reconcile the pods as KubeRay does, and make every pod ready."""
        for name, spec in self.groups.items():
            doomed = spec.get("scaleStrategy", {}).get("workersToDelete", [])
            self.pods = [entry for entry in self.pods if entry["metadata"]["name"] not in doomed]
            wanted = max(spec["minReplicas"], min(spec["replicas"], spec["maxReplicas"]))
            there = self._pods_of(name)
            for surplus in there[: max(0, len(there) - wanted)]:
                self.pods.remove(surplus)
            for _ in range(wanted - len(there)):
                self._made += 1
                self.pods.append(pod(f"{name}-{self._made}", name))

    def _pods_of(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self.pods if entry["metadata"]["labels"]["ray.io/group"] == name]


def operate(document: Any, operation: Mapping[str, Any]) -> None:
    *parents, last = [int(part) if part.isdigit() else part for part in operation["path"].split("/")[1:]]
    for part in parents:
        document = document[part]
    match operation["op"]:
        case "test" if document.get(last) != operation["value"]:
            raise RefusedError(f"https://kube returned 422: testing value {operation['path']} failed", status=422)
        case "replace" | "add":
            document[last] = operation["value"]
