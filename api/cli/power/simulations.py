"""`fleetwright power simulations`: ask a service for simulations, and read those that it keeps."""

import itertools
from typing import Annotated

import typer

from api.cli.common.console import say
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import FileArgument, MostOption, TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, say_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, in_words, moment, number, say_table
from api.cli.power.simulate_output import say_row
from api.schemas.power import SimulationRequest

COLUMNS = (
    Column("simulation"),
    moment("at"),
    Column("by"),
    number("servers"),
    number("budget W"),
    Column("policy"),
    number("days", decimals=2),
    number("seed"),
    number("brakes"),
    number("peak", decimals=4),
    Column("SLO held", show=in_words),
)
IdArgument = Annotated[str, typer.Argument(metavar="SIMULATION", help="The simulation's id.")]

app = new_app()


@app.callback()
def simulations() -> None:
    """Ask a service for simulations, and read those it keeps."""


@app.command("list")
def list_simulations(
    most: MostOption = 20,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the newest simulations."""
    with connect(url, token_file) as client:
        found = list(itertools.islice(client.iter_power_simulations(), most))
    if output is Format.JSON:
        say_json(found)
        return
    rows = (
        (
            *(each.id, each.created_at, each.created_by, each.servers, each.budget_w, each.policy, each.days),
            *(each.seed, each.brakes, each.peak_utilization, each.slo_held),
        )
        for each in found
    )
    say_table(Table(COLUMNS, rows))


@app.command("show")
def show(
    simulation_id: IdArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one simulation; with --format json also the question."""
    with connect(url, token_file) as client:
        record = client.get_power_simulation(simulation_id)
    if output is Format.JSON:
        say_json(record)
    else:
        say(f"simulation {record.id}, {record.created_at:%Y-%m-%d %H:%M:%SZ}, asked for by {record.created_by}\n")
        say_row(record.simulation)


@app.command("ask")
def ask(
    file: FileArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Ask for a simulation with a question as the API takes it; the service keeps question and answer."""
    request = read_file(file, SimulationRequest)
    with connect(url, token_file) as client:
        record = client.create_power_simulation(request)
    if output is Format.JSON:
        say_json(record)
    else:
        say(f"simulation {record.id}\n")
        say_row(record.simulation)
