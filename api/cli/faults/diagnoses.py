"""`fleetwright faults verdicts`: what watchers said is wrong, as a service keeps it, and the bundles that prove it."""

import base64
import gzip
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.build_model import build_model
from api.cli.common.console import print_line, write
from api.cli.common.errors import EXIT_BAD_INPUT, EXIT_NEGATIVE, CommandError
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import MostOption, TokenFileOption, UrlOption
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, in_words, moment, number, print_fields, print_table
from api.cli.common.text_files import read_text
from api.cli.place.files import require_writable, write_whole
from api.schemas.faults import DiagnosisRecord, DiagnosisReport, DiagnosisSummary
from faults.bundle import read_bundle
from faults.diagnosis import Diagnosis, Scope
from fleet.documents import RuleError, dotted

MAX_BYTES = 64 * 1024 * 1024  # of a bundle's text; a service takes no more
COLUMNS = (
    Column("verdict"),
    moment("at"),
    Column("job"),
    Column("class"),
    Column("scope"),
    Column("where"),
    Column("isolate", show=in_words),
    number("confidence", decimals=2),
    Column("believed", show=in_words),
    Column("bundle", show=in_words),
)

IdArgument = Annotated[str, typer.Argument(metavar="VERDICT", help="The verdict's id.")]

app = new_app()


@app.callback()
def diagnoses() -> None:
    """Report verdicts to a service, and read those it keeps."""


@app.command("list")
def list_diagnoses(
    most: MostOption = 20,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the newest verdicts."""
    with connect(url, token_file) as client:
        found = list(itertools.islice(client.iter_diagnoses(), most))
    if output is Format.JSON:
        print_json(found)
        return
    now = datetime.now(UTC)
    print_table(Table(COLUMNS, (_row(each, now) for each in found)))


@app.command("show")
def show(
    diagnosis_id: IdArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one verdict: what, where, since when, how sure, and why."""
    with connect(url, token_file) as client:
        found = client.get_diagnosis(diagnosis_id)
    if output is Format.JSON:
        print_json(found)
    else:
        _print(found)


@app.command("bundle")
def bundle(
    diagnosis_id: IdArgument,
    target: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Where to write it.", show_default="stdout")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
) -> None:
    """Print what a verdict rests on, as `faults replay` takes it."""
    if target is not None:
        require_writable(target)
    with connect(url, token_file) as client:
        text = client.get_diagnosis_bundle(diagnosis_id)
    if target is not None:
        write_whole(target, text)
    else:
        write(text.decode("ascii"))


@app.command("replay")
def replay(
    diagnosis_id: IdArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Let the service replay a verdict's bundle; exit code 1 where it says otherwise now."""
    with connect(url, token_file) as client:
        found = client.replay_diagnosis_bundle(diagnosis_id)
    if output is Format.JSON:
        print_json(found)
    else:
        print_line(
            f"{len(found.replayed)} verdict(s) by version {found.replayed_by}, {len(found.said)} by {found.written_by}"
        )
        print_line("the same, bit for bit" if found.same else "not the same")
        print_line("the reported fault is among them" if found.names_it else "the reported fault is not among them")
    if not (found.same and found.names_it):
        raise typer.Exit(EXIT_NEGATIVE)


@app.command("report")
def report(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="As `faults watch` or `faults replay` write it.")],
    job: Annotated[str, typer.Option(metavar="NAME", help="Whose traffic it was read from.")],
    node: Annotated[
        list[str] | None, typer.Option(metavar="INDEX=NAME", help="A node's name in the fleet; repeat it.")
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(metavar="DOMAIN", help="Failure domain under a leaf or uplink that is at fault; repeat it."),
    ] = None,
    believed_for: Annotated[float, typer.Option(metavar="SECONDS", help="How long it counts in looks.")] = 60.0,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Report what a bundle says is wrong with hardware, with the bundle."""
    text = read_text(file, most_bytes=MAX_BYTES)
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    names = dict(_named(entry) for entry in node or ())
    said: dict[str, Any] = {"job": job, "nodes": names, "domains": domain or [], "believed_for_s": believed_for}
    reports = [
        build_model(DiagnosisReport, "report", diagnosis=diagnosis, bundle=packed, **said)
        for diagnosis in _hardware(text, file)
    ]
    with connect(url, token_file) as client:
        records = [client.report_diagnosis(each) for each in reports]
    if output is Format.JSON:
        print_json(records)
        return
    for record in records:
        print_line(
            f"verdict {record.id}: {record.diagnosis.fault.value}, {_where(record.diagnosis, record.node, record.peer)}"
        )
    if not records:
        print_line("the bundle says that nothing is wrong with hardware")


def _hardware(text: str, file: Path) -> Sequence[Diagnosis]:
    try:
        found = read_bundle(text.splitlines(keepends=True)).diagnoses
    except RuleError as error:
        place, message = error.violations[0]
        raise CommandError(f"{file}: {dotted(place)}: {message}", exit_code=EXIT_BAD_INPUT) from error
    return [diagnosis for diagnosis in found if diagnosis.scope is not Scope.WORKLOAD]


def _named(entry: str) -> tuple[str, str]:
    index, sign, name = entry.partition("=")
    if not sign or not name or not (index.isascii() and index.isdigit()):
        raise CommandError(f"--node {entry}: expected INDEX=NAME", exit_code=EXIT_BAD_INPUT)
    return str(int(index)), name


def _row(each: DiagnosisSummary, now: datetime) -> tuple[object, ...]:
    return (
        *(each.id, each.created_at, each.job, each.fault.value, each.scope.value),
        each.switch or (each.node if each.peer is None else f"{each.node} - {each.peer}"),
        *(each.isolate, each.confidence, now < each.expires_at, each.has_bundle),
    )


def _where(diagnosis: Diagnosis, node: str | None, peer: str | None) -> str:
    place = diagnosis.switch or (node if peer is None else f"{node} - {peer}")
    return f"{diagnosis.scope.value} {place}"


def _print(found: DiagnosisRecord) -> None:
    diagnosis = found.diagnosis
    fields = found.model_dump(mode="json", exclude={"verdict", "nodes", "node", "peer"})
    detail = diagnosis.model_dump(mode="json", exclude={"node", "peer", "scope"})
    print_fields(fields | {"where": _where(diagnosis, found.node, found.peer)} | detail)
