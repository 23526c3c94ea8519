"""`fleetwright events`: print what changes, one event a line."""

from typing import Annotated

import typer

from api.cli.common.console import print_line
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import RemoteOptions
from api.cli.common.output import Format
from api.schemas.events import ChangeEvent

app = new_app()


@app.command()
def events(
    service: RemoteOptions,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new events, until interrupted.")] = False,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only types that begin so, such as target; may be repeated."),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            "--after", metavar="ID", min=0, help="Begin after this event.", show_default="0; with --follow, the newest"
        ),
    ] = None,
) -> None:
    """Print what changes on a service, oldest first.

    With `-o json` each line is a JSON object.
    """
    begin = 0 if after is None and not follow else after
    with service.connect() as client:
        for event in client.follow_events(after=begin, types=types or (), follow=follow):
            print_line(event.model_dump_json() if service.output is Format.JSON else _line(event))


def _line(event: ChangeEvent) -> str:
    return f"{event.id:>8}  {event.at:%Y-%m-%d %H:%M:%S}  {event.type:<28}  {event.subject}"
