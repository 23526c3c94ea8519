"""`fleetwright migrate`: migrate the schema of a database."""

import sys
from typing import Annotated

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.cli.common.lazy_groups import new_app
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.serve.database import open_migrations, read_settings
from api.store import Migrations

app = new_app()


@app.command("up")
def migrate_up(
    revision: Annotated[str, typer.Argument(metavar="[REVISION]", help="Revision to reach.")] = "head",
    output: FormatOption = Format.TABLE,
) -> None:
    """Upgrade the schema, by default to the newest revision."""
    with open_migrations(read_settings()) as migrations:
        migrations.upgrade(revision)
        _print_revision(migrations, output)


@app.command("down")
def migrate_down(
    revision: Annotated[str, typer.Argument(metavar="REVISION", help="Target revision; base: drop all tables.")],
    confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    drop_audit: Annotated[bool, typer.Option("--drop-audit", help="Allow a revision without the audit.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Downgrade the schema, once you confirm it.  Data of newer revisions is lost."""
    with open_migrations(read_settings()) as migrations:
        undone = migrations.undone_by(revision)
        if migrations.first in undone and not drop_audit:
            raise InputError(f"REVISION: {revision} drops every table, the audit too; allowed: with --drop-audit")
        if undone and not confirmed:
            _ask(f"Undo {', '.join(undone)}? Their data is lost.")
        migrations.downgrade(revision)
        _print_revision(migrations, output)


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise InputError(f"{question} Answer with --yes where nobody can be asked.")
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was changed", exit_code=EXIT_NEGATIVE)


@app.command("status")
def migrate_status(output: FormatOption = Format.TABLE) -> None:
    """Print the revision of the schema; exit 1 when this program needs another."""
    with open_migrations(read_settings()) as migrations:
        current = _print_revision(migrations, output)
        if current != migrations.head:
            raise typer.Exit(EXIT_NEGATIVE)


def _print_revision(migrations: Migrations, output: Format) -> str | None:
    current = migrations.current()
    if output is Format.JSON:
        print_json({"revision": current, "needed": migrations.head})
    else:
        needed = "as this program needs it" if current == migrations.head else f"this program needs {migrations.head}"
        print_line(f"the schema is at {current or 'nothing'}, {needed}")
    return current
