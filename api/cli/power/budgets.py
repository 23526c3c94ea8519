"""`fleetwright power budgets`: set, read and withdraw temporary power limits of power domains."""

from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Annotated

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from api.cli.common.files import build_model
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.remote import connect, put_document
from api.cli.common.tables import Column, Table, moment, number, print_fields, print_table
from api.schemas.power import PowerBudget, StoredBudget

COLUMNS = (
    Column("domain"),
    number("limit W"),
    moment("expires"),
    Column("in force"),
    number("version"),
    moment("set at"),
    Column("by"),
)

DomainArgument = Annotated[str, typer.Argument(metavar="DOMAIN", help="A power domain of a tree that the service has.")]

app = new_app()


@app.callback()
def budgets() -> None:
    """Read and set the budgets that a service has in force."""


@app.command("list")
def list_budgets(
    url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """List the budgets last set, by domain; expired ones too."""
    with connect(url, token_file) as client:
        found = list(client.iter_power_budgets())
    if output is Format.JSON:
        print_json(found)
        return
    now = datetime.now(UTC)
    print_table(Table(COLUMNS, (_row(each, now) for each in found)))


@app.command("show")
def show(
    domain: DomainArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the budget of a power domain, and its expiry."""
    with connect(url, token_file) as client:
        found = client.get_power_budget(domain).document
    _print(found, output)


@app.command("set")
def set_budget(
    domain: DomainArgument,
    limit_w: Annotated[float, typer.Argument(metavar="WATTS", help="At most the domain's rating.")],
    minutes: Annotated[
        float, typer.Option("--for-minutes", metavar="M", help="Until it expires; at most a week.")
    ] = 60,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Set the budget of a power domain for a time; a rejected one leaves the previous one in force."""
    if not isfinite(minutes):
        raise CommandError(
            f"--for-minutes: must be above 0 and at most a week, got {minutes}", exit_code=EXIT_BAD_INPUT
        )
    expires_at = datetime.now(UTC) + timedelta(minutes=min(max(minutes, 0.0), 1e6))
    budget = build_model(PowerBudget, "budget", limit_w=limit_w, expires_at=expires_at.isoformat())
    with connect(url, token_file) as client:
        stored = put_document(
            create=lambda: client.create_power_budget(domain, budget),
            replace=lambda tag: client.replace_power_budget(domain, budget, if_match=tag),
            current=lambda: client.get_power_budget(domain).etag,
        )
    _print(stored.document, output)


@app.command("withdraw")
def withdraw(
    domain: DomainArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Withdraw a budget: the domain's guard falls back to its standing budget."""
    with connect(url, token_file) as client:
        client.delete_power_budget(domain, if_match=client.get_power_budget(domain).etag)
    if output is Format.JSON:
        print_json({"domain": domain, "withdrawn": True})
    else:
        print_line(f"the budget of {domain} is withdrawn")


def _row(found: StoredBudget, now: datetime) -> tuple[object, ...]:
    budget = found.budget
    in_force = "yes" if now < budget.expires_at else "expired"
    return found.domain, budget.limit_w, budget.expires_at, in_force, found.version, found.set_at, found.set_by


def _print(found: StoredBudget, output: Format) -> None:
    if output is Format.JSON:
        print_json(found)
    else:
        print_fields(found.model_dump(mode="json"))
