"""Defines options and arguments that several commands share.  `lazy_groups.App` expands the dataclasses of options."""

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.common.errors import InputError
from api.cli.common.output import Format, FormatOption, Jsonable, print_json

if TYPE_CHECKING:
    from api.cli.common.tables import Column
    from api.client import Client

LOCAL_URL = "http://127.0.0.1:8400"  # the default address of `fleetwright serve`

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON file, or - for stdin.")]

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", envvar="FLEETWRIGHT_URL", help=f"The service; default: {LOCAL_URL}."),
]
RemoteUrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", envvar="FLEETWRIGHT_URL", help="Use this service instead of computing locally."
    ),
]
ExplicitUrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="Use this service instead of computing locally; FLEETWRIGHT_URL has no effect."
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="File with the API token; else FLEETWRIGHT_TOKEN[_FILE]."),
]
ProjectOption = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="Of what is read and created; else that of the token, or all."),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Holds the service of a command."""

    url: UrlOption = None
    token_file: TokenFileOption = None

    def connect(self) -> AbstractContextManager["Client"]:
        """Open a client.  The import is late: it costs more than most local commands."""
        from api.cli.common.remote import connect  # noqa: PLC0415 - on use, as above

        return connect(self.url, self.token_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions(ServiceOptions):
    """Holds the service of a command and the format of its output."""

    output: FormatOption = Format.TABLE

    def printed(self, value: Jsonable) -> bool:
        """Print the value where the output is JSON, and return whether it is."""
        if self.output is Format.JSON:
            print_json(value)
        return self.output is Format.JSON

    def print_items(
        self, columns: "Sequence[Column]", read: Callable[["Client"], Iterator[Any]], *, most: int | None = None
    ) -> None:
        """Print the items that a client reads, at most `most` of them, as a table or as JSON."""
        from api.cli.common.tables import print_table, table_of  # noqa: PLC0415 - on use, as above

        with self.connect() as client:
            items = list(itertools.islice(read(client), most))
        if not self.printed(items):
            print_table(table_of(columns, items))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectOptions(RemoteOptions):
    """Holds the same and the project, for a command on what projects own."""

    project: ProjectOption = None

    def connect(self) -> AbstractContextManager["Client"]:
        """Open a client of the project."""
        from api.cli.common.remote import connect  # noqa: PLC0415 - on use, as above

        return connect(self.url, self.token_file, project=self.project)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOrRemoteOptions(RemoteOptions):
    """Holds the same for a command that computes locally without a service."""

    url: RemoteUrlOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOrProjectOptions(ProjectOptions):
    """Holds the same for a command whose results belong to a project."""

    url: RemoteUrlOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplicitServiceOptions(ServiceOptions):
    """Holds the service of a command that uses one only with `--url`, and has an output of its own."""

    url: ExplicitUrlOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplicitRemoteOptions(ProjectOptions):
    """Holds the same for a command that uses a service only with `--url`: FLEETWRIGHT_URL never changes its output."""

    url: ExplicitUrlOption = None


def day_of(text: str | None) -> dt.date:
    """Parse the day of a fit; today without one."""
    try:
        return dt.datetime.now(dt.UTC).date() if text is None else dt.date.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"--date: {text!r} is no day, expected one like 2026-11-21") from error


def moment_of(option: str, text: str | None) -> dt.datetime | None:
    """Parse a moment; one without a zone is in UTC."""
    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{option}: {text!r} is no moment, expected one like 2026-11-21T06:00:00Z") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)
