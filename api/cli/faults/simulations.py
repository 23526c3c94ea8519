"""`fleetwright faults simulations`: ask a service how the detectors do, and read what it was asked before."""

import itertools
from typing import Annotated

import typer

from api.cli.common.console import say
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import MostOption, TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, say_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, moment, number, say_table
from api.cli.faults.simulate import HoursOption, RanksOption, ScenarioOption, SeedOption, say_score
from api.cli.power.simulate_request import told_as_options
from api.schemas.faults import FaultQuestion
from faults.simulator.scenario import ScenarioName

COLUMNS = (
    Column("simulation"),
    moment("at"),
    Column("by"),
    number("ranks"),
    number("hours", decimals=2),
    Column("scenario"),
    number("seed"),
    number("faults"),
    Column("recall", show=lambda value: f"{value:.1%}", right=True),
    Column("precision", show=lambda value: f"{value:.1%}", right=True),
    number("false isolations"),
)
IdArgument = Annotated[str, typer.Argument(metavar="SIMULATION", help="The simulation's id.")]

app = new_app()


@app.callback()
def simulations() -> None:
    """Ask a service for simulations of faults, and read those it keeps."""


@app.command("list")
def list_simulations(
    most: MostOption = 20,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the newest simulations."""
    with connect(url, token_file) as client:
        found = list(itertools.islice(client.iter_fault_simulations(), most))
    if output is Format.JSON:
        say_json(found)
        return
    rows = (
        (
            *(each.id, each.created_at, each.created_by, each.ranks, each.hours, each.scenario, each.seed),
            *(each.faults, each.recall, each.precision, each.false_isolations),
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
    """Show one simulation."""
    with connect(url, token_file) as client:
        record = client.get_fault_simulation(simulation_id)
    if output is Format.JSON:
        say_json(record)
    else:
        say(f"simulation {record.id}, {record.created_at:%Y-%m-%d %H:%M:%SZ}, asked for by {record.created_by}\n")
        say_score(record.simulation)


@app.command("ask")
def ask(
    ranks: RanksOption = 1024,
    hours: HoursOption = 1.0,
    scenario: ScenarioOption = ScenarioName.MIXED.value,
    seed: SeedOption = 0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Ask for a simulation; the service keeps question and answer.

    Its answers mean what those of `faults simulate` do.  How many ranks times hours it takes at most is its setting.
    """
    with told_as_options():
        question = FaultQuestion.model_validate(
            {"ranks": ranks, "hours": hours, "scenario": scenario, "seed": seed}, strict=False
        )
    with connect(url, token_file) as client:
        record = client.create_fault_simulation(question)
    if output is Format.JSON:
        say_json(record)
    else:
        say(f"simulation {record.id}\n")
        say_score(record.simulation)
