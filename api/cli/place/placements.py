"""`fleetwright placements`: read the placements that a service stores."""

from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.lazy_groups import new_app
from api.cli.common.options import TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption
from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, number
from api.cli.place.files import require_writable, write_whole
from api.cli.place.output import print_placement
from api.schemas.placements import PlacementRecord, PlacementSummary
from placement.document import placement_text

PLACEMENTS: StoredResults[PlacementRecord, PlacementSummary] = StoredResults(
    name="placement",
    columns=(
        ("model", Column("model")),
        ("slots", number("slots")),
        ("gpus", number("GPUs")),
        ("imbalance", number("imbalance", decimals=4)),
        ("bound", number("bound", decimals=4)),
    ),
    newest=lambda client: client.iter_placements(),
    read=lambda client, placement_id: client.get_placement(placement_id),
    print_result=lambda record: print_placement(record.placement),
)
app = new_app()
PLACEMENTS.add_list(app)


@app.command("show")
def show(
    placement_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` prints it.")],
    target: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Also write it as placement.json.")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one placement; with --format json also its request."""
    if target is not None:
        require_writable(target)
    record = PLACEMENTS.fetch(placement_id, url, token_file)
    if target is not None:
        write_whole(target, placement_text(record.placement).encode())
    PLACEMENTS.print_record(record, output)
