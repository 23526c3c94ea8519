"""`fleetwright place make LOADS`: place the experts of a model."""

import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.console import note
from api.cli.common.errors import EXIT_NEGATIVE
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import AskUrlOption, TokenFileOption
from api.cli.common.output import Format, print_json
from api.cli.common.plot_files import PlotOption, require_plottable
from api.cli.place.files import require_writable, write_whole
from api.cli.place.layout import LayoutOptions
from api.cli.place.output import print_placement
from api.cli.place.request import InputFiles, build_problem, report_violations
from placement.document import Placement, placement_text
from placement.layout import MAX_EXPERT_BYTES
from placement.options import Dispatch, DrawingEngine, Method
from placement.problem import TIME_LIMIT_S, PlacementProblem
from placement.request import MAX_CEILING, MAX_SEED, MAX_TIME_LIMIT_S, PlacementRequest

LoadsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="LOADS...", help="Recorded loads in any supported form; several files are windows, added up."
    ),
]
PlainFormatOption = Annotated[Format, typer.Option("--format", help="Text for people, or JSON.")]

app = new_app()


@app.command()
def make(
    loads: LoadsArgument,
    slots: Annotated[
        int, typer.Option(metavar="S", help="Slots of one layer on all GPUs: experts and redundant copies.")
    ],
    gpus: Annotated[
        int | None, typer.Option(metavar="G", help="GPUs that share the experts: the expert-parallel size.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", help="Nodes of the GPUs, which are numbered node by node.")
    ] = None,
    topology: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of --gpus and --nodes: the topology of the --on nodes.")
    ] = None,
    on: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="A node of the topology that takes part; repeat for each.")
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(
            metavar="K", help="Expert groups of group-limited routing; with --max-imbalance, generates a trace."
        ),
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="TRACE", help="Experts of each token: .npz or .npy.")] = None,
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
    gpu_speeds: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON list: relative speed per GPU.")] = None,
    gpu_slots: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON list: slots per GPU, if uneven.")] = None,
    gpu_memory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON list: GB for experts per GPU, which limits its slots.")
    ] = None,
    memory_share: Annotated[
        float | None, typer.Option(metavar="Q", help="With --topology: the share of each GPU's memory for experts.")
    ] = None,
    expert_bytes: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_EXPERT_BYTES, metavar="B", help="Weights of one expert in one layer; else --model's in FP8."
        ),
    ] = None,
    speed_by: Annotated[
        str, typer.Option(metavar="FIGURE", help="With --topology, the figure for speed: bandwidth, bf16, fp8, ...")
    ] = "bandwidth",
    gpu_types: Annotated[
        Path | None, typer.Option(metavar="FILE", help="GPU catalogue that extends the built-in one.")
    ] = None,
    current: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The current placement: move the fewest copies.")
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
    models: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Model catalogue that extends the built-in one.")
    ] = None,
    least_tokens: Annotated[
        float, typer.Option(min=0.0, metavar="T", help="Count experts with fewer tokens with this many.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, metavar="N", help="Seed of random numbers.")] = 0,
    target: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Output file for placement.json.")
    ] = None,
    plot: PlotOption = None,
    url: AskUrlOption = None,
    token_file: TokenFileOption = None,
    output: PlainFormatOption = Format.TABLE,
) -> None:
    """Place experts by their loads; `make` may be left out.

    LOADS holds tokens per layer and expert, of one or more windows, as engines record them.  If the ceiling cannot be
    met, the exit code is 1 and the best placement is written.
    """
    if plot is not None:
        require_plottable(plot)
    for path in (target, plot):
        if path is not None:
            require_writable(path)
    files = InputFiles(loads=loads, trace=trace, current=current, models=models)
    layout_options = LayoutOptions(
        slots=slots,
        gpus=gpus,
        nodes=nodes,
        gpu_speeds=gpu_speeds,
        gpu_slots=gpu_slots,
        gpu_memory=gpu_memory,
        expert_bytes=expert_bytes,
        topology=topology,
        on=on or (),
        memory_share=memory_share,
        speed_by=speed_by,
        catalogue=gpu_types,
    )
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
        expert_bytes=expert_bytes,
        model=model,
        least_tokens=least_tokens,
        seed=seed,
    )
    placement = (
        _place_remotely(problem, url, token_file, output)
        if url is not None
        else _place_locally(problem, files, layout_options)
    )
    if target is not None:
        write_whole(target, placement_text(placement).encode())
    if plot is not None:
        from api.cli.place.plot import plot_placement  # noqa: PLC0415 - compiles and draws

        plot_placement(placement, plot, current=problem.current)
    if url is None and output is Format.JSON:
        print_json(placement.summary())
    elif url is None:
        print_placement(placement)
    if not placement.holds:
        note(f"mean imbalance {placement.imbalance.mean:.4f} is above the ceiling of {max_imbalance:g}")
        raise typer.Exit(EXIT_NEGATIVE)


def _place_remotely(problem: PlacementProblem, url: str, token_file: Path | None, output: Format) -> Placement:
    from api.cli.common.remote import connect  # noqa: PLC0415 - the client costs more than most local results
    from api.cli.place.placements import PLACEMENTS  # noqa: PLC0415 - as above

    with connect(url, token_file) as client:
        record = client.create_placement(PlacementRequest.of(problem))
    PLACEMENTS.print_record(record, output)
    return record.placement


def _place_locally(problem: PlacementProblem, files: InputFiles, layout_options: LayoutOptions) -> Placement:
    from placement.pipeline import place  # noqa: PLC0415 - loads compiled code: input errors come first

    with report_violations(files, layout_options):
        return place(problem, version=version("fleetwright"), clock_s=time.perf_counter)
