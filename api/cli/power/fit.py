"""`fleetwright power fit`: fit curves of power and speed to measured tables."""

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from api.cli.catalogues.kinds import known_gpus
from api.cli.common.console import note
from api.cli.common.files import name_of, read_bytes, read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import GpusOption, day_of
from api.cli.common.output import DocumentFormat, DocumentFormatOption, save_document
from fleet.documents import RuleError, dotted
from fleet.errors import DocumentError, Problem
from power.measured_models import PowerShares, builtin_shares
from power.measured_models.document import Error
from power.measured_models.fitting import fit_curves
from power.measured_models.tables import Points, read_table

HEADER = """\
# Curves of power and speed, written by `fleetwright power fit` (docs/explanation/power/measured-models.md).
# Measured points are not part of this file.
"""
MAX_BYTES = 64 * 1024 * 1024
GZIP = b"\x1f\x8b"


app = new_app()


@app.command("fit")
def fit_power(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...",
            help="CSV tables, plain or gzipped, of ML.ENERGY, splitwise-sim and Zeus; recognised by their columns.",
        ),
    ],
    gpus: GpusOption = None,
    base: Annotated[
        Path | None, typer.Option("--base", metavar="FILE", help="Curves to lay the fits over; default: what ships.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="TEXT", help="Where the tables come from; default: their names.")
    ] = None,
    date: Annotated[str | None, typer.Option("--date", metavar="DAY", help="Of the fit; default: today.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write here instead of to stdout.")] = None,
    output: DocumentFormatOption = DocumentFormat.YAML,
) -> None:
    """Fit curves of power and speed to measured tables.

    Each FILE is recognised by its columns.  Errors are of held-out data and are printed with the result.
    """
    day = day_of(date)
    under = builtin_shares() if base is None else read_file(base, PowerShares)
    points, catalogue = Points(), known_gpus(gpus)
    for path in files:
        columns, rows = _table(path)
        try:
            kind = read_table(rows, columns, name=path.name, gpus=catalogue, into=points)
        except RuleError as error:
            raise _refused(name_of(path), error) from error
        note(f"{name_of(path)}: {kind}, {len(rows)} rows")
    for reason, count in points.left_out.most_common():
        note(f"{count} rows left out: {reason}")
    try:
        fitted = fit_curves(points, base=under, date=day, source=source)
    except RuleError as error:
        raise _refused(", ".join(map(name_of, files)), error) from error
    for line in errors_of(fitted):
        note(line)
    save_document(fitted, out, output, header=HEADER)


def errors_of(curves: PowerShares) -> Iterator[str]:
    """Yield the errors of the curves, a line each."""
    for board in curves.serving:
        yield f"{board.name}: power of an engine, one share for all: {_described(board.constant_error)}"
        yield f"{board.name}: power of a model not measured, by batch and size: {_described(board.new_model_error)}"
        yield f"{board.name}: power of an engine at a batch not measured: {_described(board.known_engine_error)}"
    for sweep in curves.sweeps:
        yield f"{sweep.name}: training power by clock, jobs held out: {_described(sweep.power_error)}"
        yield f"{sweep.name}: training power by clock, other board types' curve: {_described(sweep.pooled_power_error)}"
        yield f"{sweep.name}: training time by power limit, jobs held out: {_described(sweep.time_error)}"
    for gpu in dict.fromkeys(engine.gpu for engine in curves.engines):
        for error_field in ("power_error", "token_time_error", "prompt_time_error", "prompt_power_error"):
            found = [
                error for one in curves.engines if one.gpu == gpu and (error := getattr(one, error_field)) is not None
            ]
            if found:
                mean = sum(error.mean * error.n for error in found) / sum(error.n for error in found)
                worst = max(error.mean for error in found)
                label = error_field.removesuffix("_error").replace("_", " ")
                yield f"{gpu}: {label} of {len(found)} engines: mean error {mean:.1%}, worst engine {worst:.1%}"


def _described(error: Error) -> str:
    return f"off by {error.mean:.1%}, nine of ten within {error.p90:.1%}, bias {error.bias:+.1%}, {error.n} points"


def _table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    data = read_bytes(path, max_bytes=MAX_BYTES)
    try:
        if data.startswith(GZIP):
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise DocumentError(name=name_of(path), problems=[Problem("", f"unpacks to over {MAX_BYTES:,} bytes")])
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), restval="")
        return list(reader.fieldnames or ()), list(reader)
    except (UnicodeDecodeError, csv.Error, OSError, EOFError) as error:
        raise DocumentError(name=name_of(path), problems=[Problem("", f"is no CSV text: {error}")]) from error


def _refused(name: str, error: RuleError) -> DocumentError:
    """Name rows by their line in the file, and columns by name."""
    problems = []
    for path, message in error.violations:
        line = path[0] if path and isinstance(path[0], int) else None
        problems.append(Problem(dotted(path[1:] if line is not None else path), message, line))
    return DocumentError(name=name, problems=problems)
