"""`fleetwright audit`: list, export and verify the audit."""

from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.console import note, print_line
from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import MostOption, RemoteOptions, moment_of
from api.cli.common.progress import waiting
from api.cli.common.tables import Column, moment, number

COLUMNS = (
    number("seq", of="seq"),
    moment("at", of="at"),
    Column("actor", of="actor"),
    Column("action", of="action"),
    Column("subject", of="subject"),
)
EXPORTED_AT_ONCE = 5_000

app = new_app()


@app.command("list")
def list_audit(
    service: RemoteOptions,
    most: MostOption = 50,
    since: Annotated[str | None, typer.Option(metavar="MOMENT", help="Only entries from this moment on.")] = None,
    before: Annotated[str | None, typer.Option(metavar="MOMENT", help="Only entries before this moment.")] = None,
    actor: Annotated[str | None, typer.Option(metavar="ACTOR", help="Such as token:ID.")] = None,
    action: Annotated[str | None, typer.Option(metavar="ACTION", help="Such as plan.created.")] = None,
    subject: Annotated[str | None, typer.Option(metavar="TEXT", help="The beginning, such as targets/.")] = None,
) -> None:
    """List the newest entries."""
    first, end = moment_of("--since", since), moment_of("--before", before)
    service.print_items(
        COLUMNS,
        lambda client: client.iter_audit(since=first, before=end, actor=actor, action=action, subject=subject),
        most=most,
    )


@app.command("check")
def check(
    service: RemoteOptions,
    full: Annotated[bool, typer.Option("--full", help="Begin at the first entry, not at the last checkpoint.")] = False,
    anchor: Annotated[
        str | None, typer.Option(metavar="SEQ:HASH", help="Begin at this entry, which must be unchanged.")
    ] = None,
) -> None:
    """Verify the chain; exit 1 when it is broken."""
    with service.connect() as client, waiting("checking the audit"):
        result = client.check_audit(full=full, anchor=anchor)
    if not service.printed(result):
        state = "intact" if result.intact else f"broken at {result.first_broken_seq}"
        if result.checked_from_seq > 1:
            note(f"checked from entry {result.checked_from_seq:,} on; --full checks all")
        print_line(f"{result.entries:,} entries, {state}")
    if not result.intact:
        raise typer.Exit(EXIT_NEGATIVE)


@app.command("checkpoint")
def checkpoint(service: RemoteOptions) -> None:
    """Verify the new entries, and print the last one as SEQ:HASH, to keep on another system."""
    with service.connect() as client, waiting("checking the audit"):
        made = client.create_audit_checkpoint()
    if not service.printed(made):
        print_line(made.anchor)


@app.command("export")
def export(
    service: RemoteOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    from_seq: Annotated[int, typer.Option("--from-seq", metavar="SEQ", min=1, help="The first entry.")] = 1,
) -> None:
    """Write the entries to a file, one JSON object a line, with the fields that their hashes cover."""
    try:
        with file.open("xb") as output, service.connect() as client:
            newest = client.list_audit(limit=1).items
            last = newest[0].seq if newest else 0
            for seq in range(from_seq, last + 1, EXPORTED_AT_ONCE):
                output.write(client.export_audit(from_seq=seq, to_seq=min(seq + EXPORTED_AT_ONCE - 1, last)))
    except FileExistsError as error:
        raise InputError(f"FILE: {file} exists, expected a new file") from error
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", exit_code=EXIT_NEGATIVE) from error
    written = max(0, last - from_seq + 1)
    if not service.printed({"file": str(file), "entries": written}):
        print_line(f"{written:,} entries written to {file}")
