"""A double of the Kubernetes API with scaled objects, their pods and engines; `settle` runs their controllers once.

`settle` follows Kubernetes: a StatefulSet and a LeaderWorkerSet stop their highest ordinals, a ReplicaSet stops pods
that are not ready and then those of the lowest deletion cost.  `tests/cluster/test_kubernetes_scale.py` runs the same
actuator against real controllers.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from deploy.common.kubernetes_client import FIELD_MANAGER, Patch, RefusedError
from tests.deploy.actuators.kube_double import operate

NAMESPACE = "ml"
COST = "controller.kubernetes.io/pod-deletion-cost"
APPS, LWS, DYNAMO = "/apis/apps/v1", "/apis/leaderworkerset.x-k8s.io/v1", "/apis/nvidia.com/v1alpha1"
ADAPTERS = "dynamographdeploymentscalingadapters"
BASES = {"leaderworkersets": LWS, ADAPTERS: DYNAMO}
HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
KEDA = f"/apis/keda.sh/v1alpha1/namespaces/{NAMESPACE}/scaledobjects"
AIBRIX = f"/apis/autoscaling.aibrix.ai/v1alpha1/namespaces/{NAMESPACE}/podautoscalers"
RESOURCES = {
    APPS: [
        {"name": "deployments", "kind": "Deployment", "namespaced": True},
        {"name": "deployments/scale", "kind": "Scale", "namespaced": True},
        {"name": "statefulsets", "kind": "StatefulSet", "namespaced": True},
        {"name": "statefulsets/scale", "kind": "Scale", "namespaced": True},
        {"name": "daemonsets", "kind": "DaemonSet", "namespaced": True},
    ],
    LWS: [
        {"name": "leaderworkersets", "kind": "LeaderWorkerSet", "namespaced": True},
        {"name": "leaderworkersets/scale", "kind": "Scale", "namespaced": True},
    ],
    DYNAMO: [
        {"name": ADAPTERS, "kind": "DynamoGraphDeploymentScalingAdapter", "namespaced": True},
        {"name": f"{ADAPTERS}/scale", "kind": "Scale", "namespaced": True},
    ],
}
PRE_STOP = {"lifecycle": {"preStop": {"sleep": {"seconds": 10}}}}


@dataclass
class ScaleDouble:
    """The API server and the engines."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)  # by path
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name
    lists: dict[str, Any] = field(default_factory=lambda: {HPAS: {"items": []}})
    requests: dict[str, float] = field(default_factory=dict)  # pod -> running requests
    silent: set[str] = field(default_factory=set)  # pods whose engine does not respond
    scaled: list[Patch] = field(default_factory=list)  # accepted patches of scales
    annotated: list[str] = field(default_factory=list)  # pods, in the order of their accepted patches
    before_scale: Callable[[], None] = lambda: None
    before_annotate: Callable[[], None] = lambda: None
    container: dict[str, Any] = field(default_factory=lambda: dict(PRE_STOP))
    grace_s: int = 60
    _made: int = 0

    def add(self, resource: str, replicas: int, *, size: int = 1, **metadata: Any) -> str:
        """Create the object `chat` with running pods, and return its path."""
        path = f"{BASES.get(resource, APPS)}/namespaces/{NAMESPACE}/{resource}/chat"
        self.objects[path] = {
            "metadata": {"name": "chat", "resourceVersion": "1", "managedFields": []} | metadata,
            "spec": {"replicas": replicas, "size": size},
            "status": {},
        }
        self.settle()
        return path

    def pods_of(self, name: str) -> dict[str, dict[str, Any]]:
        return {key: pod for key, pod in self.pods.items() if pod["metadata"]["labels"]["app"] == name}

    def count(self, path: str) -> int:
        return int(self.objects[path]["spec"]["replicas"])

    def touch(self, path: str, *, replicas: int | None = None, manager: str | None = None) -> None:
        """Change the object as another writer does: its status, or its count."""
        found = self.objects[path]
        found["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)
        if replicas is not None:
            found["spec"]["replicas"] = replicas
        if manager is not None:
            found["metadata"]["managedFields"].append(managed(manager))

    async def get(self, path: str, **query: str) -> Any:
        if path in RESOURCES:
            return {"resources": RESOURCES[path]}
        if path in self.lists:
            if isinstance(self.lists[path], RefusedError):
                raise self.lists[path]
            return copy.deepcopy(self.lists[path])
        if path in self.objects:
            return copy.deepcopy(self.objects[path])
        whole, _, last = path.rpartition("/")
        if last == "scale" and whole in self.objects:
            return self._scale(whole)
        if path == f"/api/v1/namespaces/{NAMESPACE}/pods":
            wanted = dict(entry.split("=") for entry in query["labelSelector"].split(","))
            return {"items": [copy.deepcopy(pod) for pod in self.pods.values() if _has(pod, wanted)]}
        raise RefusedError(f"https://kube returned 404: {path} not found", status=404)

    async def patch(self, path: str, patch: Patch) -> None:
        whole, _, last = path.rpartition("/")
        if isinstance(patch, Mapping):
            self.before_annotate()
            if last not in self.pods:
                raise RefusedError("https://kube returned 404: no such pod", status=404)
            metadata = self.pods[last]["metadata"]
            if patch["metadata"]["uid"] != metadata["uid"]:
                raise RefusedError("https://kube returned 409: the UID in the precondition differs", status=409)
            merged = metadata["annotations"] | patch["metadata"]["annotations"]
            metadata["annotations"] = {key: value for key, value in merged.items() if value is not None}
            self.annotated.append(last)
            return
        self.before_scale()
        scale = self._scale(whole)
        for operation in patch:
            operate(scale, operation)
        self.touch(whole, replicas=scale["spec"].get("replicas", 0), manager=FIELD_MANAGER)
        self.scaled.append(patch)

    def settle(self) -> None:
        """Create and remove pods as the controllers of the objects do; new pods are ready."""
        for path, found in self.objects.items():
            name, size, kind = found["metadata"]["name"], found["spec"]["size"], path.split("/")[-2]
            there, wanted = self.pods_of(name), found["spec"]["replicas"]
            if kind == "deployments":
                for surplus in sorted(there, key=lambda key: _rank(there[key]))[: max(0, len(there) - wanted)]:
                    del self.pods[surplus]
                for _ in range(wanted - len(there)):
                    self._made += 1
                    self._create(name, f"{name}-{self._made:05}", owner="ReplicaSet")
                continue
            for key in [key for key, pod in there.items() if _ordinal(pod) >= wanted]:
                del self.pods[key]
            for ordinal in range(wanted):
                for worker in range(size):
                    key = f"{name}-{ordinal}" + (f"-{worker}" if worker else "")
                    if key not in self.pods:
                        labels = {"index": str(ordinal)}
                        if kind == "leaderworkersets":
                            labels = _lws_labels(name, ordinal, worker) | labels
                        self._create(name, key, owner="StatefulSet", labels=labels, size=size)

    def engines(self) -> httpx.AsyncClient:
        """Return a client that reaches the engines of the pods."""

        def respond(request: httpx.Request) -> httpx.Response:
            assert (request.url.port, request.url.path) == (8000, "/metrics")
            (name,) = (key for key, pod in self.pods.items() if pod["status"]["podIP"] == request.url.host)
            if name in self.silent:
                raise httpx.ConnectTimeout("no response", request=request)
            return httpx.Response(200, text=page(self.requests.get(name, 0.0)))

        return httpx.AsyncClient(transport=httpx.MockTransport(respond))

    def _scale(self, path: str) -> dict[str, Any]:
        metadata = self.objects[path]["metadata"]
        replicas, name = self.objects[path]["spec"]["replicas"], metadata["name"]
        kept = {key: metadata[key] for key in ("name", "resourceVersion")}
        spec = {"replicas": replicas} if replicas else {}
        return {"metadata": kept, "spec": spec, "status": {"replicas": replicas, "selector": f"app={name}"}}

    def _create(
        self, name: str, key: str, *, owner: str, labels: Mapping[str, str] | None = None, size: int = 1
    ) -> None:
        self._made += 1
        self.pods[key] = {
            "metadata": {
                "name": key,
                "uid": f"uid-{self._made}",
                "labels": {"app": name} | dict(labels or {}),
                "annotations": {"leaderworkerset.sigs.k8s.io/size": str(size)},
                "creationTimestamp": f"2026-11-01T00:{self._made // 60:02}:{self._made % 60:02}Z",
                "ownerReferences": [{"kind": owner, "name": f"{name}-1", "controller": True}],
            },
            "spec": {"containers": [self.container], "terminationGracePeriodSeconds": self.grace_s},
            "status": {
                "phase": "Running",
                "podIP": f"10.0.0.{self._made}",
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }


def unready(pod: dict[str, Any]) -> None:
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]


def page(requests: float) -> str:
    """Return the page of an engine with this many running requests."""
    return (
        "# TYPE vllm:num_requests_running gauge\n"
        f'vllm:num_requests_running{{engine="0",model_name="m"}} {requests}\n'
        "# TYPE vllm:num_requests_waiting gauge\n"
        'vllm:num_requests_waiting{engine="0",model_name="m"} 0.0\n'
    )


def managed(manager: str, operation: str = "Update", *, subresource: str = "scale") -> dict[str, Any]:
    fields: Mapping[str, Any] = {"f:spec": {"f:replicas": {}}}
    entry = {"manager": manager, "operation": operation, "time": "2026-11-02T00:00:00Z", "fieldsV1": fields}
    return entry | ({"subresource": subresource} if subresource else {})


def _lws_labels(name: str, ordinal: int, worker: int) -> dict[str, str]:
    return {
        "leaderworkerset.sigs.k8s.io/name": name,
        "leaderworkerset.sigs.k8s.io/group-index": str(ordinal),
        "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
    }


def _has(pod: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    found: Mapping[str, str] = pod["metadata"]["labels"]
    return labels.items() <= found.items()


def _ordinal(pod: Mapping[str, Any]) -> int:
    return int(pod["metadata"]["labels"]["index"])


def _rank(pod: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Order pods as a ReplicaSet stops them; of equal ones the oldest, so that a test shows a missing mark."""
    ready = pod["status"]["conditions"][0]["status"] == "True"
    return ready, int(pod["metadata"]["annotations"].get(COST, "0")), pod["metadata"]["creationTimestamp"]
