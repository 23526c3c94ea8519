"""Replicas of a scaled object, from its pods: which run, which stop first, and which are marked to stop.  Pure.

A replica is one pod; of a LeaderWorkerSet it is a group of pods, whose leader serves.  Of another kind whose pods form
such groups the leaders count.  Which replicas stop when the
count is lowered is a rule of the object's controller:

    StatefulSet, LeaderWorkerSet   the highest ordinals
    Deployment (a ReplicaSet)      pods that are not ready, then the lowest `controller.kubernetes.io/pod-deletion-cost`
    any other                      unknown, so its replicas cannot be drained

The mark of a replica that is to stop is an annotation of its (leader) pod with the time at which the drain began.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, Final

from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.kubernetes_objects import DELETION_COST, DRAIN_BEGAN, Owner, Pod

LEADER_WORKER_SET_GROUP: Final = "leaderworkerset.x-k8s.io"
SET_NAME_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
SIZE_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/size"

COST_BEFORE: Final = "fleetwright.io/deletion-cost-before"
LOWEST_COST: Final = str(-(2**31))

Load = Mapping[str, float]  # pod -> requests; without an entry: not known


@dataclass(frozen=True, slots=True)
class Replica:
    leader: Pod  # the pod that serves
    workers: tuple[Pod, ...] = ()
    hosts: int = 1
    first_ordinal: int = 0  # of its set

    @property
    def name(self) -> str:
        return self.leader.name

    @property
    def ready(self) -> bool:
        return self.hosts <= 1 + len(self.workers) and all(pod.ready for pod in (self.leader, *self.workers))

    @property
    def ordinal(self) -> int | None:
        """Return the position in its StatefulSet or LeaderWorkerSet, from 0: those at the count or above stop."""
        controller, labels = self.leader.metadata.controller, self.leader.metadata.labels
        text = labels.get(GROUP_INDEX_LABEL, "")
        if not text and controller is not None and controller.kind == "StatefulSet":
            text = self.name.rpartition("-")[2]
        return int(text) - self.first_ordinal if text.isdecimal() else None

    @property
    def drain_began(self) -> datetime | None:
        """Return when the replica was marked to stop; None for another one."""
        try:
            began = datetime.fromisoformat(self.leader.metadata.annotations[DRAIN_BEGAN])
        except (KeyError, ValueError):
            return None
        return began if began.tzinfo is not None else None

    @property
    def own_cost(self) -> int:
        """Return the deletion cost that the pod had before it was marked."""
        metadata = self.leader.metadata
        if not self.leader.drains:
            return self.leader.deletion_cost
        try:
            return int(metadata.annotations.get(COST_BEFORE, "0"))
        except ValueError:
            return 0


def replicas_of(pods: Iterable[Pod], *, in_groups: bool = False, first_ordinal: int = 0) -> list[Replica]:
    """Return the replicas that stay; `in_groups`: the pods are those of a LeaderWorkerSet."""
    staying = [pod for pod in pods if pod.active]
    if not in_groups:
        leaders = [pod for pod in staying if pod.metadata.labels.get(WORKER_INDEX_LABEL, "0") == "0"]
        return [Replica(pod, first_ordinal=first_ordinal) for pod in leaders]
    groups: Mapping[str, dict[str, Pod]] = defaultdict(dict)
    for pod in staying:
        labels = pod.metadata.labels
        groups[labels.get(GROUP_INDEX_LABEL, "")][labels.get(WORKER_INDEX_LABEL, "")] = pod
    return [_group(members) for members in groups.values() if "0" in members]


def _group(members: Mapping[str, Pod]) -> Replica:
    leader = members["0"]
    size = leader.metadata.annotations.get(SIZE_ANNOTATION, "1")
    workers = tuple(pod for index, pod in sorted(members.items()) if index != "0")
    return Replica(leader, workers, int(size) if size.isdecimal() else 1)


def running(replicas: Iterable[Replica]) -> int:
    return sum(replica.ready for replica in replicas)


def marked(replicas: Sequence[Replica]) -> list[Replica]:
    """Return the replicas marked to stop that stop next; a mark below an unmarked higher ordinal does not count."""
    if not _have_order(replicas):
        return [replica for replica in replicas if replica.drain_began is not None]
    found = []
    for replica in _by_ordinal(replicas):
        if replica.drain_began is None:
            break
        found.append(replica)
    return found


def extent(replicas: Sequence[Replica]) -> int:
    """Return the lowest count with which none of the replicas stops."""
    if not _have_order(replicas):
        return len(replicas)
    return 1 + max((replica.ordinal or 0 for replica in replicas), default=-1)


def kept(replicas: Sequence[Replica]) -> int:
    """Return the lowest count with which only marked replicas stop."""
    stopping = {replica.name for replica in marked(replicas)}
    return extent([replica for replica in replicas if replica.name not in stopping])


def is_ordered(replicas: Sequence[Replica], *, of: str) -> bool:
    """Return whether the highest ordinals stop first; False: the lowest deletion costs.

    Raise ActuationError where the replicas that stop are not known.
    """
    if _have_order(replicas):
        return True
    owners = _owners(replicas)
    kinds = {owner.kind if owner is not None else "no controller" for owner in owners}
    if kinds != {"ReplicaSet"}:
        names = sorted(f"{owner.kind} {owner.name}" if owner is not None else "no controller" for owner in owners)
        raise ActuationError(
            f"{of} cannot be drained: which replicas stop is known for Deployments, StatefulSets and "
            f"LeaderWorkerSets, and its pods belong to {', '.join(names)}; remove `drain` from the target"
        )
    if len(owners) > 1:
        raise UnreachableError(f"{of} is being updated, so the replicas that stop are not known until that ends")
    return False


def to_stop(replicas: Sequence[Replica], *, keep: int, ordered: bool, load: Load) -> list[Replica]:
    """Return the replicas that stop when the count is `keep`.

    By deletion cost: not ready first, then marked ones, the lowest cost of their owner, the fewest requests, the
    youngest.
    """
    if ordered:
        return [replica for replica in _by_ordinal(replicas) if (replica.ordinal or 0) >= keep]

    def loss(replica: Replica) -> tuple[bool, bool, int, float]:
        requests = load.get(replica.name, inf)
        return (replica.ready, replica.drain_began is None, replica.own_cost, requests)

    youngest_first = sorted(replicas, key=lambda each: (each.leader.metadata.creation_timestamp, each.name))[::-1]
    return sorted(youngest_first, key=loss)[: max(0, len(replicas) - keep)]


def mark(replica: Replica, *, now: datetime, ordered: bool) -> dict[str, Any]:
    """Return the merge patch of the replica's pod that marks it to stop."""
    annotations: dict[str, str | None] = {DRAIN_BEGAN: now.isoformat(timespec="seconds")}
    if not ordered:
        annotations |= {DELETION_COST: LOWEST_COST, COST_BEFORE: str(replica.own_cost) if replica.own_cost else None}
    return _annotated(replica, annotations)


def unmark(replica: Replica) -> dict[str, Any]:
    annotations: dict[str, str | None] = {DRAIN_BEGAN: None, COST_BEFORE: None}
    if replica.leader.metadata.annotations.get(DELETION_COST) == LOWEST_COST:
        annotations[DELETION_COST] = str(replica.own_cost) if replica.own_cost else None
    return _annotated(replica, annotations)


def _annotated(replica: Replica, annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """Return a patch that the API server refuses for another pod of the same name."""
    return {"metadata": {"uid": replica.leader.metadata.uid, "annotations": dict(annotations)}}


def _have_order(replicas: Sequence[Replica]) -> bool:
    return all(replica.ordinal is not None for replica in replicas) and len(_owners(replicas)) <= 1


def _owners(replicas: Iterable[Replica]) -> set[Owner | None]:
    return {replica.leader.metadata.controller for replica in replicas}


def _by_ordinal(replicas: Iterable[Replica]) -> list[Replica]:
    """Return the replicas, the highest ordinal first."""
    return sorted(replicas, key=lambda replica: replica.ordinal or 0, reverse=True)
