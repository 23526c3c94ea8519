"""Publishes the stock of a Kubernetes cluster, and its topology, to the service.

A round reads what changed in the lists, counts, and writes a document only where it differs; an unchanged stock is
written again after a third of its time, so that its age stays below the limit while the cluster responds.  Where the
API server does not respond, nothing is written: the stored stock becomes stale, and plans on it are not applied.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from api.client import AsyncClient, NotFoundError, PreconditionFailedError
from api.client.operations import GPUS, TOPOLOGY
from api.schemas.applications import RayServiceGroups
from api.schemas.pages import PAGE_LIMIT_MAX
from api.schemas.targets import Target
from deploy.actuators.ray_cluster.service import clusters_of_service
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError
from deploy.node_discovery.cached_list import CachedList, ChangesServer
from deploy.node_discovery.metrics import StockMetrics
from deploy.node_discovery.target_pods import target_pods
from fleet.errors import FleetwrightError
from fleet.stock import Stock
from fleet.stock.kubernetes import ClusterObjects, FlavorQuota, count_stock, flavor_quotas, gpu_request
from fleet.topology import topology_from_kubernetes_nodes

log = structlog.get_logger()

PERIOD_S: Final = 10.0
RUNNING_PODS: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
KUEUE: Final = "/apis/kueue.x-k8s.io/v1beta1"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings:
    stock: str  # the name of the stock
    stale_after_s: float = 300.0
    topology: bool = False  # publish the topology too
    devices: bool = False  # read ResourceSlices and ResourceClaims
    cluster_queues: Sequence[str] = ()  # whose quota bounds the stock


def _node(item: Json) -> Json:
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    conditions = [{"type": each["type"], "status": each["status"]} for each in status.get("conditions") or ()]
    return {
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}},
        "spec": {"unschedulable": spec.get("unschedulable", False), "taints": spec.get("taints") or []},
        "status": {
            "capacity": status.get("capacity") or {},
            "allocatable": status.get("allocatable") or {},
            "conditions": conditions,
        },
    }


def _pod(item: Json) -> Json | None:
    """Keep the pods that request GPUs, by the device plugin or by a claim."""
    metadata, spec = item["metadata"], item["spec"]
    if not gpu_request(item) and not spec.get("resourceClaims"):
        return None
    containers = {
        name: [
            {key: each[key] for key in ("resources", "restartPolicy") if key in each} for each in spec.get(name) or ()
        ]
        for name in ("containers", "initContainers")
    }
    return {
        "metadata": {
            key: metadata[key] for key in ("name", "namespace", "labels", "ownerReferences") if key in metadata
        },
        "spec": {"nodeName": spec.get("nodeName"), **containers},
        "status": {"phase": (item.get("status") or {}).get("phase")},
    }


def _slice(item: Json) -> Json:
    return {"metadata": {"name": item["metadata"]["name"]}, "spec": item["spec"]}


def _claim(item: Json) -> Json | None:
    status = item.get("status") or {}
    if not status.get("allocation"):
        return None
    names = {key: item["metadata"][key] for key in ("name", "namespace")}
    return {"metadata": names, "status": {key: status.get(key) for key in ("allocation", "reservedFor")}}


@dataclass(slots=True, kw_only=True)
class NodeDiscovery:
    server: ChangesServer
    api: AsyncClient
    settings: DiscoverySettings
    clock: Clock
    metrics: StockMetrics
    _nodes: CachedList = field(init=False)
    _pods: CachedList = field(init=False)
    _slices: CachedList = field(init=False)
    _claims: CachedList = field(init=False)
    _due_s: float = float("-inf")
    _published: Stock | None = None
    _etag: str | None = None
    _topology_revision: int = -1
    _running: bool = False

    def __post_init__(self) -> None:
        self._nodes = CachedList(path="/api/v1/nodes", keep=_node)
        self._pods = CachedList(path="/api/v1/pods", keep=_pod, query={"fieldSelector": RUNNING_PODS})
        resource = "/apis/resource.k8s.io/v1"
        self._slices = CachedList(path=f"{resource}/resourceslices", keep=_slice, optional=True)
        self._claims = CachedList(path=f"{resource}/resourceclaims", keep=_claim, optional=True)

    async def advance(self) -> bool:
        """Publish what changed, every ten seconds at most; true when the service has the state of the cluster."""
        if self._running or self.clock.steady_s() < self._due_s:
            return True
        self._running = True
        self._due_s = self.clock.steady_s() + PERIOD_S
        try:
            await self._publish()
        except (FleetwrightError, TimeoutError) as error:
            log.warning("node_discovery_failed", reason=str(error) or "not done in time")
            return False
        except Exception:  # a defect, or an object of an unknown form, must not end the controller of the targets
            log.exception("node_discovery_error")
            return False
        finally:
            self._running = False
        return True

    async def observe(self) -> Stock:
        """Read the cluster and count its stock."""
        lists = [self._nodes, self._pods, *((self._slices, self._claims) if self.settings.devices else ())]
        await asyncio.gather(*(each.refresh(self.server, clock=self.clock) for each in lists))
        targets = [target async for target in self.api.iter_targets(limit=PAGE_LIMIT_MAX)]
        objects = ClusterObjects(
            nodes=self._nodes.items,
            pods=self._pods.items,
            slices=self._slices.items,
            claims=self._claims.items,
            quotas=await self._quotas(),
            target_pods=target_pods(self._pods.items, targets, ray_clusters=await self._ray_clusters(targets)),
        )
        namer = await self._gpu_namer()
        return await asyncio.to_thread(
            count_stock,
            objects,
            observed_at=min(each.read_at for each in lists if each.read_at is not None),
            stale_after_s=self.settings.stale_after_s,
            source=f"nodes and pods of the Kubernetes cluster at {self.server.host}",
            gpu_namer=namer,
        )

    async def _publish(self) -> None:
        stock = await self.observe()
        if self._is_new(stock):
            await self._put(stock)
        if self.settings.topology and self._topology_revision != self._nodes.revision:
            revision = self._nodes.revision
            await self._put_topology()
            self._topology_revision = revision

    def _is_new(self, stock: Stock) -> bool:
        before = self._published
        if before is None or before.entries != stock.entries or before.stale_after_s != stock.stale_after_s:
            return True
        return (stock.observed_at - before.observed_at).total_seconds() > stock.stale_after_s / 3

    async def _put(self, stock: Stock) -> None:
        name = self.settings.stock
        if self._etag is None:
            try:
                self._etag = (await self.api.get_stock(name)).etag
            except NotFoundError:
                self._etag = (await self.api.create_stock(name, stock)).etag
                self._set_published(stock)
                return
        etag, self._etag = self._etag, None  # after an error it is read again
        try:
            self._etag = (await self.api.replace_stock(name, stock, if_match=etag)).etag
        except PreconditionFailedError:
            log.info("stock_overtaken", stock=name)  # by another leader; the next round reads its version
            return
        self._set_published(stock)
        log.info("stock_published", stock=name, available=sum(entry.available for entry in stock.entries))

    def _set_published(self, stock: Stock) -> None:
        self._published = stock
        self.metrics.set_published(stock)

    async def _put_topology(self) -> None:
        found = topology_from_kubernetes_nodes(self._nodes.items, gpu_namer=await self._gpu_namer())
        stored = await self.api.get_document(TOPOLOGY)
        if stored.document != found.topology:
            await self.api.replace_document(TOPOLOGY, found.topology, if_match=stored.etag)
            log.info("topology_published", nodes=sum(len(site.nodes) for site in found.topology.sites))

    async def _gpu_namer(self) -> Callable[[str], str]:
        catalogue = (await self.api.get_document(GPUS)).document
        return lambda label: catalogue.get(label).name

    async def _quotas(self) -> tuple[FlavorQuota, ...]:
        if not self.settings.cluster_queues:
            return ()
        queues = [await self.server.get(f"{KUEUE}/clusterqueues/{name}") for name in self.settings.cluster_queues]
        flavors = (await self.server.get(f"{KUEUE}/resourceflavors"))["items"]
        return flavor_quotas(queues, flavors)

    async def _ray_clusters(self, targets: Sequence[Target]) -> Mapping[str, Sequence[str]]:
        """Return the clusters of the targets that follow a RayService, which come and go with its upgrades."""
        found: dict[str, Sequence[str]] = {}
        for target in targets:
            application = target.spec.application
            if isinstance(application, RayServiceGroups):
                try:
                    found[target.name] = await clusters_of_service(
                        self.server, namespace=application.namespace, service=application.service
                    )
                except ActuationError as error:  # of this target alone: its pods count as foreign
                    log.warning("ray_service_unread", target=target.name, reason=str(error))
        return found
