"""`fleetwright backup` and `fleetwright restore`: copy a database into a file, and back."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.console import note, print_line
from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.cli.common.lazy_groups import new_app
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.progress import LateBar
from api.cli.common.tables import Column, Table, number, print_table
from api.cli.serve.database import open_migrations, read_settings, sole_server
from api.server import Settings
from api.store import (
    BackupError,
    Contents,
    DatabaseUnavailableError,
    Difference,
    NotEmptyError,
    Store,
    back_up,
    compare,
    restore,
)

ACTOR = "system:backup-command"
COLUMNS = (Column("table"), number("rows"))

backup_app = new_app()
restore_app = new_app()


@backup_app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")], output: FormatOption = Format.TABLE
) -> None:
    """Back a database up into a file, while it is in use."""
    settings = read_settings()
    url = settings.database_url.get_secret_value()
    with _errors(settings):
        with LateBar() as bar:
            contents = back_up(url, file, on_progress=bar.update)
        asyncio.run(_record(url, contents))
    _print(contents, output)


@restore_app.command("restore")
def restore_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `fleetwright backup`.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace what the database holds.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Restore a database from a backup.

    Stop every service and worker first.  The command prints what is newer in a database that it replaces: tokens that
    were revoked since the backup are valid again.
    """
    settings = read_settings()
    url = settings.database_url.get_secret_value()
    with _errors(settings), sole_server(settings):
        if not file.is_file():
            raise InputError(f"FILE: there is no file {file}")
        difference = compare(file, url)
        try:
            with LateBar() as bar:
                contents = restore(file, url, replace=replace, on_progress=bar.update)
        except NotEmptyError as error:
            lines = _lost(difference)
            raise CommandError(f"{error}; --replace restores over it", *lines, exit_code=EXIT_NEGATIVE) from error
    if replace and not difference.is_empty:
        for line in _lost(difference):
            note(line)
    _print(contents, output, lost=dict(difference.newer))


async def _record(url: str, contents: Contents) -> None:
    """Record the backup in the audit, where `fleetwright doctor` finds how old the last one is."""
    store = Store(url)
    detail = {"audit_entries": contents.audit.head.seq, "revision": contents.revision}
    try:
        async with store.transaction() as tx:
            await tx.audit.append(
                at=datetime.now(UTC),
                actor=ACTOR,
                action="database.backed-up",
                subject="database",
                detail=detail,
                request_id=None,
            )
    except DatabaseUnavailableError as error:  # a database that takes no writes can be backed up too
        note(f"the backup is complete, but the audit does not record it: {error}")
    finally:
        await store.close()


@contextmanager
def _errors(settings: Settings) -> Iterator[None]:
    with open_migrations(settings):
        try:
            yield
        except BackupError as error:
            raise CommandError(str(error), exit_code=EXIT_NEGATIVE) from error
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}", exit_code=EXIT_NEGATIVE) from error


def _lost(difference: Difference) -> list[str]:
    lines = [
        f"the database has {difference.head.seq:,} audit entries, {difference.common_seq:,} of them are in the backup"
    ]
    actions = ", ".join(f"{count:,} {action}" for action, count in difference.newer.items())
    return [*lines, f"not in the backup: {actions}"] if actions else lines


def _print(contents: Contents, output: Format, *, lost: Mapping[str, int] | None = None) -> None:
    head = contents.audit.head
    if output is Format.JSON:
        found: dict[str, Any] = {
            "revision": contents.revision,
            "audit_entries": head.seq,
            "anchor": f"{head.seq}:{head.hash}",
            "rows": dict(contents.rows),
        }
        print_json(found | ({"lost": lost} if lost is not None else {}))
        return
    print_table(Table(COLUMNS, [row for row in contents.rows.items() if row[1]]))
    print_line(f"schema {contents.revision}, {head.seq:,} audit entries, intact; last entry {head.seq}:{head.hash}")
