"""`fleetwright audit`: list and verify the audit."""

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import EXIT_NEGATIVE
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import MostOption, RemoteOptions
from api.cli.common.tables import Column, moment, number

COLUMNS = (
    number("seq", of="seq"),
    moment("at", of="at"),
    Column("actor", of="actor"),
    Column("action", of="action"),
    Column("subject", of="subject"),
)

app = new_app()


@app.command("list")
def list_audit(service: RemoteOptions, most: MostOption = 50) -> None:
    """List the newest entries."""
    service.print_items(COLUMNS, lambda client: client.iter_audit(), most=most)


@app.command("check")
def check(service: RemoteOptions) -> None:
    """Verify the whole chain; exit 1 when it is broken."""
    with service.connect() as client:
        result = client.check_audit()
    if not service.printed(result):
        state = "intact" if result.intact else f"broken at {result.first_broken_seq}"
        print_line(f"{result.entries:,} entries, {state}")
    if not result.intact:
        raise typer.Exit(EXIT_NEGATIVE)
