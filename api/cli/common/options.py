"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

LOCAL_URL = "http://127.0.0.1:8400"  # where `fleetwright serve` listens unless told otherwise

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON file, or - for stdin.")]

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", envvar="FLEETWRIGHT_URL", help=f"Where the service is, if not on {LOCAL_URL}."
    ),
]
AskUrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", envvar="FLEETWRIGHT_URL", help="Ask this service instead of answering here."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="File with the API token; else FLEETWRIGHT_TOKEN[_FILE]."),
]
MostOption = Annotated[int, typer.Option("--most", metavar="N", min=1, help="Most entries to show, newest first.")]
GpusOption = Annotated[
    Path | None, typer.Option("--gpus", metavar="FILE", help="GPU catalogue to lay over the shipped one.")
]
