"""The stock of a real API server: what takes GPUs out of it, what a change costs, and plans on a stale stock."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest
from kubernetes import client
from prometheus_client import CollectorRegistry

from api.client import AsyncClient
from api.client.operations import TOPOLOGY
from api.schemas.applications import KubernetesScale
from api.schemas.targets import Phase
from deploy.actuators.kubernetes_scale.actuator import kubernetes_scale_actuators
from deploy.actuators.registry import Actuators
from deploy.common.clock import Clock
from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server
from deploy.node_discovery.cached_list import ChangesServer
from deploy.node_discovery.discovery import DiscoverySettings, NodeDiscovery
from deploy.node_discovery.metrics import StockMetrics
from fleet.offers import Market, Offer
from fleet.stock import FreeNodes, Stock, StockEntry, StockRef, Unavailable
from planner import PlanRequest
from tests.deploy.controller.harness import Harness, harness_of
from tests.planner.requests import from_offers
from tests.testbed.engine_pages import engine_pages
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.manifests import deployment, kueue_queue
from tests.testbed.service import RunningService
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.anyio]

RIGHTS = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}]
H100 = "H100-SXM"


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    async with harness_of(sqlite_service) as harness:
        yield harness


@pytest.fixture
def access(kube_api: KubeApi, kube_namespace: str) -> KubernetesAccess:
    """Return the access of an account that may list and watch nodes and pods, and nothing else."""
    name, rbac = f"stock-{kube_namespace}", "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": "stock", "namespace": kube_namespace}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
    for item in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "stock", "namespace": kube_namespace}},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": RIGHTS},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "subjects": [account],
            "roleRef": role,
        },
    ):
        kube_api.apply(item)
    return KubernetesAccess(kubeconfig=kube_api.service_account_kubeconfig(namespace=kube_namespace, name="stock"))


class CountingServer(ChangesServer):
    """An API server with the pages of each list that were read from it."""

    lists: Counter[str]

    async def get(self, path: str, **query: str) -> Any:
        self.lists[path] += 1
        return await super().get(path, **query)


@pytest.fixture
async def server(access: KubernetesAccess) -> AsyncIterator[CountingServer]:
    async with kubernetes_server(access) as found:
        server = CountingServer(found.client, found.renew)
        object.__setattr__(server, "lists", Counter())  # a frozen dataclass
        yield server


def discovery_of(server: ChangesServer, api: AsyncClient, harness: Harness, **settings: Any) -> NodeDiscovery:
    clock = Clock(now=harness.clock.now, steady_s=harness.clock.monotonic_s)
    metrics = StockMetrics(CollectorRegistry(), stock="prod", now=clock.now, holds=lambda: True)
    return NodeDiscovery(
        server=server, api=api, settings=DiscoverySettings(stock="prod", **settings), clock=clock, metrics=metrics
    )


def entry_of(stock: Stock, gpu: str) -> StockEntry:
    (found,) = [entry for entry in stock.entries if entry.gpu == gpu]
    return found


async def test_marks_and_foreign_pods_take_gpus_out_of_the_stock_of_a_thousand_nodes(
    *,
    harness: Harness,
    server: CountingServer,
    kube_client: client.ApiClient,
    kube_namespace: str,
    gpu_nodes: GpuNodes,
) -> None:
    nodes = gpu_nodes.add(1000, accelerator=gpu_nodes.pool)
    discovery = discovery_of(server, harness.api, harness)
    whole = entry_of(await discovery.observe(), gpu_nodes.pool)
    listed = dict(server.lists)
    assert (whole.total, whole.available, whole.free) == (8000, 8000, (FreeNodes(gpus=8, nodes=1000),))

    core = client.CoreV1Api(kube_client)
    core.patch_node(nodes[0], {"spec": {"unschedulable": True}})
    core.patch_node(nodes[1], {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}})
    deadlock = {"type": "KernelDeadlock", "status": "True", "reason": "TaskHung", "message": "task hung"}
    core.patch_node_status(nodes[2], {"status": {"conditions": [deadlock]}})
    foreign = deployment("foreign", kube_namespace, gpus=3, replicas=1, nodes={"kubernetes.io/hostname": nodes[4]})
    own = deployment("own", kube_namespace, gpus=5, replicas=1, nodes={"kubernetes.io/hostname": nodes[5]})
    for manifest in (foreign, own):
        client.AppsV1Api(kube_client).create_namespaced_deployment(kube_namespace, manifest)
    application = {"namespace": kube_namespace, "objects": {H100: {"name": "own"}}}
    await harness.register_real("chat", KubernetesScale.model_validate(application))
    wait_for(
        lambda: [pod.spec.node_name for pod in core.list_namespaced_pod(kube_namespace).items],
        lambda placed: sorted(filter(None, placed)) == sorted((nodes[4], nodes[5])),
        what="two placed pods",
    )
    unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    changed = whole
    for _ in range(10):  # the node controller removes the taint again, every five seconds
        if Unavailable.NOT_READY not in changed.unavailable:
            core.patch_node(nodes[3], {"spec": {"taints": [unreachable]}})
            changed = entry_of(await discovery.observe(), gpu_nodes.pool)
    assert set(server.lists) == {"/api/v1/nodes", "/api/v1/pods"}
    assert server.lists["/api/v1/nodes"] >= 2, "in pages, once; a round reads only what changed"
    assert server.lists == listed
    assert changed.unavailable == {
        Unavailable.CORDONED: 8,
        Unavailable.NOT_READY: 8,
        Unavailable.UNHEALTHY_NODE: 16,
        Unavailable.FOREIGN_POD: 3,
    }
    assert (changed.total, changed.available) == (8000, 8000 - 35)
    assert changed.free == (FreeNodes(gpus=8, nodes=995), FreeNodes(gpus=5, nodes=1))

    core.patch_node(nodes[0], {"spec": {"unschedulable": None}})
    core.delete_node(nodes[6])
    released = entry_of(await discovery.observe(), gpu_nodes.pool)
    assert Unavailable.CORDONED not in released.unavailable
    assert released.total == 7992


async def test_the_stock_and_the_topology_are_published_once_until_they_change(
    harness: Harness, server: ChangesServer, kube_client: client.ApiClient, gpu_nodes: GpuNodes
) -> None:
    (name,) = gpu_nodes.add(1, gpus=4)
    discovery = discovery_of(server, harness.api, harness, topology=True)
    assert await discovery.advance()
    first = await harness.api.get_stock("prod")
    assert entry_of_size(first.document.stock, 4).available >= 4
    topology = (await harness.api.get_document(TOPOLOGY)).document
    assert name in topology.index.nodes
    for seconds, version in ((11.0, 1), (90.0, 2)):  # unchanged: written again after a third of the limit
        harness.clock.advance(seconds)
        assert await discovery.advance()
        assert (await harness.api.get_stock("prod")).document.version == version
    client.CoreV1Api(kube_client).patch_node(name, {"spec": {"unschedulable": True}})
    harness.clock.advance(11.0)
    assert await discovery.advance()
    assert (await harness.api.get_stock("prod")).document.version == 3

    other = discovery_of(server, harness.api, harness)  # the next leader
    assert await other.advance()
    assert (await harness.api.get_stock("prod")).document.version == 4


def entry_of_size(stock: Stock, gpus: int) -> StockEntry:
    return next(entry for entry in stock.entries if entry.gpus_per_node == gpus)


@pytest.mark.usefixtures("kueue")
async def test_the_quota_of_a_cluster_queue_bounds_the_stock(
    *, harness: Harness, kube_api: KubeApi, kube_namespace: str, gpu_nodes: GpuNodes
) -> None:
    gpu_nodes.add(2, accelerator=gpu_nodes.pool)
    for item in kueue_queue(gpu_nodes.pool, kube_namespace, gpus=10, nodes=gpu_nodes.selector):
        kube_api.apply(item)
    async with kubernetes_server(KubernetesAccess(kubeconfig=kube_api.kubeconfig_path)) as admin:
        server = ChangesServer(admin.client, admin.renew)
        discovery = discovery_of(server, harness.api, harness, cluster_queues=[gpu_nodes.pool], devices=True)
        found = entry_of(await discovery.observe(), gpu_nodes.pool)
    assert (found.available, found.unavailable) == (10, {Unavailable.QUOTA: 6})


async def test_a_plan_on_a_stale_stock_is_not_applied(
    *,
    harness: Harness,
    server: ChangesServer,
    kube_api: KubeApi,
    kube_client: client.ApiClient,
    kube_namespace: str,
    gpu_nodes: GpuNodes,
) -> None:
    gpu_nodes.add(2)
    manifest = deployment("chat", kube_namespace, gpus=1, replicas=3, nodes=gpu_nodes.selector)
    apps = client.AppsV1Api(kube_client)
    apps.create_namespaced_deployment(kube_namespace, manifest)
    application = {"namespace": kube_namespace, "objects": {H100: {"name": "chat"}}}
    await harness.register_real("llm", KubernetesScale.model_validate(application))
    offer = Offer(
        id="own/h100",
        provider="own",
        region="here",
        market=Market.OWNED,
        gpu=H100,
        price_usd_per_h=2.0,
        stock=StockRef(name="prod"),
        as_of=date(2026, 11, 1),
        source="a test",
    )
    request = PlanRequest.model_validate(from_offers() | {"offers": [offer.model_dump(mode="json")]})
    discovery = discovery_of(server, harness.api, harness)
    assert await discovery.advance()
    harness.clock.advance(600.0)  # in which nothing reads the cluster

    stale = await harness.api.create_plan(request)
    assert stale.plan.stale_stock is not None
    await harness.change("llm", plan_id=stale.id)
    async with kubernetes_server(KubernetesAccess(kubeconfig=kube_api.kubeconfig_path)) as kube:
        with engine_pages() as pages:
            actuators = Actuators(kubernetes_scale=kubernetes_scale_actuators(kube, pages.client))
            controller = harness.controller(actuators=actuators)
            await harness.round(controller)
            refused = await harness.status("llm")
            assert refused.phase is Phase.FAILED
            assert (
                "stock 'prod' was observed 600 s before the plan was solved; allowed: at most 300 s; plan again"
            ) in (refused.message or "")
            assert apps.read_namespaced_deployment_scale("chat", kube_namespace).spec.replicas == 3

            assert await discovery.advance()
            fresh = await harness.api.create_plan(request)
            assert fresh.plan.stale_stock is None
            planned = sum(entry.count for entry in fresh.plan.allocation)
            await harness.change("llm", plan_id=fresh.id)
            await harness.round(controller)
    assert apps.read_namespaced_deployment_scale("chat", kube_namespace).spec.replicas == planned != 3
