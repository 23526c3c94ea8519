"""The discovery of nodes in a controller's process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from api.client import AsyncClient
from deploy.common.clock import Clock
from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server
from deploy.common.leader_election import Leadership
from deploy.node_discovery.cached_list import ChangesServer
from deploy.node_discovery.discovery import DiscoverySettings, NodeDiscovery
from deploy.node_discovery.metrics import StockMetrics


@asynccontextmanager
async def node_discovery(
    settings: DiscoverySettings | None,
    access: KubernetesAccess | None,
    *,
    api: AsyncClient,
    leadership: Leadership,
    registry: CollectorRegistry,
    clock: Clock,
) -> AsyncIterator[NodeDiscovery | None]:
    """Yield the discovery with a connection of its own; None where nothing is to be published."""
    if settings is None or access is None:
        yield None
        return
    async with kubernetes_server(access) as server:
        yield NodeDiscovery(
            server=ChangesServer(server.client, server.renew),
            api=api,
            settings=settings,
            clock=clock,
            metrics=StockMetrics(registry, stock=settings.stock, now=clock.now, holds=lambda: leadership.holds),
        )
