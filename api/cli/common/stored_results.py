"""Builds `list` and `show` for each kind of stored result, and prints a new one."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic

import typer

from api.cli.common.console import print_line
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import MostOption, TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, moment, print_table
from api.client import Client
from api.schemas.results import RecordT, SummaryT


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResults(Generic[RecordT, SummaryT]):
    """Describes one kind of stored result for the command line."""

    name: str
    columns: Sequence[tuple[str, Column]]  # after id, time and author: a field of the summary and its column
    newest: Callable[[Client], Iterator[SummaryT]]
    read: Callable[[Client, str], RecordT]
    print_result: Callable[[RecordT], None]

    @property
    def noun(self) -> str:
        """Is the name without the area: `simulation` of `power simulation`."""
        return self.name.split()[-1]

    def app(self) -> typer.Typer:
        """Create the application with `list` and `show`."""
        app = new_app()
        self.add_list(app)
        self.add_show(app)
        return app

    def add_list(self, app: typer.Typer) -> None:

        @app.command("list", help=f"List the newest {self.name}s.")
        def list_results(
            most: MostOption = 20,
            url: UrlOption = None,
            token_file: TokenFileOption = None,
            output: FormatOption = Format.TABLE,
        ) -> None:
            with connect(url, token_file) as client:
                found = list(itertools.islice(self.newest(client), most))
            if output is Format.JSON:
                print_json(found)
                return
            columns = (
                Column(self.noun),
                moment("at"),
                Column("by"),
                *(each for _field, each in self.columns),
            )
            fields = ("id", "created_at", "created_by", *(field for field, _each in self.columns))
            print_table(Table(columns, ([getattr(each, field) for field in fields] for each in found)))

    def add_show(self, app: typer.Typer) -> None:

        @app.command("show", help=f"Show one {self.name}; with --format json also its request.")
        def show(
            result_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` prints it.")],
            url: UrlOption = None,
            token_file: TokenFileOption = None,
            output: FormatOption = Format.TABLE,
        ) -> None:
            self.print_record(self.fetch(result_id, url, token_file), output)

    def fetch(self, result_id: str, url: str | None, token_file: Path | None) -> RecordT:
        with connect(url, token_file) as client:
            return self.read(client, result_id)

    def print_record(self, record: RecordT, output: Format) -> None:
        """Print the head and the result, or everything as JSON."""
        if output is Format.JSON:
            print_json(record)
        else:
            created = f"{record.created_at:%Y-%m-%d %H:%M:%SZ}"
            print_line(f"{self.noun} {record.id}, {created}, created by {record.created_by}\n")
            self.print_result(record)
