"""Counts the stock of a Kubernetes cluster from its objects, as dicts of the API.

Per node: the GPUs by ResourceSlices where a DRA driver publishes them, else `status.capacity`; minus all GPUs of a node
that is cordoned, not ready or marked by a monitor; minus GPUs that the driver does not offer; minus those of pods that
belong to no target.  GPUs of the targets' own pods count as available, because a plan replaces those pods.  At last the
quota of each flavour bounds the GPUs of its nodes, beginning with the nodes that have the fewest available.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from fleet.errors import UnknownNameError
from fleet.stock.document import MAX_GPUS_PER_NODE, FreeNodes, Stock, StockEntry, Unavailable
from fleet.stock.node_marks import is_cordoned, is_ready, unhealthy_mark
from fleet.topology.labels import GPU_RESOURCES, LabelNames, first_set

GPU_DRIVERS: Final = frozenset(("gpu.nvidia.com", "gpu.amd.com"))  # of DRA
UNKNOWN_GPU: Final = "unknown"
_WHOLE_GPU_TYPES: Final = frozenset((None, "gpu", "amdgpu"))  # the driver's attribute `type`; not a slice of a GPU
_SUFFIXES: Final = {"k": Decimal(1000), "M": Decimal(10) ** 6}
_ENDED: Final = frozenset(("Succeeded", "Failed"))

Json = Mapping[str, Any]
PodName = tuple[str, str]  # namespace and name
Device = tuple[str, str, str]  # driver, pool and name


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorQuota:
    """The GPUs that queues may use on the nodes with these labels."""

    node_labels: Mapping[str, str]
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjects:
    """What was read of a cluster.  Pods without a node or without GPUs may be absent."""

    nodes: Sequence[Json]
    pods: Sequence[Json] = ()
    slices: Sequence[Json] = ()
    claims: Sequence[Json] = ()
    quotas: Sequence[FlavorQuota] = ()
    target_pods: Collection[PodName] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    gpu: str
    labels: Mapping[str, str]
    total: int
    available: int
    unavailable: Mapping[Unavailable, int]


def count_stock(
    objects: ClusterObjects,
    *,
    observed_at: datetime,
    stale_after_s: float,
    source: str,
    labels: LabelNames | None = None,
    gpu_namer: Callable[[str], str] = str,
) -> Stock:
    """Count every GPU of the cluster once: as available, or under one reason."""
    names = labels or LabelNames()
    nodes = _bounded(list(_nodes(objects, names, gpu_namer)), objects.quotas)
    groups: dict[tuple[str, str | None, str | None, str | None, int], list[_Node]] = defaultdict(list)
    for node in nodes:
        place = (first_set(node.labels, each) for each in (names.region, names.zone, names.pool))
        region, zone, pool = place
        groups[node.gpu, region, zone, pool, node.total].append(node)
    entries = tuple(_entry(*key, nodes=group) for key, group in sorted(groups.items(), key=lambda each: str(each[0])))
    return Stock(observed_at=observed_at, stale_after_s=stale_after_s, source=source, entries=entries)


def gpu_request(pod: Json) -> int:
    """GPUs that the scheduler reserves for a pod: of containers and sidecars together, or of the largest init step."""
    spec = pod.get("spec") or {}
    together, largest = sum(map(_container_gpus, spec.get("containers") or ())), 0
    for container in spec.get("initContainers") or ():
        gpus = _container_gpus(container)
        if container.get("restartPolicy") == "Always":  # a sidecar
            together += gpus
        largest = max(largest, gpus)
    return max(together, largest)


def quantity(value: str | float) -> int:
    """A whole number of GPUs as the API writes it: 8, "8" or "1k"."""
    text = str(value)
    try:
        return int(Decimal(text[:-1]) * _SUFFIXES[text[-1]] if text[-1:] in _SUFFIXES else Decimal(text))
    except InvalidOperation:
        return 0


def flavor_quotas(queues: Iterable[Json], flavors: Iterable[Json]) -> tuple[FlavorQuota, ...]:
    """The nominal quota of Kueue's ClusterQueues, summed by flavour, where they give one for GPUs."""
    gpus: Counter[str] = Counter()
    for queue in queues:
        for group in (queue.get("spec") or {}).get("resourceGroups") or ():
            for flavor in group.get("flavors") or ():
                for resource in flavor.get("resources") or ():
                    if resource["name"] in GPU_RESOURCES:
                        gpus[flavor["name"]] += quantity(resource["nominalQuota"])
    labels = {each["metadata"]["name"]: (each.get("spec") or {}).get("nodeLabels") or {} for each in flavors}
    return tuple(
        FlavorQuota(node_labels=labels[name], gpus=count) for name, count in sorted(gpus.items()) if name in labels
    )


