"""`fleetwright stock`: the GPUs that plans may use, as controllers count them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from api.cli.common.console import note, print_line
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import RemoteOptions
from api.cli.common.tables import Column, Table, number, print_table
from api.schemas.stock import StoredStock

STOCKS = (
    Column("stock", of="name"),
    number("GPUs", of=lambda each: sum(entry.total for entry in each.stock.entries)),
    number("available", of=lambda each: sum(entry.available for entry in each.stock.entries)),
    Column("observed", of=lambda each: f"{each.stock.observed_at:%Y-%m-%d %H:%M:%SZ}"),
    Column("source", of=lambda each: each.stock.source),
)
ENTRIES = (
    Column("GPU"),
    Column("region"),
    Column("zone"),
    Column("pool"),
    number("per node"),
    number("total"),
    number("available"),
    Column("not available"),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The stock's name.")]

app = new_app()


@app.command("list")
def list_stocks(service: RemoteOptions) -> None:
    """List the stocks that a service keeps."""
    service.print_items(STOCKS, lambda client: client.iter_stocks())


@app.command("show")
def show(service: RemoteOptions, name: NameArgument) -> None:
    """Show a stock by GPU type and place, with its age and why GPUs are not available."""
    with service.connect() as client:
        found = client.get_stock(name).document
    if service.printed(found.model_dump(mode="json")):
        return
    print_table(Table(ENTRIES, _rows(found)))
    stock, now = found.stock, datetime.now(UTC)
    state = "stale" if stock.is_stale(now) else "fresh"
    note(f"{state}: observed {stock.age_s(now):,.0f} s ago; limit {stock.stale_after_s:,.0f} s; {stock.source}")


@app.command("delete")
def delete(service: RemoteOptions, name: NameArgument) -> None:
    """Delete a stock.  A controller that publishes it creates it again."""
    with service.connect() as client:
        client.delete_stock(name, if_match=client.get_stock(name).etag)
    if not service.printed({"name": name, "deleted": True}):
        print_line(f"stock {name} is deleted")


def _rows(found: StoredStock) -> Iterator[tuple[object, ...]]:
    for entry in found.stock.entries:
        reasons = ", ".join(f"{gpus} {reason.replace('_', ' ')}" for reason, gpus in entry.unavailable.items())
        place = (entry.gpu, entry.region, entry.zone, entry.pool)
        yield (*place, entry.gpus_per_node, entry.total, entry.available, reasons or None)
