"""Plots of answers, written to the file asked for; the kind of file is its suffix (PNG, SVG, PDF)."""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from api.cli.failures import EXIT_BAD_INPUT, EXIT_REFUSED, CommandError
from planner.sweep import Sweep, SweepPoint

SUFFIXES = (".png", ".svg", ".pdf")
_TITLE = "filled: on the Pareto front; crosses: broke its objective in the replay; red bands: no mix holds"


def refuse_unplottable(path: Path) -> None:
    """Before hours of work: the suffix and the extra."""
    if path.suffix.lower() not in SUFFIXES:
        raise CommandError(f"--plot: {path} must end with one of {', '.join(SUFFIXES)}", exit_code=EXIT_BAD_INPUT)
    if find_spec("matplotlib") is None:
        raise CommandError("--plot needs matplotlib: install fleetwright[plot]", exit_code=EXIT_REFUSED)


def plot_sweep(sweep: Sweep, path: Path) -> None:
    """Cost over the first axis, one line per setting of the others, the Pareto front as filled points."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra; a Figure of its own needs no display

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    first, *others = sweep.axes
    for label, points in _lines(sweep.points, first.name, [axis.name for axis in others]):
        _draw(axes, label, points, over=first.name)
    for spare in (point for point in sweep.points if point.cost_usd_per_h is None):
        axes.axvline(spare.factors[first.name], color="tab:red", alpha=0.15, linewidth=6)
    axes.set_xlabel(f"{first.name}, times the request's")
    axes.set_ylabel("cost, $/h")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    if others:
        axes.legend(title=", ".join(axis.name for axis in others), frameon=False)
    axes.set_title(_TITLE, fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", exit_code=EXIT_REFUSED) from error


def _lines(points: Iterable[SweepPoint], over: str, others: Sequence[str]) -> Iterable[tuple[str, list[SweepPoint]]]:
    lines: dict[tuple[float, ...], list[SweepPoint]] = {}
    for point in points:
        if point.cost_usd_per_h is not None:
            lines.setdefault(tuple(point.factors[name] for name in others), []).append(point)
    for setting, line in lines.items():
        yield ", ".join(f"x {factor:g}" for factor in setting), sorted(line, key=lambda point: point.factors[over])


def _draw(axes: Any, label: str, points: Sequence[SweepPoint], *, over: str) -> None:
    (line,) = axes.plot(
        [point.factors[over] for point in points], [point.cost_usd_per_h for point in points], linewidth=1, label=label
    )
    colour = line.get_color()
    for point in points:
        at = (point.factors[over], point.cost_usd_per_h)
        if point.verified is False:
            axes.scatter(*at, s=36, marker="x", color=colour, zorder=3)
        else:
            axes.scatter(*at, s=28, facecolors=colour if point.pareto else "white", edgecolors=colour, zorder=3)
