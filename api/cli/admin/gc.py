"""`fleetwright gc`: remove old rows from a database."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Annotated

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import EXIT_NEGATIVE, CommandError
from api.cli.common.lazy_groups import new_app
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.tables import Column, Table, number, print_table
from api.cli.serve.database import open_migrations, read_settings
from api.server import Settings
from api.server.garbage_collection import collect_garbage, retention_of
from api.store import Store

ACTOR = "system:gc-command"
COLUMNS = (Column("kind"), number("rows"))

app = new_app()


@app.command()
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the rows.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Remove old rows from a database.

    The settings FLEETWRIGHT_RETENTION_… say how old, and `serve` does the same every hour.  Plans, simulations and
    diagnoses that a target, a budget or a remediation case names stay, and so does the audit.
    """
    settings = read_settings()
    with open_migrations(settings) as migrations:
        if (current := migrations.current()) != migrations.head:
            message = f"the schema is at {current or 'nothing'}, this program needs {migrations.head}"
            raise CommandError(f"{message}: run `fleetwright migrate up`", exit_code=EXIT_NEGATIVE)
        removed = asyncio.run(_collect(settings, dry_run=dry_run))
    if output is Format.JSON:
        print_json(removed)
        return
    print_table(Table(COLUMNS, list(removed.items())))
    print_line(f"{removed.total():,} rows {'would be ' if dry_run else ''}removed")


async def _collect(settings: Settings, *, dry_run: bool) -> Counter[str]:
    store, removed = Store(settings.database_url.get_secret_value()), Counter[str]()
    keep = retention_of(settings)
    try:
        async for counts in collect_garbage(store, keep, now=lambda: datetime.now(UTC), actor=ACTOR, dry_run=dry_run):
            removed.update(counts)
    finally:
        await store.close()
    return removed
