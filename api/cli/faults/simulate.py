"""`fleetwright faults simulate` and `simulations`: score the detectors on a simulated job with known faults."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import InputError
from api.cli.common.files import option_errors
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import ExplicitRemoteOptions, RemoteOptions
from api.cli.common.progress import record_of
from api.cli.common.result_options import NamingOptions
from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, Table, number, print_table
from api.schemas.faults import MAX_SEED, FaultSimulationRecord, FaultSimulationRequest, FaultSimulationSummary
from faults.simulator import Score, simulate
from faults.simulator.result import KindScore
from faults.simulator.scenario import ScenarioName

COLUMNS = (
    Column("fault"),
    number("number"),
    Column("recall", show=lambda value: f"{value:.1%}", right=True),
    Column("95 % interval", right=True),
    number("late"),
    number("hidden"),
    Column("right direction", show=lambda value: f"{value:.1%}", right=True),
)

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
    newest=lambda client, **chosen: client.iter_fault_simulations(**chosen),
    read=lambda client, simulation_id: client.get_fault_simulation(simulation_id),
    print_result=lambda record: print_score(record.simulation),
)

app = new_app()
simulations_app = FAULT_SIMULATIONS.app()


@app.command(name="simulate")
def simulate_command(
    service: ExplicitRemoteOptions,
    naming: NamingOptions,
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
    of the hardware diagnoses that name a present fault; false_isolations: diagnoses that justify the quarantine of a
    healthy node.  Equal options give equal results, except for run times.
    """
    stored_as = naming.of(service.url)
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"--seed: expected 0 to {MAX_SEED:,}, got {seed}")
    if service.url is not None:
        _simulate_remotely(service, stored_as, ranks=ranks, hours=hours, scenario=scenario, seed=seed)
        return
    with option_errors():
        found = simulate(ranks=ranks, hours=hours, scenario=scenario, seed=seed, clock_s=time.process_time)
    if not service.printed(found):
        print_score(found)


def _simulate_remotely(service: RemoteOptions, stored_as: Mapping[str, Any], **options: Any) -> None:
    with option_errors():
        request = FaultSimulationRequest.model_validate(options, strict=False)
    with service.connect() as client:
        record = record_of(
            client, client.submit_fault_simulation(request, **stored_as), read=client.get_fault_simulation
        )
    FAULT_SIMULATIONS.print_record(record, service)


def print_score(found: Score) -> None:
    """Print a heading, a row per kind of fault, and the main results."""
    print_line(f"{found.ranks:,} ranks for {found.hours:g} h, scenario {found.scenario}, seed {found.seed}")
    print_line("")
    if found.by_kind:
        print_table(Table(COLUMNS, [_row(name, kind) for name, kind in found.by_kind.items()]))
        print_line("")
    for line in _remarks(found):
        print_line(f"- {line}")


def _row(name: str, kind: KindScore) -> tuple[object, ...]:
    return name, kind.faults, kind.recall, _interval(kind.recall_interval), kind.late, kind.hidden, kind.right_direction


def _remarks(found: Score) -> list[str]:
    recall, precision = _rate(found.recall, found.recall_interval), _rate(found.precision, found.precision_interval)
    per_week = f"{found.false_isolations_per_week_upper95:,.1f} a week"
    lines = [
        f"recall {recall} of {found.faults:,} faults; precision {precision} of {found.diagnoses:,} diagnoses",
        f"{found.false_isolations:,} false isolations in {found.hours:,.4g} h: at most {per_week} with 95 % confidence",
    ]
    if found.hidden_faults:
        visible = _rate(found.recall_visible, found.recall_visible_interval)
        lines.append(
            f"{found.hidden_faults:,} faults were hidden by the loss of the only agent that could report them; "
            f"recall of the others {visible}"
        )
    lines += [
        f"{name}: detected after {times.p50:.1f} s (p95 {times.p95:.1f}, maximum {times.max:.1f})"
        for name, times in found.ttd_s.items()
    ]
    if found.congestion_diagnoses or found.workload_diagnoses:
        lines.append(
            f"{found.congestion_diagnoses:,} diagnoses of congestion by other jobs, "
            f"{found.workload_diagnoses:,} of the workload"
        )
    lines.append(
        f"an evaluation takes {1000 * found.compute_s_per_window:.1f} ms of CPU time per {found.window_s:g} s "
        f"(maximum {1000 * found.compute_s_per_window_max:.0f}); simulated in {found.run_s:.1f} s"
    )
    return lines


def _rate(value: float | None, interval: tuple[float, float] | None) -> str:
    return "-" if value is None else f"{value:.2%} ({_interval(interval)})"


def _interval(interval: tuple[float, float] | None) -> str | None:
    return None if interval is None else f"{interval[0]:.1%} to {interval[1]:.1%}"
