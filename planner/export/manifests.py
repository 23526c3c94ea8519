"""The parts that Kubernetes manifests of all dialects share: metadata, pods, services and the routing table."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fleet.yaml_reader import dump_yaml
from planner.engine_flags import ENGINE_VERSIONS, ServingEngine, engine_flags, launch_command
from planner.export.groups import ReplicaGroup, WorkloadGroups
from planner.export.provenance import PREFIX, PlanSource, comment_lines
from planner.export.settings import ExportSettings

PORT: Final = 8000
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - of a pod, whose network policy limits its callers
DRAIN_S: Final = 15  # until load balancers have removed a pod that stops
GRACE_S: Final = 300  # for requests that run when a pod stops
# GPU Feature Discovery writes the product name with hyphens, AMD's device plugin with underscores.
VENDOR_LABELS: Final[Mapping[str, str]] = {
    "nvidia": "nvidia.com/gpu.product",
    "amd": "amd.com/gpu.product-name",
}
VENDOR_NAMES: Final[Mapping[str, tuple[str, ...]]] = {"nvidia": ("NVIDIA ", "Tesla "), "amd": ("AMD ",)}
VENDOR_SPACES: Final[Mapping[str, str]] = {"nvidia": "-", "amd": "_"}

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of an export."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Export:
    """Everything that a dialect writes."""

    source: PlanSource
    settings: ExportSettings
    workloads: tuple[WorkloadGroups, ...]
    images: Mapping[str, str]  # GPU vendor -> image of the engine

    def metadata(self, name: str, *, group: ReplicaGroup | None = None, **labels: str) -> Manifest:
        """The metadata of an object of this export."""
        annotations = self.source.annotations() | ({} if group is None else group_annotations(group))
        return {
            "name": name,
            "namespace": self.settings.namespace,
            "labels": {"app.kubernetes.io/managed-by": "fleetwright", **labels},
            "annotations": annotations,
        }

    def image(self, group: ReplicaGroup) -> str:
        return self.images[group.gpu.vendor]

    def flags(self, group: ReplicaGroup) -> tuple[str, ...]:
        return engine_flags(group.settings, self.settings.engine).flags

    def yaml_file(self, workload: WorkloadGroups, manifests: Iterable[Manifest]) -> ExportedFile:
        """The objects of one workload, its routing table last."""
        header = [
            f"# {workload.workload}, with the flags of {self.settings.engine} {ENGINE_VERSIONS[self.settings.engine]}.",
            *comment_lines(self.source.annotations()),
        ]
        documents = [dump_yaml(manifest) for manifest in (*manifests, self.routing_table(workload))]
        return ExportedFile(f"{workload.name}.yaml", "\n".join(header) + "\n" + "---\n".join(["", *documents]))

    def routing_table(self, workload: WorkloadGroups) -> Manifest:
        """A ConfigMap with the plan's weights, for routers that can use them."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self.metadata(f"{workload.name}-routing"),
            "data": {"routing.json": routing_json(workload)},
        }


def routing_json(workload: WorkloadGroups) -> str:
    """The weights of the plan, and the group that each option has become."""
    table = {
        "workload": workload.workload,
        "buckets": {bucket: dict(weights) for bucket, weights in workload.routing.items()},
        "groups": {group.option: group.name for group in workload.groups},
    }
    return json.dumps(table, indent=1) + "\n"


def group_annotations(group: ReplicaGroup) -> dict[str, str]:
    found = {
        f"{PREFIX}/workload": group.workload,
        f"{PREFIX}/option": group.option,
        f"{PREFIX}/gpu": group.gpu.name,
        f"{PREFIX}/planned-replicas": str(group.count),
        f"{PREFIX}/routing-weights": json.dumps(dict(group.weights), separators=(",", ":")),
    }
    if group.clock != 1:
        found[f"{PREFIX}/clock"] = f"{group.clock:g}"
    return found


def server_flags(engine: ServingEngine) -> list[str]:
    """Where the server listens; SGLang's default is loopback, without metrics."""
    common = ["--host", ANY_ADDRESS, "--port", str(PORT)]
    return common if engine is ServingEngine.VLLM else [*common, "--enable-metrics"]


def gpu_container(export: Export, group: ReplicaGroup, *, name: str) -> Manifest:
    """A container with the GPUs of one node of a replica."""
    limits = {group.resource: str(group.gpus_per_node)}
    image, env = export.image(group), environment(export, group)
    return {
        "name": name,
        **({"image": image} if image else {}),
        **({"env": env} if env else {}),
        "resources": {"limits": limits, "requests": dict(limits)},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - of the container
    }


def engine_container(export: Export, group: ReplicaGroup, *, name: str, args: Sequence[str] = ()) -> Manifest:
    """The same with the engine; `args` are added to those of the plan."""
    engine = export.settings.engine
    return {
        **gpu_container(export, group, name=name),
        "command": list(launch_command(group.settings, engine)),
        "args": [*export.flags(group), *server_flags(engine), *args],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
    }


def ready(server: Manifest) -> Manifest:
    """The container of a replica's API server, which receives requests when the model is loaded."""
    return {
        **server,
        "readinessProbe": {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 10, "failureThreshold": 3},
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_S}}},
    }


def environment(export: Export, group: ReplicaGroup) -> list[Manifest]:
    """NIXL of vLLM listens on loopback unless it has the address of the pod."""
    if export.settings.engine is not ServingEngine.VLLM or group.role == "both":
        return []
    address = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    return [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address}]


def pod_spec(export: Export, group: ReplicaGroup, containers: Sequence[Manifest]) -> Manifest:
    """Pods on nodes with the group's GPU type."""
    key, values = gpu_label(export.settings, group)
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}},
        },
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": list(containers),
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }


def gpu_label(settings: ExportSettings, group: ReplicaGroup) -> tuple[str, list[str]]:
    """The node label of the GPU type, and the values that it may have."""
    vendor = group.gpu.vendor
    key = settings.gpu_label or VENDOR_LABELS[vendor]
    if group.gpu.name in settings.gpu_value:
        return key, [settings.gpu_value[group.gpu.name]]
    if settings.gpu_label is not None:
        return key, [group.gpu.name]
    names = [name for name in group.gpu.aliases if name.startswith(VENDOR_NAMES[vendor])]
    return key, [name.replace(" ", VENDOR_SPACES[vendor]) for name in names] or [group.gpu.name]


def deployment(
    export: Export, group: ReplicaGroup, spec: Manifest, *, labels: Mapping[str, str], selector: Mapping[str, str]
) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": export.metadata(group.name, group=group, **labels),
        "spec": {
            "replicas": group.count,
            "selector": {"matchLabels": dict(selector)},
            "template": {"metadata": {"labels": {**labels, **selector}}, "spec": spec},
        },
    }


def service(export: Export, name: str, selector: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": export.metadata(name),
        "spec": {
            "selector": dict(selector),
            "ports": [{"name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    }
