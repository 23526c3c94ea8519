"""Tests of the metrics of the stock: its age, its GPUs by state, and silence of a process that does not lead."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.node_discovery.metrics import StockMetrics
from fleet.stock import FreeNodes, Stock, StockEntry, Unavailable

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def entry(gpu: str, *, free: int, **unavailable: int) -> StockEntry:
    return StockEntry(
        gpu=gpu,
        gpus_per_node=8,
        total=8 * free + sum(unavailable.values()),
        available=8 * free,
        unavailable={Unavailable(reason): gpus for reason, gpus in unavailable.items()},
        free=(FreeNodes(gpus=8, nodes=free),),
    )


@dataclass
class Process:
    """A controller, whose clock and lease a test sets, and what Prometheus reads from it."""

    now: datetime = NOW
    holds: bool = True
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    metrics: StockMetrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = StockMetrics(self.registry, stock="prod", now=lambda: self.now, holds=lambda: self.holds)

    def values(self) -> dict[str, float]:
        """Return the value of each series by its state, or else by its name."""
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        samples = [sample for family in families for sample in family.samples]
        assert {sample.labels["stock"] for sample in samples} <= {"prod"}
        return {sample.labels.get("state", sample.name): sample.value for sample in samples}


@pytest.fixture
def process() -> Process:
    return Process()


def test_gpus_are_added_up_by_state_and_a_reason_that_ends_is_zero(process: Process) -> None:
    entries = (entry("H100", free=2, cordoned=8), entry("L4", free=1, cordoned=8, quota=3))
    stock = Stock(observed_at=NOW, stale_after_s=300.0, source="nodes", entries=entries)
    process.metrics.set_published(stock)
    found = process.values()
    assert {state: found[state] for state in ("available", "cordoned", "quota", "foreign_pod")} == {
        "available": 24,
        "cordoned": 16,
        "quota": 3,
        "foreign_pod": 0,
    }
    assert set(Unavailable) <= found.keys()
    process.metrics.set_published(stock.model_copy(update={"entries": (entry("H100", free=3),)}))
    assert process.values()["cordoned"] == 0


def test_the_age_grows_until_the_next_publication(process: Process) -> None:
    process.metrics.set_published(Stock(observed_at=NOW, stale_after_s=120.0, source="nodes"))
    process.now += timedelta(seconds=200)
    found = process.values()
    assert (found["fleetwright_stock_age_seconds"], found["fleetwright_stock_stale_after_seconds"]) == (200.0, 120.0)
    process.metrics.set_published(Stock(observed_at=process.now, stale_after_s=120.0, source="nodes"))
    assert process.values()["fleetwright_stock_age_seconds"] == 0.0


def test_a_process_that_has_published_nothing_or_does_not_lead_exports_no_series(process: Process) -> None:
    assert process.values() == {}
    process.metrics.set_published(Stock(observed_at=NOW, stale_after_s=120.0, source="nodes"))
    assert process.values() != {}
    process.holds = False
    assert process.values() == {}
