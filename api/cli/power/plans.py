"""`fleetwright power plans`: ask a service for plans of caps, and read those that it keeps."""

import itertools
from typing import Annotated

import typer

from api.cli.common.console import say
from api.cli.common.errors import EXIT_REFUSED
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import FileArgument, MostOption, TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, say_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, moment, number, say_table
from api.cli.power.plan_output import say_caps
from api.schemas.power import CapPlanRecord, CapPlanRequest

COLUMNS = (
    Column("plan"),
    moment("at"),
    Column("by"),
    Column("tree"),
    number("version"),
    Column("risk", show=lambda value: f"{value:g}", right=True),
    Column("status"),
    number("loss", decimals=3),
    Column("dearest feed"),
)
IdArgument = Annotated[str, typer.Argument(metavar="PLAN", help="The plan's id.")]

app = new_app()


@app.callback()
def plans() -> None:
    """Ask a service for plans of caps, and read those it keeps."""


@app.command("list")
def list_plans(
    most: MostOption = 20,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the newest plans of caps."""
    with connect(url, token_file) as client:
        found = list(itertools.islice(client.iter_power_plans(), most))
    if output is Format.JSON:
        say_json(found)
        return
    rows = (
        (
            *(each.id, each.created_at, each.created_by, each.tree, each.tree_version, each.risk, each.status),
            *(each.loss, each.binding),
        )
        for each in found
    )
    say_table(Table(COLUMNS, rows))


@app.command("show")
def show(
    plan_id: IdArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one plan as `power plan` does; --format json has every class and feed, and the request."""
    with connect(url, token_file) as client:
        record = client.get_power_plan(plan_id)
    _say(record, output)


@app.command("ask")
def ask(
    file: FileArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Ask for a plan with a request as the API takes it; the service keeps request and answer.

    When no clocks hold the tree, what is missing where is the answer and the exit code is 1.
    """
    request = read_file(file, CapPlanRequest)
    with connect(url, token_file) as client:
        record = client.create_power_plan(request)
    _say(record, output)
    if not record.plan.status.has_mix:
        raise typer.Exit(EXIT_REFUSED)


def _say(record: CapPlanRecord, output: Format) -> None:
    if output is Format.JSON:
        say_json(record)
        return
    plan = record.plan
    say(f"plan {record.id} of {plan.tree}, {record.created_at:%Y-%m-%d %H:%M:%SZ}, asked for by {record.created_by}\n")
    say_caps(plan)
