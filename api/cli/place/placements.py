"""`fleetwright placements`: ask a service for placements, and read those that it keeps."""

import itertools
from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.console import say
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import FileArgument, MostOption, TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, say_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, moment, number, say_table
from api.cli.place.files import refuse_unwritable, write_whole
from api.cli.place.output import say_placement
from placement.document import placement_text
from placement.request import PlacementRequest

COLUMNS = (
    Column("placement"),
    moment("at"),
    Column("by"),
    Column("model"),
    number("slots"),
    number("GPUs"),
    number("imbalance", decimals=4),
    number("bound", decimals=4),
)
IdArgument = Annotated[str, typer.Argument(metavar="PLACEMENT", help="The placement's id.")]
TargetOption = Annotated[
    Path | None, typer.Option("--save", metavar="FILE", help="Where to write it as placement.json.")
]

app = new_app()


@app.command("list")
def list_placements(
    most: MostOption = 20,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the newest placements."""
    with connect(url, token_file) as client:
        found = list(itertools.islice(client.iter_placements(), most))
    if output is Format.JSON:
        say_json(found)
        return
    rows = (
        (each.id, each.created_at, each.created_by, each.model, each.slots, each.gpus, each.imbalance, each.bound)
        for each in found
    )
    say_table(Table(COLUMNS, rows))


@app.command("show")
def show(
    placement_id: IdArgument,
    target: TargetOption = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one placement; with --format json also the request, with --save as what `place` takes and exports."""
    if target is not None:
        refuse_unwritable(target)
    with connect(url, token_file) as client:
        record = client.get_placement(placement_id)
    if target is not None:
        write_whole(target, placement_text(record.placement).encode())
    if output is Format.JSON:
        say_json(record)
    else:
        say(f"placement {record.id}, {record.created_at:%Y-%m-%d %H:%M:%SZ}, asked for by {record.created_by}\n")
        say_placement(record.placement)


@app.command("ask")
def ask(
    file: FileArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Ask for a placement with a request as the API takes it; the service keeps request and answer."""
    request = read_file(file, PlacementRequest)
    with connect(url, token_file) as client:
        record = client.create_placement(request)
    if output is Format.JSON:
        say_json(record)
    else:
        say(f"placement {record.id}\n")
        say_placement(record.placement)
