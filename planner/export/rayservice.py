"""KubeRay: a RayService (ray.io/v1) for each workload, with a Ray Serve LLM application and worker group per group.

Ray Serve LLM routes by model id, so each option of a workload has an id of its own.  A prefill and a decode option are
one application of `build_pd_openai_app`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fleet.documents import Violation
from fleet.yaml_reader import dump_yaml
from planner.engine_flags import ENGINE_VERSIONS, ServingEngine, vllm_flags
from planner.export.groups import ReplicaGroup, WorkloadGroups
from planner.export.limits import OF_MANIFESTS
from planner.export.manifests import Export, ExportedFile, Manifest, gpu_container, group_annotations, pod_spec
from planner.export.settings import Images

RAY_VERSION: Final = "2.56.0"
IMAGES: Final[Images] = {ServingEngine.VLLM: {"nvidia": f"rayproject/ray-llm:{RAY_VERSION}-py312-cu130"}}
NOT_EXPRESSED: Final = (
    "Routing weights: each option has a model id of its own; the ConfigMap NAME-routing has the weights to choose by.",
    "A workload that joins several prefill or several decode options, and data-parallel attention.",
    f"The engine version: flags are for vLLM {ENGINE_VERSIONS[ServingEngine.VLLM]}; without --image Ray chooses it.",
    *OF_MANIFESTS,
)


def violations(export: Export) -> Iterator[Violation]:
    for group in (group for workload in export.workloads for group in workload.groups):
        if group.settings.attention_data_parallel > 1:
            yield ("to",), f"rayservice: {group.option} has data-parallel attention; use lws, dynamo or llm-d for it"
    if export.settings.engine is not ServingEngine.VLLM:
        yield ("engine",), f"is {export.settings.engine}, expected vllm: Ray Serve LLM runs vLLM"
    for workload in export.workloads:
        if len(workload.prefill) > 1 or len(workload.decode) > 1:
            yield (
                ("to",),
                (
                    f"rayservice: an application joins one prefill and one decode option, and {workload.workload} has "
                    f"{len(workload.prefill)} and {len(workload.decode)}; use lws, dynamo or llm-d"
                ),
            )


def files(export: Export) -> Iterator[ExportedFile]:
    for workload in export.workloads:
        yield export.yaml_file(workload, [_service(export, workload)])


def _service(export: Export, workload: WorkloadGroups) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": export.metadata(workload.name),
        "spec": {
            "serveConfigV2": dump_yaml({"applications": list(_applications(workload))}),
            "rayClusterConfig": {
                "rayVersion": RAY_VERSION,
                "headGroupSpec": {
                    "rayStartParams": {"num-cpus": "0", "num-gpus": "0"},
                    "template": {"spec": {"containers": [_head(export.image(workload.groups[0]))]}},
                },
                "workerGroupSpecs": [_worker_group(export, group) for group in workload.groups],
            },
        },
    }


def _applications(workload: WorkloadGroups) -> Iterator[Manifest]:
    """One application serves all options of whole requests; the split is another one."""
    if workload.whole:
        yield {
            "name": workload.name,
            "route_prefix": "/",
            "import_path": "ray.serve.llm:build_openai_app",
            "args": {"llm_configs": [_llm_config(group, model_id=group.name) for group in workload.whole]},
        }
    if workload.prefill:
        name = workload.split_name
        yield {
            "name": name,
            "route_prefix": f"/{name}" if workload.whole else "/",
            "import_path": "ray.serve.llm:build_pd_openai_app",
            "args": {
                "prefill_config": _llm_config(workload.prefill[0], model_id=name),
                "decode_config": _llm_config(workload.decode[0], model_id=name),
            },
        }


def _llm_config(group: ReplicaGroup, *, model_id: str) -> Manifest:
    found: Manifest = {
        "model_loading_config": {"model_id": model_id, "model_source": group.settings.checkpoint},
        "deployment_config": {"num_replicas": group.count, "max_ongoing_requests": group.settings.max_sequences},
        "engine_kwargs": _engine_kwargs(group),
    }
    if group.gpu.ray_accelerator is not None:
        found["accelerator_type"] = group.gpu.ray_accelerator
    return found


def _engine_kwargs(group: ReplicaGroup) -> dict[str, Any]:
    """The flags of vLLM as arguments of its engine, with the same names."""
    words = list(vllm_flags(group.settings))
    found: dict[str, Any] = {}
    for position, word in enumerate(words):
        if word.startswith("--"):
            value = words[position + 1] if position + 1 < len(words) else "--"
            found[word.removeprefix("--").replace("-", "_")] = True if value.startswith("--") else _value(value)
    return found


def _value(text: str) -> Any:
    """Numbers and JSON objects as such, and everything else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _head(image: str) -> Manifest:
    ports: Mapping[str, int] = {"gcs": 6379, "dashboard": 8265, "client": 10001, "serve": 8000}
    resources = {"cpu": "2", "memory": "8Gi"}
    return {
        "name": "ray-head",
        "image": image,
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "resources": {"limits": resources, "requests": dict(resources)},
    }


def _worker_group(export: Export, group: ReplicaGroup) -> Manifest:
    """One unit of the group, of one pod for each node, is one replica."""
    worker = gpu_container(export, group, name="ray-worker")
    return {
        "groupName": group.name,
        "replicas": group.count,
        "minReplicas": group.count,
        "maxReplicas": group.count,
        "numOfHosts": group.nodes_per_replica,
        "rayStartParams": {},
        "template": {
            "metadata": {"annotations": group_annotations(group)},
            "spec": pod_spec(export, group, [worker]),
        },
    }
