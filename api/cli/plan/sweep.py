"""`fleetwright sweep`: solve one request over a grid of rates, objectives, prices and power limits, and plot it."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from api.cli.catalogues.kinds import known_gpus
from api.cli.common.console import print_line
from api.cli.common.errors import InputError, input_errors
from api.cli.common.files import read_document, read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import ExplicitRemoteOptions, FileArgument, GpusOption, RemoteOptions
from api.cli.common.plot_files import PlotOption, require_plottable, save_figure
from api.cli.common.progress import record_of
from api.cli.common.result_options import NamingOptions
from api.cli.common.stored_results import StoredResults
from api.cli.common.tables import Column, format_value, number, print_table, table_of
from api.cli.plan.context import (
    ModelsOption,
    OffersOption,
    ProfilesOption,
    World,
    planned,
    planning_context,
    with_profiles,
)
from api.cli.plan.file_references import with_files
from api.schemas.sweeps import SweepRecord, SweepRequest, SweepSummary
from deploy.common.executors import Processes, RayTasks, Runner
from fleet.documents import RuleError, read_model
from fleet.offers import PriceSheet
from planner import PlanRequest
from planner.sweep import Axis, GridRequest, Sweep, SweepPoint, grid_requests, mark_front, point

_TITLE = "filled: on the Pareto front; crosses: broke its objective in the replay; red bands: no mix holds"
SWEEPS: StoredResults[SweepRecord, SweepSummary] = StoredResults(
    name="sweep",
    columns=(Column("over", of="over"), number("points", of="points"), number("failed", of="failed")),
    newest=lambda client, **chosen: client.iter_sweeps(**chosen),
    read=lambda client, sweep_id: client.get_sweep(sweep_id),
    print_result=lambda record: print_sweep(record.sweep),
)

app = new_app()
sweeps_app = SWEEPS.app()


@app.command()
def sweep(
    service: ExplicitRemoteOptions,
    naming: NamingOptions,
    file: FileArgument,
    over: Annotated[
        list[str],
        typer.Option(
            "--over",
            metavar="KNOB[:NAME]=FACTORS",
            help="What to scale: rate, slo, price or power, of all or of one workload, GPU or power domain. "
            "FACTORS is 0.5,1,2 or 0.5:2:7 (from, to, how many). Several make a grid.",
        ),
    ],
    plot: PlotOption = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, metavar="N", help="Processes; default: one per core.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option("--ray", metavar="ADDRESS", help="Run on this Ray cluster instead, e.g. auto.")
    ] = None,
    gpus: GpusOption = None,
    models: ModelsOption = None,
    offers: OffersOption = None,
    profiles: ProfilesOption = None,
) -> None:
    """Show what a load costs as rate, SLO, prices or power change.

    FILE is the request, as for `fleetwright plan`.  Points marked * are on the Pareto front: no point serves more at no
    higher cost.  With --url the workers of a service plan the points, and the service stores the sweep.
    """
    if service.url is not None and any((gpus, models, offers, workers, ray)):
        message = "--gpus, --models, --offers, --workers and --ray are local, --url uses a service: give one of them"
        raise InputError(message)
    stored_as = naming.of(service.url)
    if plot is not None:
        require_plottable(plot)
    request = read_model(with_files(read_document(file), file), PlanRequest)
    request = with_profiles(request, profiles, gpus=known_gpus(gpus))
    with input_errors(RuleError, prefix="--over: "):
        axes = [Axis.parse(text) for text in over]
    if service.url is not None:
        found = _sweep_remotely(SweepRequest(request=request, axes=tuple(axes)), service, stored_as)
    else:
        prices = None if offers is None else read_file(offers, PriceSheet)
        world = planning_context(gpus=known_gpus(gpus), models=models, prices=prices)
        with input_errors(RuleError, prefix="--over: "):
            requests = grid_requests(request, world.prices, axes, gpus=world.gpus)
        runner = RayTasks(address=ray) if ray is not None else Processes(workers=workers)
        found = mark_front(axes, _solve_points(runner, requests, world), goal=request.policy.goal)
        if not service.printed(found):
            print_sweep(found)
    if plot is not None:
        plot_sweep(found, plot)


def _sweep_remotely(request: SweepRequest, service: RemoteOptions, stored_as: Mapping[str, Any]) -> Sweep:
    with service.connect() as client:
        record = record_of(client, client.submit_sweep(request, **stored_as), read=client.get_sweep)
    SWEEPS.print_record(record, service)
    return record.sweep


def print_sweep(found: Sweep) -> None:
    """Print the points as a table, then the reasons of those that failed."""
    print_table(table_of([*_columns(found)], found.points))
    for each in found.failed:
        at = ", ".join(f"{name}={factor:g}" for name, factor in each.factors.items())
        print_line(f"{at} failed: {each.reason}")


def _solve_points(runner: Runner, requests: tuple[GridRequest, ...], world: World) -> list[SweepPoint]:
    found: dict[int, SweepPoint] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("planning", total=len(requests))
        for position, result in runner.run(partial(_solve_point, world), requests):
            found[position] = result
            progress.advance(task)
    return [found[position] for position in range(len(requests))]


def _solve_point(world: World, grid_request: GridRequest) -> SweepPoint:
    factors, request, prices = grid_request
    result = planned(request, world.at_prices(prices), now=datetime.now(UTC), clock_s=time.perf_counter)
    return point(factors, result)


def _columns(found: Sweep) -> Iterator[Column]:
    for axis in found.axes:
        yield number(axis.name, decimals=3, of=partial(_factor, name=axis.name))
    yield Column("", of=lambda one: "*" if one.pareto else "")
    yield number("$/h", decimals=2, of="cost_usd_per_h")
    if not found.goal.counts_price:
        yield number(found.goal.column, decimals=2, of="goal_value")
    yield number("kW", decimals=2, of=_power_kw)
    yield number("GPUs", of=lambda one: one.gpus if one.cost_usd_per_h is not None else None)
    yield Column("status", of="status")
    if any(one.verified is not None for one in found.points):
        yield Column("verified", show=format_value, of="verified")
    yield Column("mix", of="mix")


def _power_kw(one: SweepPoint) -> float | None:
    return one.power_w / 1000 if one.cost_usd_per_h is not None and one.power_w is not None else None


def _factor(one: SweepPoint, *, name: str) -> float:
    return one.factors[name]


def plot_sweep(sweep: Sweep, path: Path) -> None:
    """Plot the cost over the first axis, one line per setting of the others, and the Pareto front as filled points."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra; a Figure of its own needs no display

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    first, *others = sweep.axes
    for label, points in _lines(sweep.points, first.name, [axis.name for axis in others]):
        _draw(axes, label, points, over=first.name)
    for spare in (each for each in sweep.points if each.cost_usd_per_h is None):
        axes.axvline(spare.factors[first.name], color="tab:red", alpha=0.15, linewidth=6)
    axes.set_xlabel(f"{first.name}, times the request's")
    axes.set_ylabel("cost, $/h")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    if others:
        axes.legend(title=", ".join(axis.name for axis in others), frameon=False)
    axes.set_title(_TITLE, fontsize="small")
    save_figure(figure, path)


def _lines(points: Iterable[SweepPoint], over: str, others: Sequence[str]) -> Iterable[tuple[str, list[SweepPoint]]]:
    lines: dict[tuple[float, ...], list[SweepPoint]] = {}
    for each in points:
        if each.cost_usd_per_h is not None:
            lines.setdefault(tuple(each.factors[name] for name in others), []).append(each)
    for setting, line in lines.items():
        yield ", ".join(f"x {factor:g}" for factor in setting), sorted(line, key=lambda each: each.factors[over])


def _draw(axes: Any, label: str, points: Sequence[SweepPoint], *, over: str) -> None:
    (line,) = axes.plot(
        [each.factors[over] for each in points], [each.cost_usd_per_h for each in points], linewidth=1, label=label
    )
    colour = line.get_color()
    for each in points:
        at = (each.factors[over], each.cost_usd_per_h)
        if each.verified is False:
            axes.scatter(*at, s=36, marker="x", color=colour, zorder=3)
        else:
            axes.scatter(*at, s=28, facecolors=colour if each.pareto else "white", edgecolors=colour, zorder=3)
