"""`fleetwright profiles fit`: fit the performance model's coefficients to measured end-to-end points."""

import csv
import datetime as dt
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from api.cli.catalogues.kinds import known_gpus
from api.cli.common.console import note
from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.cli.common.files import build_model, read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import ExplicitServiceOptions, GpusOption, day_of
from api.cli.common.output import DocumentFormat, DocumentFormatOption, save_document
from fleet.errors import DocumentError, Problem
from fleet.models import ModelCatalogue, builtin_models
from planner.performance.aiconfigurator import COLUMNS, Reading, read_points, silicon_models
from planner.performance.coefficients import Coefficients, Error
from planner.performance.fit_request import FitRequest, fit_coefficients, unusable

HEADER = """\
# Coefficients of the performance model, written by `fleetwright profiles fit`.
# docs/explanation/planner/performance.md defines them.  Measured points are not part of this file.
"""

ModelsOption = Annotated[Path | None, typer.Option("--models", metavar="FILE", help="Models to add to the catalogue.")]

app = new_app()


@app.command("fit")
def fit_profiles(
    service: ExplicitServiceOptions,
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="CSV of measured points in the layout of aiconfigurator's silicon_sample."),
    ],
    gpus: GpusOption = None,
    models: ModelsOption = None,
    source: Annotated[str | None, typer.Option("--source", metavar="TEXT", help="Source of the points.")] = None,
    date: Annotated[str | None, typer.Option("--date", metavar="DAY", help="Date of the fit; default: today.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for the choice of held-out points.")] = 0,
    validation: Annotated[
        bool, typer.Option("--validate/--no-validate", help="Measure errors on held-out points; takes minutes.")
    ] = True,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Output file instead of stdout.")] = None,
    output: DocumentFormatOption = DocumentFormat.YAML,
) -> None:
    """Fit the performance model's coefficients to measurements.

    DATA has a row per measured run: model, GPU, engine, precision, sizes, layout, concurrency, mean TTFT and TPOT.  The
    command counts unusable rows by reason.  Needs the extra `fit`.
    """
    day = day_of(date)
    if service.url is not None:
        if gpus is not None or models is not None:
            raise InputError("--gpus and --models are local, --url uses a service: give one of them")
        fitted = _fit_remotely(data, service, source=source or data.name, day=day, seed=seed, validation=validation)
        save_document(fitted, out, output, header=HEADER)
        return
    if find_spec("scipy") is None:
        raise CommandError("fitting needs scipy: install fleetwright[fit]", exit_code=EXIT_NEGATIVE)
    given = () if models is None else (read_file(models, ModelCatalogue),)
    catalogues = (*given, builtin_models(), silicon_models())
    reading = read_points(_rows(data), gpus=known_gpus(gpus), models=catalogues)
    _report(reading)
    if (reason := unusable(reading)) is not None:
        raise InputError(f"{data}: {reason}")
    chosen = seed if validation else None
    fitted = fit_coefficients(reading, source=source or data.name, day=day, seed=chosen, report=_report_error)
    save_document(fitted, out, output, header=HEADER)


def _fit_remotely(
    data: Path, service: ExplicitServiceOptions, *, source: str, day: dt.date, seed: int, validation: bool
) -> Coefficients:
    request = build_model(
        FitRequest, str(data), rows=tuple(_rows(data)), source=source, date=day, seed=seed, validation=validation
    )
    with service.connect() as client:
        fitted = client.fit_profiles(request)
    for error in fitted.errors:
        _report_error(error)
    return fitted


def _report_error(error: Error) -> None:
    tpot = f"TPOT off by {error.tpot_mape:.1%}, {error.tpot_coverage:.0%} inside the 90 % interval"
    ttft = f"TTFT by {error.ttft_mape:.1%}, {error.ttft_coverage:.0%} inside"
    note(f"{error.split}, {error.points} held-out points: {tpot}; {ttft}")


def _report(reading: Reading) -> None:
    note(f"{len(reading.points)} points to fit")
    for reason, count in sorted(reading.rejected.items(), key=lambda item: -item[1]):
        note(f"{count} rows left out: {reason}")


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, restval="")
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise DocumentError(name=str(path), problems=[Problem(name, "is a missing column") for name in missing])
            return list(reader)
    except OSError as error:
        raise DocumentError(name=str(path), problems=[Problem("", error.strerror or "cannot be read")]) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DocumentError(name=str(path), problems=[Problem("", f"is no CSV text: {error}")]) from error
