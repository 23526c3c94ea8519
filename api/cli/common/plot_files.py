"""Writes plot files; the suffix selects the format."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError

SUFFIXES = (".png", ".svg", ".pdf")

PlotOption = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Also plot: PNG, SVG or PDF.")]


def require_plottable(path: Path) -> None:
    """Check the suffix and the plot extra before any work."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--plot: {path} must end with one of {', '.join(SUFFIXES)}")
    if find_spec("matplotlib") is None:
        raise CommandError("--plot needs matplotlib: install fleetwright[plot]", exit_code=EXIT_NEGATIVE)


def save_figure(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", exit_code=EXIT_NEGATIVE) from error
