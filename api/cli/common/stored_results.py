"""Builds `list` and `show` for each kind of stored result, and prints a new one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic

import typer

from api.cli.common.console import print_line
from api.cli.common.lazy_groups import App, new_app
from api.cli.common.options import MostOption, ProjectOptions, RemoteOptions
from api.cli.common.result_options import FilterOptions, SolvedFilterOptions
from api.cli.common.tables import Column, moment
from api.schemas.labels import label_text
from api.schemas.results import RecordT, SummaryT

if TYPE_CHECKING:
    from api.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResults(Generic[RecordT, SummaryT]):
    """Describes one kind of stored result for the command line."""

    name: str
    columns: Sequence[Column]  # of the summary, after id, time and author
    newest: Callable[..., Iterator[SummaryT]]  # takes the client and the filters as keyword arguments
    read: Callable[["Client", str], RecordT]
    print_result: Callable[[RecordT], None]
    has_status: bool = False  # the summary has the status of the solver

    @property
    def noun(self) -> str:
        """Is the name without the area: `simulation` of `power simulation`."""
        return self.name.split()[-1]

    def app(self) -> App:
        """Create the application with `list` and `show`."""
        app = new_app()
        self.add_list(app)

        @app.command("show", help=f"Show one {self.name}; with --format json also its request.")
        def show(
            service: ProjectOptions,
            result_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` prints it.")],
        ) -> None:
            self.print_record(self.fetch(result_id, service), service)

        return app

    def add_list(self, app: App) -> None:

        # A function reads its annotations when it is made, so that each kind has its own options.
        filters: Any = SolvedFilterOptions if self.has_status else FilterOptions

        def list_results(service: ProjectOptions, chosen: FilterOptions, most: MostOption = 20) -> None:
            head = (Column(self.noun, of="id"), moment("at", of="created_at"), Column("by", of="created_by"))
            naming = (Column("name", of="name"), Column("labels", of=lambda each: label_text(each.labels) or None))
            given = chosen.chosen()
            service.print_items((*head, *self.columns, *naming), lambda client: self.newest(client, **given), most=most)

        list_results.__annotations__["chosen"] = filters
        app.command("list", help=f"List the newest {self.name}s.")(list_results)

    def fetch(self, result_id: str, service: RemoteOptions) -> RecordT:
        with service.connect() as client:
            return self.read(client, result_id)

    def print_record(self, record: RecordT, service: RemoteOptions) -> None:
        """Print the head and the result, or everything as JSON."""
        if not service.printed(record):
            created = f"{record.created_at:%Y-%m-%d %H:%M:%SZ}"
            print_line(f"{self.noun} {record.id}, {created}, created by {record.created_by}")
            for heading, value in (("name", record.name), ("labels", label_text(record.labels))):
                if value:
                    print_line(f"{heading} {value}")
            print_line("")
            self.print_result(record)
