"""A round of the discovery fails alone: it runs beside the targets, in a loop that an exception would end."""

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from api.client import AsyncClient
from deploy.common.clock import Clock
from deploy.node_discovery.cached_list import ChangesServer
from deploy.node_discovery.discovery import DiscoverySettings, NodeDiscovery
from deploy.node_discovery.metrics import StockMetrics

pytestmark = pytest.mark.anyio
CLOCK = Clock(now=lambda: datetime(2026, 11, 21, tzinfo=UTC))


class OneItem(ChangesServer):
    """An API server with one object in each list."""

    def __init__(self, item: dict[str, Any]) -> None:
        object.__setattr__(self, "item", item)

    item: dict[str, Any]

    async def get(self, path: str, **query: str) -> Any:  # noqa: ARG002 - of the protocol
        return {"metadata": {"resourceVersion": "1"}, "items": [self.item]}


async def test_an_object_of_an_unknown_form_fails_the_round_and_raises_nothing() -> None:
    server = OneItem({"metadata": {"labels": {}}})  # without a name
    async with AsyncClient("http://127.0.0.1:9", token=None) as api:
        metrics = StockMetrics(CollectorRegistry(), stock="main", now=CLOCK.now, holds=lambda: True)
        discovery = NodeDiscovery(
            server=server, api=api, settings=DiscoverySettings(stock="main"), clock=CLOCK, metrics=metrics
        )
        assert await discovery.advance() is False
