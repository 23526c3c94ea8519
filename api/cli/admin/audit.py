"""`fleetwright audit`: list and verify the audit."""

import itertools

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import EXIT_NEGATIVE
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import MostOption, TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, moment, number, print_table

COLUMNS = (number("seq"), moment("at"), Column("actor"), Column("action"), Column("subject"))

app = new_app()


@app.command("list")
def list_audit(
    most: MostOption = 50,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the newest entries."""
    with connect(url, token_file) as client:
        entries = list(itertools.islice(client.iter_audit(), most))
    if output is Format.JSON:
        print_json(entries)
        return
    print_table(Table(COLUMNS, ((each.seq, each.at, each.actor, each.action, each.subject) for each in entries)))


@app.command("check")
def check(url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE) -> None:
    """Verify the whole chain; exit 1 when it is broken."""
    with connect(url, token_file) as client:
        result = client.check_audit()
    if output is Format.JSON:
        print_json(result)
    elif result.intact:
        print_line(f"{result.entries:,} entries, intact")
    else:
        print_line(f"{result.entries:,} entries, broken at {result.first_broken_seq}")
    if not result.intact:
        raise typer.Exit(EXIT_NEGATIVE)
