"""LeaderWorkerSet (leaderworkerset.x-k8s.io/v1): one set for each replica group, and a Service for the leaders.

A replica is a group of pods, one on each of its nodes.  The leader runs the API server.
"""

from collections.abc import Iterator
from typing import Final

from planner.engine_flags import ServingEngine
from planner.export.groups import ReplicaGroup
from planner.export.limits import OF_MANIFESTS, WEIGHTS
from planner.export.manifests import Export, ExportedFile, Manifest, engine_container, pod_spec, ready, service
from planner.export.provenance import PREFIX

NOT_EXPRESSED: Final = (
    WEIGHTS,
    "The proxy between prefill and decode replicas: the sets carry the label fleetwright.io/role.",
    *OF_MANIFESTS,
)
API_VERSION: Final = "leaderworkerset.x-k8s.io/v1"
SET_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
LEADER: Final = {f"{PREFIX}/node": "leader"}
WORKER: Final = {f"{PREFIX}/node": "worker"}
RENDEZVOUS_PORT: Final = 20000


def files(export: Export) -> Iterator[ExportedFile]:
    for workload in export.workloads:
        yield export.yaml_file(workload, [each for group in workload.groups for each in manifests(export, group)])


def manifests(export: Export, group: ReplicaGroup) -> Iterator[Manifest]:
    yield leader_worker_set(export, group, labels={f"{PREFIX}/role": group.role})
    yield service(export, group.name, {SET_LABEL: group.name, **LEADER})


def leader_worker_set(export: Export, group: ReplicaGroup, *, labels: dict[str, str]) -> Manifest:
    """A set whose leaders carry the labels; workers must not receive requests."""
    leader = ready(engine_container(export, group, name="leader", args=node_flags(export, group)))
    worker = engine_container(export, group, name="worker", args=node_flags(export, group, worker=True))
    nodes = group.nodes_per_replica
    template = {"metadata": {"labels": {**labels, **LEADER}}, "spec": pod_spec(export, group, [leader])}
    alone = {"size": 1, "workerTemplate": template}  # without workers the only template is the leader's
    together = {
        "size": nodes,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": template,
        "workerTemplate": {"metadata": {"labels": WORKER}, "spec": pod_spec(export, group, [worker])},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "LeaderWorkerSet",
        "metadata": export.metadata(group.name, group=group),
        "spec": {"replicas": group.count, "leaderWorkerTemplate": alone if nodes == 1 else together},
    }


def node_flags(export: Export, group: ReplicaGroup, *, worker: bool = False) -> list[str]:
    """The flags that join the nodes of a replica, with the variables that LeaderWorkerSet gives every pod."""
    if group.nodes_per_replica == 1:
        return []
    common = ["--nnodes", str(group.nodes_per_replica), "--node-rank", "$(LWS_WORKER_INDEX)"]
    if export.settings.engine is ServingEngine.SGLANG:
        return [*common, "--dist-init-addr", f"$(LWS_LEADER_ADDRESS):{RENDEZVOUS_PORT}"]
    return [*common, "--master-addr", "$(LWS_LEADER_ADDRESS)", *(["--headless"] if worker else [])]
