"""`fleetwright place make LOADS` and `placements`: place the experts of a model, and read stored placements."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.console import note
from api.cli.common.errors import EXIT_NEGATIVE
from api.cli.common.files import require_writable, write_whole
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import ExplicitRemoteOptions, RemoteOptions
from api.cli.common.output import Format
from api.cli.common.plot_files import PlotOption, require_plottable
from api.cli.common.progress import record_of
from api.cli.common.result_options import NamingOptions
from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, number
from api.cli.place.layout import LayoutOptions
from api.cli.place.output import print_placement
from api.cli.place.request import InputFiles, build_problem, report_violations
from api.schemas.placements import PlacementRecord, PlacementSummary
from placement.document import Placement, placement_text
from placement.options import Dispatch, DrawingEngine, Method
from placement.problem import TIME_LIMIT_S, PlacementProblem
from placement.request import MAX_CEILING, MAX_SEED, MAX_TIME_LIMIT_S, PlacementRequest

PLACEMENTS: StoredResults[PlacementRecord, PlacementSummary] = StoredResults(
    name="placement",
    columns=(
        Column("model", of="model"),
        number("slots", of="slots"),
        number("GPUs", of="gpus"),
        number("imbalance", decimals=4, of="imbalance"),
        number("bound", decimals=4, of="bound"),
    ),
    newest=lambda client, **chosen: client.iter_placements(**chosen),
    read=lambda client, placement_id: client.get_placement(placement_id),
    print_result=lambda record: print_placement(record.placement),
)
app = new_app()
placements_app = new_app()
PLACEMENTS.add_list(placements_app)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServiceOptions(ExplicitRemoteOptions):
    """Leaves `-o` to the output file."""

    output: Annotated[Format, typer.Option("--format", help="Text for people, or JSON.")] = Format.TABLE


@app.command()
def make(
    files: InputFiles,
    layout_options: LayoutOptions,
    service: _ServiceOptions,
    naming: NamingOptions,
    groups: Annotated[
        int | None,
        typer.Option(
            metavar="K", help="Expert groups of group-limited routing; with --max-imbalance, generates a trace."
        ),
    ] = None,
    dispatch: Annotated[
        Dispatch, typer.Option(help="How the engine chooses a copy: evenly, the nearest, or by a hash.")
    ] = Dispatch.EQUAL,
    engine: Annotated[
        DrawingEngine | None, typer.Option(help="With nearest: plan for the choices that this engine draws.")
    ] = None,
    method: Annotated[
        Method,
        typer.Option(help="Local search; exact: then an integer program per layer; auto: only where there is a gap."),
    ] = Method.SEARCH,
    time_limit: Annotated[
        float,
        typer.Option(
            min=0.01, max=MAX_TIME_LIMIT_S, metavar="S", help="Time limit of the integer programs, in seconds."
        ),
    ] = TIME_LIMIT_S,
    max_imbalance: Annotated[
        float | None, typer.Option(min=1.0, max=MAX_CEILING, metavar="X", help="Ceiling on the mean over layers.")
    ] = None,
    max_moves: Annotated[int | None, typer.Option(min=0, metavar="M", help="Maximum number of copies to move.")] = None,
    move_gb_per_s: Annotated[
        float | None,
        typer.Option(metavar="R", help="Bandwidth for moves, each way, per GPU; adds a schedule."),
    ] = None,
    node_gb_per_s: Annotated[
        float | None,
        typer.Option(metavar="R", help="Bandwidth for moves, each way, per node; else all its GPUs together."),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Check the loads against a known model.")] = None,
    least_tokens: Annotated[
        float, typer.Option(min=0.0, metavar="T", help="Count experts with fewer tokens with this many.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, metavar="N", help="Seed of random numbers.")] = 0,
    target: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Output file for placement.json.")
    ] = None,
    plot: PlotOption = None,
) -> None:
    """Place experts by their loads; `make` may be left out.

    LOADS holds tokens per layer and expert, of one or more windows, as engines record them.  If the ceiling cannot be
    met, the exit code is 1 and the best placement is written.
    """
    stored_as = naming.of(service.url)
    if plot is not None:
        require_plottable(plot)
    for path in (target, plot):
        if path is not None:
            require_writable(path)
    problem = build_problem(
        files,
        layout_options,
        groups=groups,
        rule=dispatch,
        engine=engine,
        method=method,
        time_limit_s=time_limit,
        max_imbalance=max_imbalance,
        max_moves=max_moves,
        move_gb_per_s=move_gb_per_s,
        node_gb_per_s=node_gb_per_s,
        expert_bytes=layout_options.expert_bytes,
        model=model,
        least_tokens=least_tokens,
        seed=seed,
    )
    if service.url is None:
        placement = _place_locally(problem, files, layout_options)
    else:
        placement = _place_remotely(problem, service, stored_as)
    if target is not None:
        write_whole(target, placement_text(placement).encode())
    if plot is not None:
        from api.cli.place.plot import plot_placement  # noqa: PLC0415 - compiles and draws

        plot_placement(placement, plot, current=problem.current)
    if service.url is None and not service.printed(placement.summary()):
        print_placement(placement)
    if not placement.holds:
        note(f"mean imbalance {placement.imbalance.mean:.4f} is above the ceiling of {max_imbalance:g}")
        raise typer.Exit(EXIT_NEGATIVE)


def _place_remotely(problem: PlacementProblem, service: RemoteOptions, stored_as: Mapping[str, Any]) -> Placement:
    with service.connect() as client:
        job = client.submit_placement(PlacementRequest.of(problem), **stored_as)
        record = record_of(client, job, read=client.get_placement)
    PLACEMENTS.print_record(record, service)
    return record.placement


def _place_locally(problem: PlacementProblem, files: InputFiles, layout_options: LayoutOptions) -> Placement:
    from placement.pipeline import place  # noqa: PLC0415 - loads compiled code: input errors come first

    with report_violations(files, layout_options):
        return place(problem, version=version("fleetwright"), clock_s=time.perf_counter)


@placements_app.command("show")
def show(
    service: RemoteOptions,
    placement_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` prints it.")],
    target: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Also write it as placement.json.")
    ] = None,
) -> None:
    """Show one placement; with --format json also its request."""
    if target is not None:
        require_writable(target)
    record = PLACEMENTS.fetch(placement_id, service)
    if target is not None:
        write_whole(target, placement_text(record.placement).encode())
    PLACEMENTS.print_record(record, service)
