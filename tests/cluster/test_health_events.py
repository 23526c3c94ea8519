"""Nodes of a real API server as the forwarder of health events observes them: cordons, taints and conditions."""

import asyncio

import pytest

from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server
from deploy.common.kubernetes_node_marks import SENTINEL_EVENT
from deploy.health_events.kubernetes_nodes import KubernetesNodes
from deploy.health_events.outlet import ObservedNode
from fleet.stock.node_marks import SENTINEL_LABEL
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.kube_api import KubeApi

pytestmark = pytest.mark.kubernetes
XID = {"type": "SysLogsXIDError", "status": "True", "reason": "Fault", "message": "XID 79: lost"}
DEADLOCK = {"type": "KernelDeadlock", "status": "True", "reason": "TaskHung", "message": "task hung"}


async def observe(kube_api: KubeApi) -> dict[str, ObservedNode]:
    async with kubernetes_server(KubernetesAccess(kubeconfig=kube_api.kubeconfig_path)) as server:
        return dict(await KubernetesNodes(kubernetes=server).observe())


def test_owners_and_conditions_of_the_nodes_of_a_cluster(kube_api: KubeApi, gpu_nodes: GpuNodes) -> None:
    free, cordoned, ours, sick = gpu_nodes.add(4, rack=gpu_nodes.pool)
    core = gpu_nodes.core
    core.patch_node(cordoned, {"spec": {"unschedulable": True}})
    event = {SENTINEL_EVENT: '{"FleetwrightNodeFault": {"agent": "fleetwright"}}'}
    core.patch_node(
        ours,
        {
            "metadata": {"annotations": event, "labels": {SENTINEL_LABEL: "quarantined"}},
            "spec": {"unschedulable": True},
        },
    )
    core.patch_node_status(sick, {"status": {"conditions": [XID, DEADLOCK]}})

    found = asyncio.run(observe(kube_api))

    states = {name: (found[name].available, found[name].owner) for name in (free, cordoned, ours, sick)}
    assert states == {
        free: (True, None),
        cordoned: (False, "cordoned in Kubernetes"),
        ours: (False, None),
        sick: (True, None),
    }
    assert {found[name].domains for name in states} == {(gpu_nodes.pool, "pd-r1")}
    assert [(each.source, each.kind) for each in found[sick].conditions] == [
        ("nvsentinel", "SysLogsXIDError"),
        ("node-problem-detector", "KernelDeadlock"),
    ]
