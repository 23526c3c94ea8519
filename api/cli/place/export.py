"""`fleetwright place export`: write a placement as an engine's file."""

from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.console import write
from api.cli.common.files import name_of, require_writable, violations_of, write_whole
from api.cli.common.lazy_groups import new_app
from api.cli.place.request import placement_from
from placement.formats.engine_writers import Engine, export_placement

app = new_app()


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A placement.json, or - for stdin.")],
    engine: Annotated[Engine, typer.Option(help="The engine that loads the file.")],
    target: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Output file; else stdout.")
    ] = None,
) -> None:
    """Write a placement as the file that an engine loads.

    SGLang reads it with --init-expert-location, TensorRT-LLM with moe_config.load_balancer, vLLM-Ascend with
    eplb_config.expert_map_path, and vLLM with Fleetwright's plug-in.
    """
    if target is not None:
        require_writable(target)
    placement, _source = placement_from(file)
    with violations_of(name_of(file)):
        text = export_placement(placement, engine)
    if target is None:
        write(text)
    else:
        write_whole(target, text.encode())
