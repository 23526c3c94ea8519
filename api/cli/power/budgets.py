"""`fleetwright power budgets`: set, read and withdraw temporary power limits of power domains."""

from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Annotated

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import InputError
from api.cli.common.files import build_model
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import RemoteOptions
from api.cli.common.remote import put_document
from api.cli.common.tables import Column, moment, number, print_fields
from api.schemas.power import PowerBudget, StoredBudget

COLUMNS = (
    Column("domain", of="domain"),
    number("limit W", of="budget.limit_w"),
    moment("expires", of="budget.expires_at"),
    Column("in force", of=lambda each: "yes" if datetime.now(UTC) < each.budget.expires_at else "expired"),
    number("version", of="version"),
    moment("set at", of="set_at"),
    Column("by", of="set_by"),
)

DomainArgument = Annotated[str, typer.Argument(metavar="DOMAIN", help="A power domain of a tree that the service has.")]

app = new_app()


@app.command("list")
def list_budgets(service: RemoteOptions) -> None:
    """List the budgets last set, by domain; expired ones too."""
    service.print_items(COLUMNS, lambda client: client.iter_power_budgets())


@app.command("show")
def show(service: RemoteOptions, domain: DomainArgument) -> None:
    """Show the budget of a power domain, and its expiry."""
    with service.connect() as client:
        found = client.get_power_budget(domain).document
    _print(found, service)


@app.command("set")
def set_budget(
    service: RemoteOptions,
    domain: DomainArgument,
    limit_w: Annotated[float, typer.Argument(metavar="WATTS", help="At most the domain's rating.")],
    minutes: Annotated[
        float, typer.Option("--for-minutes", metavar="M", help="Until it expires; at most a week.")
    ] = 60,
) -> None:
    """Set the budget of a power domain for a time; a rejected one leaves the previous one in force."""
    if not isfinite(minutes):
        raise InputError(f"--for-minutes: must be above 0 and at most a week, got {minutes}")
    expires_at = datetime.now(UTC) + timedelta(minutes=min(max(minutes, 0.0), 1e6))
    budget = build_model(PowerBudget, "budget", limit_w=limit_w, expires_at=expires_at.isoformat())
    with service.connect() as client:
        stored = put_document(
            create=lambda: client.create_power_budget(domain, budget),
            replace=lambda tag: client.replace_power_budget(domain, budget, if_match=tag),
            current=lambda: client.get_power_budget(domain).etag,
        )
    _print(stored.document, service)


@app.command("withdraw")
def withdraw(service: RemoteOptions, domain: DomainArgument) -> None:
    """Withdraw a budget: the domain's guard falls back to its standing budget."""
    with service.connect() as client:
        client.delete_power_budget(domain, if_match=client.get_power_budget(domain).etag)
    if not service.printed({"domain": domain, "withdrawn": True}):
        print_line(f"the budget of {domain} is withdrawn")


def _print(found: StoredBudget, service: RemoteOptions) -> None:
    if not service.printed(found):
        print_fields(found.model_dump(mode="json"))
