"""`fleetwright profiles import|show`: merge benchmark results of any serving tool, and show their coverage."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.catalogues.kinds import known_gpus
from api.cli.common.console import note, write
from api.cli.common.errors import InputError, error_lines
from api.cli.common.files import build_model, name_of, read_text
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import ExplicitServiceOptions, GpusOption
from api.cli.common.output import DocumentFormat, DocumentFormatOption, Format, FormatOption, print_document, print_json
from api.cli.common.tables import Column, Table, number, print_table
from fleet.errors import DocumentError
from fleet.gpus import GpuCatalogue
from fleet.models import builtin_models
from planner.profiles import Configuration, Given, MeasuredPoint, own_csv
from planner.profiles import Format as FileFormat
from planner.profiles.import_request import ImportedProfiles, ImportRequest, ResultText, merge

COLUMNS = (
    Column("model"),
    Column("GPU"),
    number("tp"),
    number("GPUs"),
    Column("precision"),
    Column("engine"),
    number("runs"),
    number("sizes"),
    Column("input tokens"),
    Column("output tokens"),
    Column("pressed by"),
    Column("last"),
)

FilesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="Results of vLLM, SGLang or GuideLLM, tables, or documents; - for stdin."),
]
import_app = new_app()
show_app = new_app()


@import_app.command("import")
def import_results(
    service: ExplicitServiceOptions,
    files: FilesArgument,
    form: Annotated[
        FileFormat | None, typer.Option("--from", help="Format of the files; default: detected per file.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Default for files without it.")] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default for files without it, such as vLLM's.")
    ] = None,
    tp: Annotated[int | None, typer.Option(min=1, max=1024, metavar="N", help="Default tensor parallelism.")] = None,
    pp: Annotated[int | None, typer.Option(min=1, max=1024, metavar="N", help="Default pipeline parallelism.")] = None,
    dp: Annotated[int | None, typer.Option(min=1, max=1024, metavar="N", help="Default data parallelism.")] = None,
    ep: Annotated[int | None, typer.Option(min=1, max=1024, metavar="N", help="Default expert parallelism.")] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default precision, such as bf16 or fp8.")
    ] = None,
    engine: Annotated[str | None, typer.Option(metavar="NAME", help="Likewise.")] = None,
    engine_version: Annotated[str | None, typer.Option(metavar="VERSION", help="Likewise.")] = None,
    date: Annotated[
        dt.datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="DATE", help="Default date of the runs.")
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="TEXT", help="Source of the runs; default: the file.")] = None,
    gpus: GpusOption = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print a CSV table instead of a document.")] = False,
    output: DocumentFormatOption = DocumentFormat.YAML,
) -> None:
    """Merge benchmark results into one document.

    The document goes to stdout.  Earlier documents and CSV tables are valid input too.  Options fill in what a file
    leaves open; the file takes precedence.
    """
    if service.url is not None and gpus is not None:
        raise InputError("--gpus is local, --url uses a service: give one of them")
    given = Given(
        model=model,
        gpu=gpu,
        tensor_parallel=tp,
        pipeline_parallel=pp,
        data_parallel=dp,
        expert_parallel=ep,
        precision=precision,
        engine=engine,
        engine_version=engine_version,
        date=None if date is None else date.date(),
        source=source,
    )
    found = (
        _merged(files, form=form, given=given, gpus=known_gpus(gpus))
        if service.url is None
        else _merged_remotely(files, form=form, given=given, service=service)
    )
    for each in found.results:
        left_out = f"; {_counted(each.left_out, 'row')} of split prefill and decode left out" if each.left_out else ""
        note(f"{each.name}: {each.format}, {_counted(each.runs, 'run')}{left_out}")
    if csv:
        write(own_csv(found.profiles.points))
    else:
        print_document(found.profiles, output)


@show_app.command("show")
def show(files: FilesArgument, gpus: GpusOption = None, output: FormatOption = Format.TABLE) -> None:
    """Show the coverage of a document of measurements.

    One line per model and kind of replica: the number of runs and sizes, and the load: an offered rate, which shows
    arrival bursts, or a fixed number of requests in flight, which does not.
    """
    profiles = _merged(files, form=None, given=Given(), gpus=known_gpus(gpus)).profiles
    covered = [_coverage(configuration, profiles.of(configuration)) for configuration in profiles.configurations()]
    if output is Format.JSON:
        print_json({"configurations": covered})
    else:
        print_table(Table(COLUMNS, [_row(each) for each in covered]))


def _read(files: list[Path], form: FileFormat | None) -> tuple[dict[int, ResultText], dict[int, DocumentError]]:
    """Return the texts of the files and the errors of those that cannot be read, both by their place."""
    texts, failures = dict[int, ResultText](), dict[int, DocumentError]()
    for place, path in enumerate(files):
        try:
            texts[place] = build_model(ResultText, name_of(path), name=name_of(path), text=read_text(path), format=form)
        except DocumentError as error:
            failures[place] = error
    return texts, failures


def _merged(files: list[Path], *, form: FileFormat | None, given: Given, gpus: GpuCatalogue) -> ImportedProfiles:
    """Merge the points of all files; every file is read before any defect is reported."""
    texts, unread = _read(files, form)
    merged = merge(tuple(texts.values()), given=given, gpus=gpus, models=builtin_models())
    failures = unread | {list(texts)[index]: error for index, error in merged.failures}
    _refuse(failures)
    return merged.profiles


def _merged_remotely(
    files: list[Path], *, form: FileFormat | None, given: Given, service: ExplicitServiceOptions
) -> ImportedProfiles:
    texts, unread = _read(files, form)
    _refuse(unread)
    request = build_model(ImportRequest, "import", results=tuple(texts.values()), **asdict(given))
    with service.connect() as client:
        return client.import_profiles(request)


def _refuse(failures: Mapping[int, DocumentError]) -> None:
    if failures:
        raise InputError(*(line for _place, error in sorted(failures.items()) for line in error_lines(error)))


def _coverage(configuration: Configuration, points: tuple[MeasuredPoint, ...]) -> dict[str, Any]:
    inputs, outputs = ([getattr(point, f"{side}_tokens") for point in points] for side in ("input", "output"))
    dates = [point.date for point in points if point.date is not None]
    ways = {"offered rate" if point.offered_rps is not None else "requests in flight" for point in points}
    return {
        "model": configuration.model,
        "gpu": configuration.gpu,
        "tensor_parallel": configuration.tensor_parallel,
        "gpus": configuration.gpus,
        "precision": configuration.precision or None,
        "engine": " ".join(filter(None, (configuration.engine, configuration.engine_version))) or None,
        "runs": len(points),
        "sizes": len(set(zip(inputs, outputs, strict=True))),
        "input_tokens": [min(inputs), max(inputs)],
        "output_tokens": [min(outputs), max(outputs)],
        "pressed_by": sorted(ways),
        "last": None if not dates else max(dates).isoformat(),
        "sources": sorted({point.source for point in points}),
    }


def _row(covered: dict[str, Any]) -> list[object]:
    shown = {key: value for key, value in covered.items() if key != "sources"}
    for side in ("input_tokens", "output_tokens"):
        low, high = (f"{tokens:,.0f}" for tokens in covered[side])
        shown[side] = low if low == high else f"{low} to {high}"
    return [*(shown | {"pressed_by": ", ".join(covered["pressed_by"])}).values()]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
