"""`fleetwright plans`: read the plans that a service keeps."""

import itertools
from typing import Annotated

import typer

from api.cli.common.console import say
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import MostOption, TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, say_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, moment, number, say_table
from api.cli.plan.output import say_plan

COLUMNS = (Column("plan"), moment("at"), Column("by"), Column("status"), number("$/h", decimals=2))

app = new_app()


@app.command("list")
def list_plans(
    most: MostOption = 20,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the newest plans."""
    with connect(url, token_file) as client:
        plans = list(itertools.islice(client.iter_plans(), most))
    if output is Format.JSON:
        say_json(plans)
        return
    rows = ((each.id, each.created_at, each.created_by, each.status, each.cost_usd_per_h) for each in plans)
    say_table(Table(COLUMNS, rows))


@app.command("show")
def show(
    plan_id: Annotated[str, typer.Argument(metavar="PLAN", help="The plan's id.")],
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one plan; with --format json also the request."""
    with connect(url, token_file) as client:
        record = client.get_plan(plan_id)
    if output is Format.JSON:
        say_json(record)
    else:
        say(f"plan {record.id}, {record.created_at:%Y-%m-%d %H:%M:%SZ}, asked for by {record.created_by}\n")
        say_plan(record.plan)
