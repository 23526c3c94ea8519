"""Defines options and arguments that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

LOCAL_URL = "http://127.0.0.1:8400"  # the default address of `fleetwright serve`

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON file, or - for stdin.")]

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", envvar="FLEETWRIGHT_URL", help=f"The service; default: {LOCAL_URL}."),
]
AskUrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", envvar="FLEETWRIGHT_URL", help="Use this service instead of computing locally."
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="File with the API token; else FLEETWRIGHT_TOKEN[_FILE]."),
]
MostOption = Annotated[int, typer.Option("--most", metavar="N", min=1, help="Maximum number of entries, newest first.")]
GpusOption = Annotated[
    Path | None, typer.Option("--gpus", metavar="FILE", help="GPU catalogue to lay over the shipped one.")
]


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


LogLevelOption = Annotated[
    LogLevel, typer.Option(envvar="FLEETWRIGHT_LOG_LEVEL", case_sensitive=False, help="Minimum severity of log lines.")
]
