"""NVIDIA Dynamo: a DynamoGraphDeployment (nvidia.com/v1beta1) for each workload, or one for each way to serve it.

Components are a frontend and one worker for each replica group.  Prefill and decode workers are in a graph of their
own, because a graph either splits requests or does not.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from planner.engine_flags import ServingEngine
from planner.export.groups import ReplicaGroup, WorkloadGroups
from planner.export.limits import OF_MANIFESTS, WEIGHTS
from planner.export.manifests import Export, ExportedFile, Manifest, gpu_container, group_annotations, pod_spec
from planner.export.settings import Images

RELEASE: Final = "1.5.0"
NOT_EXPRESSED: Final = (
    WEIGHTS,
    "Dynamo's GlobalRouter: its pools by input length are not written; one frontend serves all groups of a graph.",
    f"The engine version: without --image it is that of Dynamo's runtime {RELEASE}.",
    *OF_MANIFESTS,
)
IMAGES: Final[Images] = {
    engine: {"nvidia": f"nvcr.io/nvidia/ai-dynamo/{engine}-runtime:{RELEASE}"} for engine in ServingEngine
}
TYPES: Final = {"both": "worker", "prefill": "prefill", "decode": "decode"}


def files(export: Export) -> Iterator[ExportedFile]:
    for workload in export.workloads:
        yield export.yaml_file(workload, _graphs(export, workload))


def _graphs(export: Export, workload: WorkloadGroups) -> Iterator[Manifest]:
    if workload.whole:
        yield _graph(export, workload.name, workload.whole)
    if workload.prefill:
        yield _graph(export, workload.split_name, (*workload.prefill, *workload.decode))


def _graph(export: Export, name: str, groups: Sequence[ReplicaGroup]) -> Manifest:
    frontend = {"name": "main", "image": export.image(groups[0]), "command": ["python3", "-m", "dynamo.frontend"]}
    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": export.metadata(name),
        "spec": {
            "backendFramework": str(export.settings.engine),
            "components": [
                {
                    "name": "frontend",
                    "type": "frontend",
                    "replicas": 1,
                    "podTemplate": {"spec": {"containers": [frontend]}},
                },
                *(_worker(export, group) for group in groups),
            ],
        },
    }


def _worker(export: Export, group: ReplicaGroup) -> Manifest:
    found: Manifest = {
        "name": group.name,
        "type": TYPES[group.role],
        "replicas": group.count,
        "podTemplate": {
            "metadata": {"annotations": group_annotations(group)},
            "spec": pod_spec(export, group, [_main(export, group)]),
        },
    }
    if group.nodes_per_replica > 1:
        found["multinode"] = {"nodeCount": group.nodes_per_replica}
    return found


def _main(export: Export, group: ReplicaGroup) -> Manifest:
    """The operator adds ports and probes to the container `main`, and the node flags of several nodes."""
    engine = export.settings.engine
    args = list(export.flags(group))
    if engine is ServingEngine.VLLM:
        role = [] if group.role == "both" else ["--disaggregation-mode", group.role]
        args = ["--model", group.settings.checkpoint, *role, *args]
    main = gpu_container(export, group, name="main")
    return {**main, "command": ["python3", "-m", f"dynamo.{engine}"], "args": args}
