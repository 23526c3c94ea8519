"""`fleetwright faults simulate`: score the detectors on a simulated job with known faults."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import AskUrlOption, TokenFileOption
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.faults.simulate_output import print_score
from api.cli.power.simulate_request import option_errors
from api.schemas.faults import MAX_SEED, FaultQuestion
from faults.simulator import simulate
from faults.simulator.scenario import ScenarioName

RanksOption = Annotated[
    int, typer.Option(metavar="R", help="Ranks of the job; a multiple of 64 (8 per node, 8 stages).")
]
HoursOption = Annotated[float, typer.Option(metavar="H", help="Simulated time; an hour of 16,384 ranks takes minutes.")]
ScenarioOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"Faults and background events: {', '.join(ScenarioName)}.",
        autocompletion=lambda: [name.value for name in ScenarioName],
    ),
]
SeedOption = Annotated[int, typer.Option(metavar="S", help="Random seed.")]

app = new_app()


@app.command(name="simulate")
def simulate_command(
    ranks: RanksOption = 16_384,
    hours: HoursOption = 1.0,
    scenario: ScenarioOption = ScenarioName.MIXED.value,
    seed: SeedOption = 0,
    url: AskUrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Measure the detectors on a simulated cluster with known faults.

    recall: faults of at least 1.25x with the right diagnosis within 30 s (straggler: 3 %, 4 minutes); precision: share
    of the hardware diagnoses that name a present fault; false_isolations: diagnoses that justify the isolation of a
    healthy node.  Equal options give equal results, except for run times.
    """
    if not 0 <= seed <= MAX_SEED:
        raise CommandError(f"--seed: expected 0 to {MAX_SEED:,}, got {seed}", exit_code=EXIT_BAD_INPUT)
    if url is not None:
        _simulate_remotely(url, token_file, output, ranks=ranks, hours=hours, scenario=scenario, seed=seed)
        return
    with option_errors():
        found = simulate(ranks=ranks, hours=hours, scenario=scenario, seed=seed, clock_s=time.process_time)
    if output is Format.JSON:
        print_json(found)
    else:
        print_score(found)


def _simulate_remotely(url: str, token_file: Path | None, output: Format, **options: Any) -> None:
    from api.cli.common.remote import connect  # noqa: PLC0415 - the client costs more than most local results
    from api.cli.faults.simulations import FAULT_SIMULATIONS  # noqa: PLC0415 - as above

    with option_errors():
        request = FaultQuestion.model_validate(options, strict=False)
    with connect(url, token_file) as client:
        record = client.create_fault_simulation(request)
    FAULT_SIMULATIONS.print_record(record, output)
