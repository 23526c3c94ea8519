"""`fleetwright faults diagnoses`: read the diagnoses of a service, and their bundles."""

import base64
import gzip
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.console import print_line, write
from api.cli.common.errors import EXIT_NEGATIVE, InputError
from api.cli.common.files import build_model, read_text, require_writable, write_whole
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import MostOption, ProjectOptions, ServiceOptions
from api.cli.common.progress import waiting
from api.cli.common.tables import Column, format_value, moment, number, print_fields
from api.schemas.faults import DiagnosisRecord, DiagnosisReport
from faults.bundle import read_bundle
from faults.diagnosis import Diagnosis, Scope
from fleet.documents import RuleError, dotted

MAX_BYTES = 64 * 1024 * 1024  # of a bundle's text; the limit of a service
COLUMNS = (
    Column("diagnosis", of="id"),
    moment("at", of="created_at"),
    Column("job", of="job"),
    Column("class", of="fault"),
    Column("scope", of="scope"),
    Column("where", of=lambda each: each.switch or _ends(each.node, each.peer)),
    Column("isolate", show=format_value, of="isolate"),
    number("confidence", decimals=2, of="confidence"),
    Column("active", show=format_value, of=lambda each: datetime.now(UTC) < each.expires_at),
    Column("bundle", show=format_value, of="has_bundle"),
)

IdArgument = Annotated[str, typer.Argument(metavar="DIAGNOSIS", help="The diagnosis's id.")]

app = new_app()


@app.command("list")
def list_diagnoses(service: ProjectOptions, most: MostOption = 20) -> None:
    """List the newest diagnoses."""
    service.print_items(COLUMNS, lambda client: client.iter_diagnoses(), most=most)


@app.command("show")
def show(service: ProjectOptions, diagnosis_id: IdArgument) -> None:
    """Show one diagnosis: class, place, onset, confidence and reason."""
    with service.connect() as client:
        found = client.get_diagnosis(diagnosis_id)
    if not service.printed(found):
        _print(found)


@app.command("bundle")
def bundle(
    service: ServiceOptions,
    diagnosis_id: IdArgument,
    target: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Where to write it.", show_default="stdout")
    ] = None,
) -> None:
    """Print the bundle of a diagnosis, as `faults replay` takes it."""
    if target is not None:
        require_writable(target)
    with service.connect() as client:
        text = client.get_diagnosis_bundle(diagnosis_id)
    if target is not None:
        write_whole(target, text)
    else:
        write(text.decode("ascii"))


@app.command("replay")
def replay(service: ProjectOptions, diagnosis_id: IdArgument) -> None:
    """Replay the bundle of a diagnosis on the service; exit code 1 if it gives other diagnoses."""
    with service.connect() as client, waiting("replaying the bundle"):
        found = client.replay_diagnosis_bundle(diagnosis_id)
    if not service.printed(found):
        print_line(
            f"{len(found.replayed)} diagnoses by version {found.replayed_by}, "
            f"{len(found.bundled)} by {found.written_by}"
        )
        print_line("the same, bit for bit" if found.same else "not the same")
        print_line(
            "the reported fault is among them" if found.includes_report else "the reported fault is not among them"
        )
    if not (found.same and found.includes_report):
        raise typer.Exit(EXIT_NEGATIVE)


@app.command("report")
def report(
    service: ProjectOptions,
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="As `faults monitor` or `faults replay` write it.")],
    job: Annotated[str, typer.Option(metavar="NAME", help="The monitored job.")],
    node: Annotated[
        list[str] | None, typer.Option(metavar="INDEX=NAME", help="A node's name in the fleet; repeat it.")
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(metavar="DOMAIN", help="Failure domain behind a faulty leaf or uplink; repeat it."),
    ] = None,
    expires_in: Annotated[float, typer.Option(metavar="SECONDS", help="Until the diagnosis expires.")] = 60.0,
) -> None:
    """Report the diagnoses of a bundle that concern hardware, with the bundle."""
    text = read_text(file, max_bytes=MAX_BYTES)
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    names = dict(_named(entry) for entry in node or ())
    common: dict[str, Any] = {"job": job, "nodes": names, "domains": domain or [], "expires_in_s": expires_in}
    reports = [
        build_model(DiagnosisReport, "report", diagnosis=diagnosis, bundle=packed, **common)
        for diagnosis in _hardware(text, file)
    ]
    with service.connect() as client:
        records = [client.report_diagnosis(each) for each in reports]
    if service.printed(records):
        return
    for record in records:
        print_line(
            f"diagnosis {record.id}: {record.diagnosis.fault.value}, "
            f"{_where(record.diagnosis, record.node, record.peer)}"
        )
    if not records:
        print_line("the bundle has no diagnosis of hardware")


def _hardware(text: str, file: Path) -> Sequence[Diagnosis]:
    try:
        found = read_bundle(text.splitlines(keepends=True)).diagnoses
    except RuleError as error:
        place, message = error.violations[0]
        raise InputError(f"{file}: {dotted(place)}: {message}") from error
    return [diagnosis for diagnosis in found if diagnosis.scope is not Scope.WORKLOAD]


def _named(entry: str) -> tuple[str, str]:
    index, sign, name = entry.partition("=")
    if not sign or not name or not (index.isascii() and index.isdigit()):
        raise InputError(f"--node {entry}: expected INDEX=NAME")
    return str(int(index)), name


def _where(diagnosis: Diagnosis, node: str | None, peer: str | None) -> str:
    return f"{diagnosis.scope.value} {diagnosis.switch or _ends(node, peer)}"


def _ends(node: str | None, peer: str | None) -> str | None:
    return node if peer is None else f"{node} - {peer}"


def _print(found: DiagnosisRecord) -> None:
    diagnosis = found.diagnosis
    fields = found.model_dump(mode="json", exclude={"diagnosis", "nodes", "node", "peer"})
    detail = diagnosis.model_dump(mode="json", exclude={"node", "peer", "scope"})
    print_fields(fields | {"where": _where(diagnosis, found.node, found.peer)} | detail)
