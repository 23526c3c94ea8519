"""`fleetwright faults simulate`: thousands of ranks with a known mix of faults, and what the detectors make of them."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import AskUrlOption, TokenFileOption
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.tables import Column, Table, number, print_table
from api.cli.power.simulate_request import option_errors
from api.schemas.faults import MAX_SEED, FaultQuestion
from faults.simulator import Score, simulate
from faults.simulator.answer import KindScore
from faults.simulator.scenario import ScenarioName

RanksOption = Annotated[int, typer.Option(metavar="R", help="Of the job; a multiple of 64 (8 a node, 8 stages).")]
HoursOption = Annotated[float, typer.Option(metavar="H", help="To simulate; one of 16,384 ranks takes minutes.")]
ScenarioOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"Which faults, and what else goes on: {', '.join(ScenarioName)}.",
        autocompletion=lambda: [name.value for name in ScenarioName],
    ),
]
SeedOption = Annotated[int, typer.Option(metavar="S", help="Of all that is drawn at random.")]

app = new_app()

COLUMNS = (
    Column("fault"),
    number("number"),
    Column("recall", show=lambda value: f"{value:.1%}", right=True),
    Column("95 % interval", right=True),
    number("late"),
    number("hidden"),
    Column("direction right", show=lambda value: f"{value:.1%}", right=True),
)


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
    """Grade the detectors on a simulated cluster of known faults.

    recall: faults of 1.25x and worse that got their right name within 30 s (straggler: 3 %, 4 minutes); precision: of
    all verdicts on hardware, those that name a fault that is there; false_isolations: nodes that would have been taken
    out for nothing.  The same question gives the same answer, but for the seconds it took.
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


def print_score(found: Score) -> None:
    """A heading, a row per kind of fault, and the figures that matter."""
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
        f"recall {recall} of {found.faults:,} faults; precision {precision} of {found.verdicts:,} verdicts",
        f"{found.false_isolations:,} false isolations in {found.hours:,.4g} h: at most {per_week} with 95 % confidence",
    ]
    if found.hidden_faults:
        visible = _rate(found.recall_visible, found.recall_visible_interval)
        lines.append(
            f"{found.hidden_faults:,} of the faults hidden, as the only agent that could tell was lost: recall of the "
            f"others {visible}"
        )
    lines += [
        f"{name}: named after {times.p50:.1f} s (p95 {times.p95:.1f}, at most {times.max:.1f})"
        for name, times in found.ttd_s.items()
    ]
    if found.congestion_verdicts or found.workload_verdicts:
        lines.append(
            f"{found.congestion_verdicts:,} links and uplinks named that others did fill, "
            f"{found.workload_verdicts:,} times the workload"
        )
    lines.append(
        f"a decision takes {1000 * found.compute_s_per_window:.1f} ms of a core per {found.window_s:g} s "
        f"(at most {1000 * found.compute_s_per_window_max:.0f}); simulated in {found.run_s:.1f} s"
    )
    return lines


def _rate(value: float | None, interval: tuple[float, float] | None) -> str:
    return "-" if value is None else f"{value:.2%} ({_interval(interval)})"


def _interval(interval: tuple[float, float] | None) -> str | None:
    return None if interval is None else f"{interval[0]:.1%} to {interval[1]:.1%}"
