"""`fleetwright faults simulate` and `simulations`: score the detectors on a simulated job with known faults."""

import time
from typing import Annotated, Any

import typer

from api.cli.common.errors import InputError
from api.cli.common.files import option_errors
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import LocalOrRemoteOptions, RemoteOptions
from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, number
from api.cli.faults.simulate_output import print_score
from api.schemas.faults import MAX_SEED, FaultQuestion, FaultSimulationRecord, FaultSimulationSummary
from faults.simulator import simulate
from faults.simulator.scenario import ScenarioName

FAULT_SIMULATIONS: StoredResults[FaultSimulationRecord, FaultSimulationSummary] = StoredResults(
    name="fault simulation",
    columns=(
        number("ranks", of="ranks"),
        number("hours", decimals=2, of="hours"),
        Column("scenario", of="scenario"),
        number("seed", of="seed"),
        number("faults", of="faults"),
        Column("recall", show=lambda value: f"{value:.1%}", right=True, of="recall"),
        Column("precision", show=lambda value: f"{value:.1%}", right=True, of="precision"),
        number("false isolations", of="false_isolations"),
    ),
    newest=lambda client: client.iter_fault_simulations(),
    read=lambda client, simulation_id: client.get_fault_simulation(simulation_id),
    print_result=lambda record: print_score(record.simulation),
)

app = new_app()
simulations_app = FAULT_SIMULATIONS.app()


@app.command(name="simulate")
def simulate_command(
    service: LocalOrRemoteOptions,
    ranks: Annotated[
        int, typer.Option(metavar="R", help="Ranks of the job; a multiple of 64 (8 per node, 8 stages).")
    ] = 16_384,
    hours: Annotated[
        float, typer.Option(metavar="H", help="Simulated time; an hour of 16,384 ranks takes minutes.")
    ] = 1.0,
    scenario: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"Faults and background events: {', '.join(ScenarioName)}.",
            autocompletion=lambda: [name.value for name in ScenarioName],
        ),
    ] = ScenarioName.MIXED.value,
    seed: Annotated[int, typer.Option(metavar="S", help="Random seed.")] = 0,
) -> None:
    """Measure the detectors on a simulated cluster with known faults.

    recall: faults of at least 1.25x with the right diagnosis within 30 s (straggler: 3 %, 4 minutes); precision: share
    of the hardware diagnoses that name a present fault; false_isolations: diagnoses that justify the isolation of a
    healthy node.  Equal options give equal results, except for run times.
    """
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"--seed: expected 0 to {MAX_SEED:,}, got {seed}")
    if service.url is not None:
        _simulate_remotely(service, ranks=ranks, hours=hours, scenario=scenario, seed=seed)
        return
    with option_errors():
        found = simulate(ranks=ranks, hours=hours, scenario=scenario, seed=seed, clock_s=time.process_time)
    if not service.printed(found):
        print_score(found)


def _simulate_remotely(service: RemoteOptions, **options: Any) -> None:
    with option_errors():
        request = FaultQuestion.model_validate(options, strict=False)
    with service.connect() as client:
        record = client.create_fault_simulation(request)
    FAULT_SIMULATIONS.print_record(record, service)
