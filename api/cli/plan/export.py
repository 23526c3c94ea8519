"""`fleetwright plan export`: write a plan as the files that serving stacks read."""

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

import typer

from api.cli.catalogues.kinds import known_gpus
from api.cli.common.console import note, write
from api.cli.common.errors import InputError
from api.cli.common.files import STDIN, name_of, option_errors, read_document, violations_of, write_whole
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import GpusOption, ServiceOptions
from api.cli.plan.file_references import with_files
from api.schemas.plans import PlanRecord
from fleet.documents import read_model
from planner import Plan, PlanRequest
from planner.engine_flags import ENGINE_VERSIONS, ServingEngine
from planner.export import WRITERS, Dialect, ExportedFile, ExportSettings, PlanSource, export_plan
from planner.export.settings import COUNTS_ADDRESS

app = new_app()

UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@app.command()
def export(
    service: ServiceOptions,
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="JSON of `plan --format json`, - for stdin, or an id.")],
    to: Annotated[Dialect, typer.Option("--to", help="What reads the files.")],
    folder: Annotated[
        Path | None, typer.Option("--output-dir", metavar="FOLDER", help="Write the files there; else to stdout.")
    ] = None,
    engine: Annotated[ServingEngine | None, typer.Option(help="The engine of manifests; default: vllm.")] = None,
    engine_version: Annotated[
        str | None, typer.Option(metavar="X.Y.Z", help="Fail unless the flags are for this version of the engine.")
    ] = None,
    images: Annotated[
        list[str] | None,
        typer.Option(
            "--image", metavar="[VENDOR=]IMAGE", help="Container image, of all GPUs or of nvidia or amd; repeatable."
        ),
    ] = None,
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Namespace of the manifests.")] = "default",
    weights: Annotated[
        list[str] | None,
        typer.Option("--weights", metavar="W=NAME", help="Weights of a workload; else those of its model; repeatable."),
    ] = None,
    gpu_label: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Node label with the GPU type; else that of the GPU vendor's operator."),
    ] = None,
    gpu_values: Annotated[
        list[str] | None,
        typer.Option("--gpu-value", metavar="GPU=VALUE", help="Value of that label for a GPU type; repeatable."),
    ] = None,
    counts_address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where AIBrix reads wanted replica counts.")
    ] = COUNTS_ADDRESS,
    request_file: Annotated[
        Path | None, typer.Option("--request", metavar="FILE", help="The request of a plan in a file, for its digest.")
    ] = None,
    gpus: GpusOption = None,
) -> None:
    """Write a plan as engine flags or as Kubernetes manifests.

    Notes on stderr list what the files do not express.  Equal plans and options give equal files.
    """
    source = _source(plan, service, request_file)
    chosen = WRITERS[to].engine or engine or ServingEngine.VLLM
    if engine not in {None, chosen}:
        raise InputError(f"--engine: is {engine}, expected {chosen} or nothing with --to {to}")
    with option_errors():
        settings = ExportSettings(
            engine=chosen,
            image=_pairs("--image", [text if "=" in text else f"any={text}" for text in images or ()]),
            namespace=namespace,
            gpu_label=gpu_label,
            gpu_value=_pairs("--gpu-value", gpu_values),
            weights=_pairs("--weights", weights),
            counts_address=counts_address,
        )
    _check_version(chosen, engine_version)
    with violations_of(name_of(Path(plan))):
        files = export_plan(source, dialect=to, settings=settings, gpus=known_gpus(gpus))
    _write(files, folder)
    for line in WRITERS[to].not_expressed:
        note(f"not expressed: {line}")


def _source(plan: str, service: ServiceOptions, request_file: Path | None) -> PlanSource:
    """Read the plan from a file, or from the service where no file has this name."""
    release = version("fleetwright")
    path = Path(plan)
    if path != STDIN and not path.exists() and UUID.fullmatch(plan):
        if request_file is not None:
            raise InputError("--request: a stored plan has its own request: give it for a plan in a file only")
        with service.connect() as client:
            record = client.get_plan(plan)
        return PlanSource(plan=record.plan, plan_id=record.id, request=record.request, release=release)
    document = read_document(path)
    if isinstance(document.data, dict) and "plan" in document.data:
        stored = read_model(document, PlanRecord)
        return PlanSource(plan=stored.plan, plan_id=stored.id, request=stored.request, release=release)
    request = None
    if request_file is not None:
        request = read_model(with_files(read_document(request_file), request_file), PlanRequest)
    return PlanSource(plan=read_model(document, Plan), request=request, release=release)


def _check_version(engine: ServingEngine, wanted: str | None) -> None:
    known = ENGINE_VERSIONS[engine]
    if wanted is not None and wanted.removeprefix("v") != known:
        raise InputError(f"--engine-version: flags of {engine} {wanted} are not known, expected {known}")


def _pairs(option: str, given: Iterable[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InputError(f"{option}: expected NAME=VALUE, got {text!r}")
        found[name] = value
    return found


def _write(files: Sequence[ExportedFile], folder: Path | None) -> None:
    if folder is None:
        for file in files:
            write(file.text if len(files) == 1 or file.name.endswith(".yaml") else f"# file {file.name}\n{file.text}")
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output-dir: {folder}: {error.strerror}") from error
    for file in files:
        write_whole(folder / file.name, file.text.encode())
        note(f"wrote {folder / file.name}")
