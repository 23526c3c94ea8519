"""Plots a row's power against its budget, the clocks of its controls, and the duration curve of its power."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from api.cli.common.plot_files import save_figure
from power.controls import Clocks
from power.whatif.record import Envelope, Record, envelope
from power.whatif.response import RowResponse

BUCKETS = 1_200  # about one a pixel
KILO = 1000.0
NAMES = {
    "low_token": "tokens, low",
    "high_token": "tokens, high",
    "low_prompt": "prompts, low",
    "high_prompt": "prompts, high",
    "training": "training",
}
STYLES = ("-", "-", "--", "--", ":")
COLOURS = ("tab:blue", "tab:orange", "tab:blue", "tab:orange", "tab:green")
UNCAPPED, CAPPED, BUDGET = "0.6", "tab:blue", "tab:red"
Y_MARGIN = 1.04  # above the highest line
OUTSIDE: dict[str, Any] = {  # above the axes, so that nothing is hidden
    "frameon": False,
    "loc": "lower left",
    "bbox_to_anchor": (0, 1),
    "borderaxespad": 0.2,
    "fontsize": "small",
}


def plot_row(response: RowResponse, record: Record, path: Path) -> None:
    """Plot power and its duration curve, and below the power the clock of each control."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra; a Figure of its own needs no display

    figure = Figure(figsize=(13, 7), layout="constrained")
    axes = figure.subplot_mosaic(
        [["power", "hours"], ["clocks", "text"]], width_ratios=(3.2, 1), height_ratios=(1.7, 1)
    )
    unit_s, unit = (86_400.0, "days") if record.duration_s > 2 * 86_400 else (3600.0, "hours")
    _draw_power(axes["power"], record, unit_s)
    _draw_hours(axes["hours"], record)
    _draw_clocks(axes["clocks"], record, unit_s, trains=response.training_share > 0)
    _write(axes["text"], response)
    axes["clocks"].sharex(axes["power"])
    axes["hours"].sharey(axes["power"])
    axes["power"].set_xlim(0, record.duration_s / unit_s)
    axes["power"].set_ylim(0, Y_MARGIN * max(record.budget_w, record.row_w.max(), record.uncapped_w.max()) / KILO)
    axes["clocks"].set_xlabel(unit)
    axes["power"].tick_params(labelbottom=False)
    figure.suptitle(
        f"{response.servers} servers on the budget of {response.budget_w / KILO:,.1f} kW, policy {response.policy}, "
        f"seed {response.seed}"
    )
    save_figure(figure, path)


def _draw_power(axes: Any, record: Record, unit_s: float) -> None:
    free = envelope(record.uncapped_w, step_s=record.step_s, max_points=BUCKETS)
    found = envelope(record.row_w, step_s=record.step_s, max_points=BUCKETS)
    axes.plot(free.at_s / unit_s, free.high_w / KILO, color=UNCAPPED, linewidth=0.8, label="uncapped, highest")
    _band(axes, found, unit_s)
    axes.axhline(record.budget_w / KILO, color=BUDGET, linewidth=1.2, label="budget")
    if record.fault_s is not None:
        start_s, end_s = record.fault_s
        axes.axvspan(start_s / unit_s, end_s / unit_s, color="tab:orange", alpha=0.25, label="fault")
    if len(record.brakes_s):
        at = np.interp(record.brakes_s, found.at_s, found.high_w) / KILO
        axes.plot(record.brakes_s / unit_s, at, "v", color="black", markersize=5, label=f"brakes: {len(at):,}")
    axes.set_ylabel("row power, kW")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(**OUTSIDE, ncols=6)


def _band(axes: Any, found: Envelope, unit_s: float) -> None:
    at = found.at_s / unit_s
    axes.fill_between(at, found.low_w / KILO, found.high_w / KILO, color=CAPPED, alpha=0.35, linewidth=0)
    axes.plot(at, found.mean_w / KILO, color=CAPPED, linewidth=0.9, label=f"mean and range of {found.step_s:,.0f} s")


def _draw_hours(axes: Any, record: Record) -> None:
    """Plot the duration curve: for how long the row drew at least a given power."""
    for row_w, colour, label in ((record.uncapped_w, UNCAPPED, "uncapped"), (record.row_w, CAPPED, "under the policy")):
        falling = np.sort(row_w)[::-1]
        picked = np.unique(np.linspace(0, len(falling) - 1, BUCKETS).astype(int))
        share = (picked + 1) / len(falling)
        axes.plot(100 * share, falling[picked] / KILO, color=colour, linewidth=1.2, label=label)
    axes.axhline(record.budget_w / KILO, color=BUDGET, linewidth=1.2)
    axes.set_xlabel("% of the time at least")
    axes.tick_params(labelleft=False)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(**OUTSIDE, ncols=2)


def _draw_clocks(axes: Any, record: Record, unit_s: float, *, trains: bool) -> None:
    """Plot the lowest clock of each bucket, so that a short cap stays visible over weeks."""
    edges = np.linspace(0, record.duration_s, BUCKETS + 1)
    in_force = np.searchsorted(record.changed_s, edges, side="right") - 1
    for lever, (name, style, colour) in enumerate(zip(Clocks._fields, STYLES, COLOURS, strict=True)):
        if name == "training" and not trains:
            continue
        lowest = [
            record.clocks[max(first, 0) : max(last, first, 0) + 1, lever].min() for first, last in pairwise(in_force)
        ]
        axes.step(
            edges[:-1] / unit_s, lowest, where="post", linestyle=style, color=colour, linewidth=1, label=NAMES[name]
        )
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("lowest clock, of full")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(**OUTSIDE, ncols=5)


def _write(axes: Any, response: RowResponse) -> None:
    axes.set_axis_off()
    lines = [
        f"brakes {response.brakes:,}",
        f"peak {response.peak_utilization:.1%} of the budget, mean {response.mean_utilization:.1%}",
        f"{response.seconds_over_budget:,.0f} s above it",
        f"{response.energy_kwh:,.0f} kWh, uncapped {response.uncapped.energy_kwh:,.0f}",
        "",
        "latency over the uncapped row's",
    ]
    for name, impact in (("high", response.slo.high), ("low", response.slo.low)):
        lines.append(f"  {name}: p50 {_share(impact.p50)}, p99 {_share(impact.p99)}")
    lines.append("  objectives " + ("held" if response.slo_held else "broken"))
    axes.text(0, 1, "\n".join(lines), va="top", fontsize="medium", transform=axes.transAxes)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2%}"
