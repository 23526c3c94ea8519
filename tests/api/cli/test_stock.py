"""`fleetwright stock` against a service."""

from datetime import UTC, datetime

from api.client import Client
from fleet.stock import FreeNodes, Stock, StockEntry, Unavailable
from tests.testbed.cli import Cli
from tests.testbed.server import ADMIN_TOKEN


def test_stocks_are_listed_shown_and_deleted(remote: Cli, service: str) -> None:
    entry = StockEntry(
        gpu="H100-SXM",
        region="eu-north",
        pool="h100",
        gpus_per_node=8,
        total=16,
        available=5,
        unavailable={Unavailable.CORDONED: 8, Unavailable.FOREIGN_POD: 3},
        free=(FreeNodes(gpus=5, nodes=1),),
    )
    observed_at = datetime(2026, 1, 1, tzinfo=UTC)
    stock = Stock(observed_at=observed_at, stale_after_s=300.0, source="a test", entries=(entry,))
    with Client(service, token=ADMIN_TOKEN) as client:
        client.create_stock("prod", stock)
    listed = remote("stock", "list")
    (row,) = [line.split() for line in listed.stdout.splitlines() if line.startswith("prod")]
    assert row == ["prod", "16", "5", "2026-01-01", "00:00:00Z", "a", "test"]
    shown = remote("stock", "show", "prod")
    assert "8 cordoned, 3 foreign pod" in shown.stdout
    assert shown.stderr.startswith("stale: observed ")
    assert remote("stock", "show", "prod", "-o", "json").json["stock"]["entries"][0]["available"] == 5
    assert remote("stock", "delete", "prod").stdout == "stock prod is deleted\n"
    assert "there is no stock 'prod'" in remote("stock", "show", "prod").refused[0]
