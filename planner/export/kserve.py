"""KServe: an LLMInferenceService (serving.kserve.io/v1alpha2) for each option, or for a prefill and a decode option.

Services of a workload share one route, which sends requests by weight: each option's share of the workload.
KServe's own templates start vLLM; `VLLM_ADDITIONAL_ARGS` passes the engine flags.
"""

import shlex
from collections.abc import Iterator
from typing import Final

from fleet.documents import Violation
from planner.engine_flags import ENGINE_VERSIONS, ServingEngine
from planner.export.groups import ReplicaGroup, WorkloadGroups
from planner.export.limits import OF_MANIFESTS
from planner.export.manifests import Export, ExportedFile, Manifest, gpu_container, pod_spec
from planner.export.settings import Images

NOT_EXPRESSED: Final = (
    "Routing weights by request size: the route has each service's mean weight, and the ConfigMap NAME-routing all.",
    "Several GPU types in one LLMInferenceService: each option is a service of its own on the route of its workload.",
    "A workload that joins several prefill or several decode options, and replicas over several nodes.",
    f"The engine version: flags are for vLLM {ENGINE_VERSIONS[ServingEngine.VLLM]}; without --image KServe chooses it.",
    *OF_MANIFESTS,
)
IMAGES: Final[Images] = {ServingEngine.VLLM: {"nvidia": ""}}  # that of KServe's template
WHOLE: Final = 1_000_000  # highest weight of a route


def violations(export: Export) -> Iterator[Violation]:
    if export.settings.engine is not ServingEngine.VLLM:
        yield ("engine",), f"is {export.settings.engine}, expected vllm: KServe's templates start vLLM"
    for group in (group for workload in export.workloads for group in workload.groups):
        if group.nodes_per_replica > 1:
            yield ("to",), f"kserve: a replica of {group.option} takes {group.nodes_per_replica} nodes; use lws for it"
    for workload in export.workloads:
        if len(workload.prefill) > 1 or len(workload.decode) > 1:
            yield (
                ("to",),
                (
                    f"kserve: a service joins one prefill and one decode option, and {workload.workload} has "
                    f"{len(workload.prefill)} and {len(workload.decode)}; use lws, dynamo or llm-d"
                ),
            )


def files(export: Export) -> Iterator[ExportedFile]:
    for workload in export.workloads:
        yield export.yaml_file(workload, _manifests(export, workload))


def _manifests(export: Export, workload: WorkloadGroups) -> Iterator[Manifest]:
    for group in workload.whole:
        yield _service(export, workload, group)
    for decode in workload.decode:
        yield _service(export, workload, decode, prefill=workload.prefill[0])


def _service(
    export: Export, workload: WorkloadGroups, group: ReplicaGroup, *, prefill: ReplicaGroup | None = None
) -> Manifest:
    route = {"group": workload.name, "weight": round(group.share * WHOLE)}
    spec: Manifest = {
        "model": {"uri": f"hf://{workload.checkpoint}", "name": workload.checkpoint},
        "replicas": group.count,
        "template": _pods(export, group),
        "router": {"gateway": {}, "route": route, "scheduler": {}},
    }
    if prefill is not None:
        spec["prefill"] = {"replicas": prefill.count, "template": _pods(export, prefill)}
    return {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": export.metadata(group.name, group=group),
        "spec": spec,
    }


def _pods(export: Export, group: ReplicaGroup) -> Manifest:
    """The container `main` extends that of KServe's template, which has the command, ports and probes."""
    main = gpu_container(export, group, name="main")
    arguments = {"name": "VLLM_ADDITIONAL_ARGS", "value": shlex.join(export.flags(group))}
    return pod_spec(export, group, [{**main, "env": [*main.get("env", ()), arguments]}])