def _container_gpus(container: Json) -> int:
    resources = container.get("resources") or {}
    requests = resources.get("requests") or resources.get("limits") or {}  # equal for GPUs
    return sum(quantity(requests.get(name, 0)) for name in GPU_RESOURCES)


def _nodes(objects: ClusterObjects, names: LabelNames, gpu_namer: Callable[[str], str]) -> Iterator[_Node]:
    devices, named = _Devices.of(objects), _Namer(gpu_namer)
    foreign: Counter[str] = Counter()
    for pod in objects.pods:
        on = (pod.get("spec") or {}).get("nodeName")
        if on and _runs(pod) and _name_of(pod) not in objects.target_pods:
            foreign[on] += gpu_request(pod)
    for node in objects.nodes:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        status = node.get("status") or {}
        if total := devices.total[name]:
            offered, used = total - devices.tainted[name], devices.foreign[name] + foreign[name]
        else:
            total = sum(quantity((status.get("capacity") or {}).get(each, 0)) for each in GPU_RESOURCES)
            offered = sum(quantity((status.get("allocatable") or {}).get(each, 0)) for each in GPU_RESOURCES)
            used = foreign[name]
        if 0 < total <= MAX_GPUS_PER_NODE:  # a node with more is virtual, and no plan can use it
            label = first_set(labels, names.gpu) or devices.product.get(name)
            counts = _counts(_reason(node), total=total, offered=min(total, offered), used=used)
            yield _Node(
                gpu=named(label),
                labels=labels,
                total=total,
                available=total - sum(counts.values()),
                unavailable=counts,
            )


class _Namer:
    """Names GPUs by the catalogue, else by their label; each label once, because many nodes have the same."""

    def __init__(self, gpu_namer: Callable[[str], str]) -> None:
        self._gpu_namer = gpu_namer
        self._names: dict[str | None, str] = {None: UNKNOWN_GPU}

    def __call__(self, label: str | None) -> str:
        if label is not None and label not in self._names:
            try:
                self._names[label] = self._gpu_namer(label)
            except UnknownNameError:
                self._names[label] = label[:100]
        return self._names[label]


def _reason(node: Json) -> Unavailable | None:
    """Why no GPU of the node is available."""
    if is_cordoned(node):
        return Unavailable.CORDONED
    if not is_ready(node):
        return Unavailable.NOT_READY
    return Unavailable.UNHEALTHY_NODE if unhealthy_mark(node) is not None else None


