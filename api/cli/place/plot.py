"""Plots a heat map of GPU loads per layer, before and after, on one colour scale."""

from pathlib import Path
from typing import Any

import numpy as np

from api.cli.common.plot_files import save_figure
from placement.arrays import Floats, Ints
from placement.dispatch import gpu_loads
from placement.document import Placement
from placement.validation import contiguous

SCALE_PERCENTILE = 99  # a few overloaded GPUs of a bad placement would fade everything else
NAMES = {"current": "current", "contiguous": "experts in order"}


def plot_placement(placement: Placement, path: Path, *, current: Ints | None) -> None:
    """Plot each GPU's load over an even share: white is even, blue is idle, red delays the layer."""
    from matplotlib.colors import TwoSlopeNorm  # noqa: PLC0415 - as below
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra; a Figure of its own needs no display

    old = _contiguous(placement) if current is None else current
    label = NAMES["contiguous" if current is None else "current"]
    panels = [
        (f"before ({label})", _relative(placement, old)),
        (f"after ({placement.dispatch} dispatch)", _relative(placement, placement.expert_of_slot)),
    ]
    top = max(1.05, float(np.percentile(np.concatenate([part.ravel() for _, part in panels]), SCALE_PERCENTILE)))
    norm = TwoSlopeNorm(vmin=0.0, vcenter=1.0, vmax=top)
    figure = Figure(figsize=(11, _height(len(placement.layers))), layout="constrained")
    all_axes = figure.subplots(1, 2, sharey=True)
    image: Any = None
    for axes, (title, loads) in zip(all_axes, panels, strict=True):
        image = axes.imshow(loads, aspect="auto", interpolation="nearest", cmap="RdBu_r", norm=norm)
        axes.set_title(
            f"{title}: mean {loads.max(axis=1).mean():.3f}, worst layer {loads.max():.2f}", fontsize="medium"
        )
        _mark_nodes(axes, placement)
        axes.set_xlabel("GPU, node by node")
    _mark_layers(all_axes[0], placement)
    figure.colorbar(image, ax=all_axes, label="load over an even share", extend="max", fraction=0.03)
    save_figure(figure, path)


def _relative(placement: Placement, expert_of_slot: Ints) -> Floats:
    tokens, layout = placement.expert_loads.total, placement.layout
    loads = gpu_loads(expert_of_slot, tokens, layout=layout, rule=placement.dispatch)
    found: Floats = loads / (tokens.sum(axis=1, keepdims=True) * layout.shares)
    return found


def _contiguous(placement: Placement) -> Ints:
    return contiguous(layers=len(placement.layers), experts=placement.experts, layout=placement.layout)


def _height(layers: int) -> float:
    return min(14.0, max(3.0, 1.5 + 0.11 * layers))


def _mark_nodes(axes: Any, placement: Placement) -> None:
    edges = np.flatnonzero(np.diff(placement.layout.node_of_gpu)) + 0.5
    for edge in edges:
        axes.axvline(edge, color="black", linewidth=0.6)


def _mark_layers(axes: Any, placement: Placement) -> None:
    rows = len(placement.layers)
    shown = range(0, rows, max(1, rows // 15))
    axes.set_yticks(list(shown), [str(placement.layers[row]) for row in shown])
    axes.set_ylabel("layer")
