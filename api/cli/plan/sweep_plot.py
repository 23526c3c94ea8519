from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from api.cli.common.plot_files import save_figure
from planner.sweep import Sweep, SweepPoint

_TITLE = "filled: on the Pareto front; crosses: broke its objective in the replay; red bands: no mix holds"


def plot_sweep(sweep: Sweep, path: Path) -> None:
    """Plot the cost over the first axis, one line per setting of the others, and the Pareto front as filled points."""
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
    save_figure(figure, path)


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