def _counts(reason: Unavailable | None, *, total: int, offered: int, used: int) -> Mapping[Unavailable, int]:
    if reason is not None:
        return {reason: total}
    counts = {Unavailable.UNHEALTHY_GPU: total - offered, Unavailable.FOREIGN_POD: min(used, offered)}
    return {each: gpus for each, gpus in counts.items() if gpus}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Devices:
    """The GPUs that DRA drivers publish, by node."""

    total: Counter[str]
    tainted: Counter[str]
    foreign: Counter[str]  # of devices without a taint
    product: Mapping[str, str]

    @classmethod
    def of(cls, objects: ClusterObjects) -> "_Devices":
        newest: dict[tuple[str, str], int] = {}  # a driver replaces a pool by slices of a higher generation
        for each in objects.slices:
            spec = each["spec"]
            pool = (spec["driver"], spec["pool"]["name"])
            newest[pool] = max(newest.get(pool, 0), spec["pool"].get("generation", 0))
        held = _held_devices(objects)
        found = cls(total=Counter(), tainted=Counter(), foreign=Counter(), product={})
        product: dict[str, str] = {}
        for each in objects.slices:
            spec = each["spec"]
            driver, pool, node = spec["driver"], spec["pool"], spec.get("nodeName")
            is_newest = pool.get("generation", 0) == newest[driver, pool["name"]]
            if driver not in GPU_DRIVERS or not node or not is_newest:
                continue
            for device in spec.get("devices") or ():
                attributes = device.get("attributes") or {}
                if (attributes.get("type") or {}).get("string") not in _WHOLE_GPU_TYPES:
                    continue
                found.total[node] += 1
                if any(taint.get("effect") in {"NoSchedule", "NoExecute"} for taint in device.get("taints") or ()):
                    found.tainted[node] += 1
                elif (driver, pool["name"], device["name"]) in held:
                    found.foreign[node] += 1
                if named := (attributes.get("productName") or {}).get("string"):
                    product.setdefault(node, named)
        return replace(found, product=product)


def _held_devices(objects: ClusterObjects) -> frozenset[Device]:
    """Devices of claims that not only pods of targets have reserved."""
    return frozenset(
        (result["driver"], result["pool"], result["device"])
        for claim in objects.claims
        if not _is_of_targets(claim, objects.target_pods)
        for result in _results(claim)
        if not result.get("adminAccess")  # a monitor, beside the pod that uses the device
    )


def _results(claim: Json) -> Sequence[Json]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or ()


def _is_of_targets(claim: Json, target_pods: Collection[PodName]) -> bool:
    users = (claim.get("status") or {}).get("reservedFor") or ()
    namespace = claim["metadata"].get("namespace", "")
    return bool(users) and all(
        each.get("resource") == "pods" and (namespace, each["name"]) in target_pods for each in users
    )


def _bounded(nodes: Sequence[_Node], quotas: Sequence[FlavorQuota]) -> list[_Node]:
    """Take what is beyond the quota of each flavour, from the nodes with the fewest available GPUs first."""
    bounded = list(nodes)
    for quota in quotas:
        inside = [position for position, node in enumerate(bounded) if quota.node_labels.items() <= node.labels.items()]
        excess = sum(bounded[position].available for position in inside) - quota.gpus
        for position in sorted(inside, key=lambda each: (bounded[each].available, each)):
            if excess <= 0:
                break
            node = bounded[position]
            taken = min(excess, node.available)
            excess -= taken
            if taken:
                more = {Unavailable.QUOTA: node.unavailable.get(Unavailable.QUOTA, 0) + taken}
                bounded[position] = replace(
                    node, available=node.available - taken, unavailable={**node.unavailable, **more}
                )
    return bounded


def _entry(
    gpu: str, region: str | None, zone: str | None, pool: str | None, size: int, *, nodes: Sequence[_Node]
) -> StockEntry:
    unavailable: Counter[Unavailable] = Counter()
    for node in nodes:
        unavailable.update(node.unavailable)
    free = Counter(node.available for node in nodes if node.available)
    return StockEntry(
        gpu=gpu,
        region=region,
        zone=zone,
        pool=pool,
        gpus_per_node=size,
        total=size * len(nodes),
        available=sum(node.available for node in nodes),
        unavailable={reason: unavailable[reason] for reason in Unavailable if unavailable[reason]},
        free=tuple(FreeNodes(gpus=gpus, nodes=count) for gpus, count in sorted(free.items(), reverse=True)),
    )


def _runs(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") not in _ENDED


def _name_of(pod: Json) -> PodName:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
