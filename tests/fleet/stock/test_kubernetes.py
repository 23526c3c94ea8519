"""Counting the stock of a Kubernetes cluster, compared with a count of single GPUs."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.stock.document import FreeNodes, Stock, Unavailable
from fleet.stock.kubernetes import (
    ClusterObjects,
    FlavorQuota,
    count_stock,
    flavor_quotas,
    gpu_request,
    quantity,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
READY = {"type": "Ready", "status": "True"}
MARKS: tuple[tuple[Unavailable | None, dict[str, Any]], ...] = (
    (None, {}),
    (Unavailable.CORDONED, {"unschedulable": True}),
    (Unavailable.NOT_READY, {"ready": "Unknown"}),
    (Unavailable.NOT_READY, {"taint": "node.kubernetes.io/unreachable"}),
    (Unavailable.UNHEALTHY_NODE, {"taint": "karpenter.sh/disrupted"}),
    (Unavailable.UNHEALTHY_NODE, {"taint": "nvidia.com/gpu-xid-error"}),
    (Unavailable.UNHEALTHY_NODE, {"condition": ("KernelDeadlock", "True")}),
    (Unavailable.UNHEALTHY_NODE, {"condition": ("SysLogsGPUFallenOff", "True")}),
    (Unavailable.UNHEALTHY_NODE, {"condition": ("FleetwrightHealthy", "False")}),
    (Unavailable.UNHEALTHY_NODE, {"labels": {"dgxc.nvidia.com/nvsentinel-state": "draining"}}),
    (None, {"labels": {"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}}),
    (None, {"condition": ("KernelDeadlock", "False")}),
    (None, {"taint": "nvidia.com/gpu"}),
)


def node(
    name: str,
    gpus: int = 8,
    *,
    offered: int | None = None,
    unschedulable: bool = False,
    ready: str = "True",
    taint: str | None = None,
    condition: tuple[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}]
    conditions += [] if condition is None else [{"type": condition[0], "status": condition[1]}]
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "H100"} | (labels or {})},
        "spec": {
            "unschedulable": unschedulable,
            "taints": [] if taint is None else [{"key": taint, "effect": "NoSchedule"}],
        },
        "status": {
            "capacity": {"nvidia.com/gpu": str(gpus)},
            "allocatable": {"nvidia.com/gpu": str(gpus if offered is None else offered)},
            "conditions": conditions,
        },
    }


def pod(name: str, on: str, gpus: int, *, phase: str = "Running") -> dict[str, Any]:
    container = {"resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "metadata": {"name": name, "namespace": "chat"},
        "spec": {"nodeName": on, "containers": [container]},
        "status": {"phase": phase},
    }


def count(nodes: Sequence[dict[str, Any]], **objects: Any) -> Stock:
    return count_stock(ClusterObjects(nodes=nodes, **objects), observed_at=NOW, stale_after_s=300.0, source="a test")


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Any], list[Any], set[tuple[str, str]]]:
    """Nodes with their reason, pods with their GPUs, and the pods of targets."""
    nodes, pods, own = [], [], set()
    for position in range(draw(st.integers(1, 6))):
        gpus = draw(st.sampled_from((4, 8)))
        offered = draw(st.integers(0, gpus))
        reason, mark = draw(st.sampled_from(MARKS))
        nodes.append((f"n{position}", gpus, offered, reason, mark))
        left = offered
        for number in range(draw(st.integers(0, 3))):
            used = draw(st.integers(0, left))
            left -= used
            name = f"p{position}-{number}"
            pods.append((name, f"n{position}", used, draw(st.sampled_from(("Running", "Pending", "Failed")))))
            if draw(st.booleans()):
                own.add(("chat", name))
    return nodes, pods, own


@given(clusters())
def test_every_gpu_is_counted_once_under_its_reason(cluster: tuple[list[Any], list[Any], set[tuple[str, str]]]) -> None:
    nodes, pods, own = cluster
    found = count(
        [node(name, gpus, offered=offered, **mark) for name, gpus, offered, _reason, mark in nodes],
        pods=[pod(name, on, used, phase=phase) for name, on, used, phase in pods],
        target_pods=own,
    )
    expected: Counter[str] = Counter()
    free: Counter[tuple[int, int]] = Counter()
    for name, gpus, offered, reason, _mark in nodes:
        slots = ["free"] * offered + [Unavailable.UNHEALTHY_GPU.value] * (gpus - offered)
        for pod_name, on, used, phase in pods:
            for _gpu in range(used if on == name and phase != "Failed" and ("chat", pod_name) not in own else 0):
                slots[slots.index("free")] = Unavailable.FOREIGN_POD.value
        if reason is not None:
            slots = [reason.value] * gpus
        expected.update(slots)
        if slots.count("free"):
            free[gpus, slots.count("free")] += 1
    counted: Counter[str] = Counter()
    for entry in found.entries:
        counted.update({reason.value: gpus for reason, gpus in entry.unavailable.items()})
        counted["free"] += entry.available
        assert Counter({(entry.gpus_per_node, each.gpus): each.nodes for each in entry.free}) == Counter(
            {key: nodes for key, nodes in free.items() if key[0] == entry.gpus_per_node}
        )
    assert counted == expected
    assert sum(entry.total for entry in found.entries) == sum(gpus for _name, gpus, *_rest in nodes)


@given(
    free=st.lists(st.integers(0, 8), min_size=1, max_size=8),
    pools=st.lists(st.sampled_from(("a", "b")), min_size=8, max_size=8),
    quotas=st.dictionaries(st.sampled_from(("a", "b")), st.integers(0, 70)),
)
def test_no_flavour_has_more_than_its_quota_and_no_gpu_is_lost(
    free: list[int], pools: list[str], quotas: dict[str, int]
) -> None:
    nodes = [node(f"n{position}", labels={"fleetwright.io/pool": pools[position]}) for position in range(len(free))]
    pods = [pod(f"p{position}", f"n{position}", 8 - gpus) for position, gpus in enumerate(free)]
    found = count(
        nodes,
        pods=pods,
        quotas=[FlavorQuota(node_labels={"fleetwright.io/pool": pool}, gpus=gpus) for pool, gpus in quotas.items()],
    )
    for entry in found.entries:
        unbounded = sum(gpus for gpus, pool in zip(free, pools, strict=False) if pool == entry.pool)
        allowed = min(unbounded, quotas.get(entry.pool or "", unbounded))
        assert entry.available == allowed
        assert entry.unavailable.get(Unavailable.QUOTA, 0) == unbounded - allowed


@pytest.mark.parametrize(("reason", "mark"), MARKS)
def test_a_mark_takes_the_whole_node(reason: Unavailable | None, mark: dict[str, Any]) -> None:
    (entry,) = count([node("n0", **mark)]).entries
    assert entry.unavailable == ({} if reason is None else {reason: 8})


def test_a_virtual_node_with_more_gpus_than_a_node_can_have_is_left_out() -> None:
    assert count([node("gpu-a"), node("virtual", 2_000)]) == count([node("gpu-a")])


def test_entries_are_by_type_place_pool_and_size() -> None:
    labels = {"topology.kubernetes.io/region": "north", "topology.kubernetes.io/zone": "a"}
    found = count(
        [
            node("n0", labels=labels | {"karpenter.sh/nodepool": "h100"}),
            node("n1", labels=labels | {"karpenter.sh/nodepool": "h100"}),
            node("n2", 4, labels=labels),
            node("n3", 0),
        ]
    )
    assert [(each.region, each.zone, each.pool, each.gpus_per_node, each.total) for each in found.entries] == [
        ("north", "a", "h100", 8, 16),
        ("north", "a", None, 4, 4),
    ]


def device(name: str, *, kind: str = "gpu", taint: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "attributes": {"type": {"string": kind}, "productName": {"string": "NVIDIA H100 80GB HBM3"}},
        "taints": [{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}] if taint else [],
    }


def resource_slice(*devices: dict[str, Any], generation: int = 1, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    pool = {"name": "n0", "generation": generation, "resourceSliceCount": 1}
    return {"spec": {"driver": driver, "nodeName": "n0", "pool": pool, "devices": list(devices)}}


def claim(held: str, *pods: str) -> dict[str, Any]:
    result = {"driver": "gpu.nvidia.com", "pool": "n0", "device": held, "request": "gpu"}
    return {
        "metadata": {"name": held, "namespace": "chat"},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": name} for name in pods],
        },
    }


def test_devices_of_resource_slices_replace_the_capacity_of_a_node() -> None:
    gpus = [device("gpu-0"), device("gpu-1"), device("gpu-2", taint=True), device("gpu-3")]
    mig = device("gpu-0-mig-1", kind="mig")
    unlabelled = node("n0", 0)
    del unlabelled["metadata"]["labels"]["nvidia.com/gpu.product"]
    found = count(
        [unlabelled],
        slices=[
            resource_slice(device("gpu-0"), generation=1),  # replaced by the next generation
            resource_slice(*gpus, mig, generation=2),
            resource_slice(device("nic-0"), driver="nic.example.com"),
        ],
        claims=[claim("gpu-0", "own"), claim("gpu-1", "other")],
        target_pods={("chat", "own")},
    )
    (entry,) = found.entries
    assert (entry.gpu, entry.total, entry.available) == ("NVIDIA H100 80GB HBM3", 4, 2)
    assert entry.unavailable == {Unavailable.UNHEALTHY_GPU: 1, Unavailable.FOREIGN_POD: 1}
    assert entry.free == (FreeNodes(gpus=2, nodes=1),)


def test_the_request_of_a_pod_counts_sidecars_and_the_largest_init_step() -> None:
    def container(gpus: int, **more: str) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": gpus}}, **more}

    assert gpu_request({"spec": {"containers": [container(2), container(1)]}}) == 3
    assert gpu_request({"spec": {"containers": [container(1)], "initContainers": [container(4)]}}) == 4
    sidecar = container(1, restartPolicy="Always")
    assert gpu_request({"spec": {"containers": [container(2)], "initContainers": [sidecar]}}) == 3


def test_nominal_quota_is_summed_by_flavour() -> None:
    def queue(*gpus: Any) -> dict[str, Any]:
        flavors = [
            {
                "name": f"f{each}",
                "resources": [{"name": "cpu", "nominalQuota": 9}, {"name": "nvidia.com/gpu", "nominalQuota": count}],
            }
            for each, count in enumerate(gpus)
        ]
        return {"spec": {"resourceGroups": [{"flavors": flavors}]}}

    flavors = [{"metadata": {"name": f"f{each}"}, "spec": {"nodeLabels": {"pool": str(each)}}} for each in range(2)]
    assert flavor_quotas([queue("8", 16), queue("1k", 0, 99)], flavors) == (
        FlavorQuota(node_labels={"pool": "0"}, gpus=1008),
        FlavorQuota(node_labels={"pool": "1"}, gpus=16),
    )
    assert [quantity(each) for each in ("8", 8, "2k", "many")] == [8, 8, 2000, 0]
