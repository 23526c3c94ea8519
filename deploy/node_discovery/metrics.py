"""Metrics of the published stock, from the leader only: another process does not know the age."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleet.stock import Stock, Unavailable

AVAILABLE = "available"


class StockMetrics(Collector):
    def __init__(
        self, registry: CollectorRegistry, *, stock: str, now: Callable[[], datetime], holds: Callable[[], bool]
    ) -> None:
        self._name, self._now, self._holds = stock, now, holds
        self._published: Stock | None = None
        registry.register(self)

    def set_published(self, stock: Stock) -> None:
        self._published = stock

    def collect(self) -> Iterator[Metric]:
        stock = self._published if self._holds() else None
        age = GaugeMetricFamily(
            "fleetwright_stock_age_seconds", "Time since the observation of the published stock.", labels=["stock"]
        )
        limit = GaugeMetricFamily(
            "fleetwright_stock_stale_after_seconds",
            "Age above which no plan on the stock is applied.",
            labels=["stock"],
        )
        gpus = GaugeMetricFamily(
            "fleetwright_stock_gpus",
            "GPUs of the published stock, by state: available, or why a plan may not use them.",
            labels=["stock", "state"],
        )
        if stock is not None:
            age.add_metric([self._name], stock.age_s(self._now()))
            limit.add_metric([self._name], stock.stale_after_s)
            for state, count in _gpus(stock).items():
                gpus.add_metric([self._name, state], count)
        yield from (age, limit, gpus)


def _gpus(stock: Stock) -> dict[str, int]:
    counts = Counter(dict.fromkeys((AVAILABLE, *Unavailable), 0))
    for entry in stock.entries:
        counts[AVAILABLE] += entry.available
        counts.update(entry.unavailable)
    return dict(counts)
