"""The fields of a RayCluster and its worker pods that the actuator uses, and what follows from them.  Pure.

Counts are replicas of a worker group: with `numOfHosts` above 1 a replica is that many pods, and it runs when all of
them are ready.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from deploy.common.kubernetes_objects import Condition, Metadata, ObjectPart, Pod

CLUSTER_LABEL = "ray.io/cluster"
GROUP_LABEL = "ray.io/group"
NODE_TYPE_LABEL = "ray.io/node-type"
REPLICA_LABEL = "ray.io/worker-group-replica-name"  # on pods of replicas with several hosts
MAX_REPLICAS = 2**31 - 1  # KubeRay's own default of maxReplicas
KUBERAY = "ray.io/kuberay-operator"

_GROUPS_FIELD = ("f:spec", "f:workerGroupSpecs")


class _ScaleStrategy(ObjectPart):
    workers_to_delete: tuple[str, ...] = ()


class WorkerGroup(ObjectPart):
    """One entry of `spec.workerGroupSpecs`."""

    group_name: str
    replicas: int = 0
    min_replicas: int = 0
    max_replicas: int = MAX_REPLICAS
    num_of_hosts: int = 1
    suspend: bool | None = None
    scale_strategy: _ScaleStrategy = _ScaleStrategy()

    @property
    def requested(self) -> int:
        """Return the replicas that KubeRay runs: it clamps `replicas` to the bounds."""
        return max(self.min_replicas, min(self.replicas, self.max_replicas))

    @property
    def hosts(self) -> int:
        """Return the number of pods of one replica."""
        return max(1, self.num_of_hosts)


class _Spec(ObjectPart):
    worker_group_specs: tuple[WorkerGroup, ...] = ()
    enable_in_tree_autoscaling: bool | None = None
    suspend: bool | None = None
    managed_by: str | None = None


class _Status(ObjectPart):
    conditions: tuple[Condition, ...] = ()


class RayCluster(ObjectPart):
    metadata: Metadata
    spec: _Spec
    status: _Status = _Status()

    @property
    def autoscaled(self) -> bool:
        return bool(self.spec.enable_in_tree_autoscaling)

    def appliers(self, *, ours: str) -> list[str]:
        """Return the managers other than `ours` that own the worker groups by server-side apply and so reset them."""
        return self.metadata.appliers(*_GROUPS_FIELD, ours=ours)

    def last_manager(self) -> str | None:
        """Return the last manager that wrote the worker groups; None where the server does not record it."""
        return self.metadata.last_manager(*_GROUPS_FIELD)


class Worker(Pod):
    @property
    def group(self) -> str | None:
        return self.metadata.labels.get(GROUP_LABEL)


def running_replicas(group: WorkerGroup, workers: Iterable[Worker]) -> int:
    """Return the number of replicas of the group all of whose pods are ready."""
    replicas = _replicas(group, workers)
    return sum(len(pods) >= group.hosts and all(pod.ready for pod in pods) for pods in replicas)


def workers_to_give_up(group: WorkerGroup, workers: Iterable[Worker], *, keep: int) -> tuple[str, ...]:
    """Return a pod of each replica to delete when only `keep` stay: those whose loss costs least.

    Not ready before ready, then by pod-deletion-cost, then the youngest.
    """

    def loss(pods: Sequence[Worker]) -> tuple[bool, int]:
        whole = len(pods) >= group.hosts and all(pod.ready for pod in pods)
        return (whole, max(pod.deletion_cost for pod in pods))

    youngest_first = sorted(
        _replicas(group, workers), key=lambda pods: (pods[0].metadata.creation_timestamp, pods[0].name), reverse=True
    )
    by_loss = sorted(youngest_first, key=loss)  # a stable sort: the youngest comes first among equals
    return tuple(pods[0].name for pods in by_loss[: max(0, len(by_loss) - keep)])


def _replicas(group: WorkerGroup, workers: Iterable[Worker]) -> list[list[Worker]]:
    """Return the pods of each replica without those being deleted; a pod without a replica label is one replica."""
    replicas: Mapping[str, list[Worker]] = defaultdict(list)
    for worker in workers:
        if worker.group == group.group_name and worker.stays:
            replicas[worker.metadata.labels.get(REPLICA_LABEL, worker.name)].append(worker)
    return list(replicas.values())
