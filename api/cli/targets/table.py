"""`fleetwright targets table`: print the routing table of a target's plan."""

from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.console import note, print_line
from api.cli.common.errors import EXIT_BAD_INPUT, EXIT_NEGATIVE, CommandError
from api.cli.common.options import TokenFileOption, UrlOption
from api.cli.common.remote import connect
from api.cli.place.files import write_whole
from deploy.common.errors import PlanUnusableError
from deploy.controller.table_builder import both_tables, routing_table
from deploy.router.table import RoutingTable


def table(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The target's name.")],
    plan: Annotated[
        str | None, typer.Option(metavar="PLAN", help="A plan other than the target's.", show_default="the target's")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN", help="Mix half of this plan in, while replica counts change.", show_default="none"
        ),
    ] = None,
    most_in_flight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEPLOYMENT=N",
            help="Concurrent requests per replica of a deployment; repeatable.",
            show_default="64 each",
        ),
    ] = None,
    into: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replace this file atomically.", show_default="standard output")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
) -> None:
    """Print the weights of a target's plan as a routing table.

    A router process polls its `table_file` every second; a router on Ray Serve receives `table` in its `user_config`.
    Neither drops a request when the table changes.
    """
    bounds = _bounds(most_in_flight or [])
    with connect(url, token_file) as client:
        spec = client.get_target(name).document.spec
        if (wanted := plan or spec.plan_id) is None:
            raise CommandError(f"target {name} has no plan: give --plan", exit_code=EXIT_BAD_INPUT)
        records = [client.get_plan(each) for each in (wanted, after) if each is not None]
    if unknown := sorted(bounds.keys() - set(spec.application.parts.values())):
        known = ", ".join(sorted(spec.application.parts.values()))
        raise CommandError(
            f"--most-in-flight {unknown[0]}: no deployment of target {name}; it has: {known}", exit_code=EXIT_BAD_INPUT
        )
    try:
        now, *before = (routing_table(record, spec, most_in_flight=bounds) for record in records)
        found: RoutingTable = both_tables(before[0], now) if before else now
    except PlanUnusableError as error:
        raise CommandError(str(error), exit_code=EXIT_NEGATIVE) from error
    table_json = found.model_dump_json(indent=2)
    if into is None:
        print_line(table_json)
        return
    write_whole(into, f"{table_json}\n".encode())
    note(f"{into}: table {found.version} of {', '.join(sorted(found.routes))}")


def _bounds(entries: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in entries:
        deployment, sign, count = entry.partition("=")
        if not deployment or not sign or not count.isdecimal() or int(count) < 1:
            raise CommandError(
                f"--most-in-flight {entry}: expected DEPLOYMENT=N, N at least 1", exit_code=EXIT_BAD_INPUT
            )
        found[deployment] = int(count)
    return found
