"""Builds the subcommands of every catalogue document: `fleetwright gpus|models|offers|topology COMMAND`.

`list`, `show` and `check` need no service; `pull`, `push` and `versions` exchange the document with one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.catalogues.kinds import DocumentT, Kind, known_gpus
from api.cli.common.console import note, print_line
from api.cli.common.errors import InputError
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import App, Group, new_app
from api.cli.common.options import (
    FileArgument,
    GpusOption,
    LocalOrRemoteOptions,
    MostOption,
    RemoteOptions,
    ServiceOptions,
)
from api.cli.common.output import DocumentFormat, DocumentFormatOption, Format, FormatOption, print_document, print_json
from api.cli.common.tables import Column, moment, number, print_fields, print_table

if TYPE_CHECKING:
    from api.client import DocumentType, Versioned

VERSIONS = (
    number("version", of="version"),
    moment("at", of="created_at"),
    Column("by", of="created_by"),
    Column("etag", of="etag"),
)


def document_app(kind: Kind[DocumentT], *, cls: type[Group] = Group) -> App:
    app = new_app(cls=cls)
    _add_reading(app, kind)
    _add_check(app, kind)
    _add_exchange(app, kind)
    return app


def _add_reading(app: App, kind: Kind[DocumentT]) -> None:
    overlay = typer.Option(None, "--file", "-f", metavar="FILE", help=kind.file_help)

    @app.command("list", help=f"List the {kind.entry_name}s.")
    def list_entries(service: LocalOrRemoteOptions, file: list[Path] | None = overlay) -> None:
        document = _current(kind, file or (), service)
        if not service.printed(document):
            print_table(kind.table(document))

    @app.command("show", help=f"Show one {kind.entry_name} with derived figures.")
    def show(
        service: LocalOrRemoteOptions,
        name: str = typer.Argument(
            metavar="NAME", help="As `list` prints it.", autocompletion=lambda: list(kind.names(kind.builtin()))
        ),
        file: list[Path] | None = overlay,
    ) -> None:
        document = _current(kind, file or (), service)
        entry = kind.entry(document, name)
        fields, derived = entry.model_dump(mode="json"), kind.derived(document, entry)
        if not service.printed(fields | {"derived": derived}):
            print_fields(fields | derived)


def _add_check(app: App, kind: Kind[DocumentT]) -> None:
    def print_check(file: Path, value: DocumentT, output: Format) -> None:
        count = sum(1 for _ in kind.names(value))
        if output is Format.JSON:
            print_json({"file": str(file), "good": True, kind.name: count})
        else:
            print_line(f"{file}: good, {count:,} {kind.entry_name}{'s' if count != 1 else ''}")

    summary = "Check a file: one line per defect with the allowed values, and exit code 2."
    if kind.require_known is None:

        @app.command("check", help=summary)
        def check(file: FileArgument, output: FormatOption = Format.TABLE) -> None:
            print_check(file, read_file(file, kind.model), output)

    else:

        @app.command("check", help=summary)
        def check_names_too(file: FileArgument, gpus: GpusOption = None, output: FormatOption = Format.TABLE) -> None:
            print_check(file, kind.read(file, gpus=known_gpus(gpus)), output)


def _add_exchange(app: App, kind: Kind[DocumentT]) -> None:
    @app.command("pull", help="Print the document of a service.")
    def pull(
        service: ServiceOptions,
        version: Annotated[
            int | None, typer.Option(metavar="N", min=0, help="An earlier version; 0 ships with the product.")
        ] = None,
        output: DocumentFormatOption = DocumentFormat.YAML,
    ) -> None:
        found = _stored(kind, service, version)
        note(f"version {found.etag}")
        print_document(found.document, output)

    @app.command("push", help="Replace the document of a service by a file.")
    def push(
        service: RemoteOptions,
        file: FileArgument,
        etag: Annotated[
            str | None,
            typer.Option(metavar="ETAG", help="Replace only this version; default: the current one."),
        ] = None,
    ) -> None:
        document, document_type = read_file(file, kind.model), _document_type(kind)
        with service.connect() as client:
            replaced = etag or client.get_document(document_type).etag
            stored = client.replace_document(document_type, document, if_match=replaced).etag
        if not service.printed({"etag": stored}):
            print_line(f"{kind.name}: version {stored}")

    @app.command("versions", help="List the versions of a service's document, newest first.")
    def versions(service: RemoteOptions, most: MostOption = 20) -> None:
        service.print_items(VERSIONS, lambda client: client.iter_document_versions(_document_type(kind)), most=most)


def _current(kind: Kind[DocumentT], files: Sequence[Path], service: LocalOrRemoteOptions) -> DocumentT:
    if service.url is None:
        return kind.local(files)
    if files:
        raise InputError("--file is local, --url (or FLEETWRIGHT_URL) uses a service: give one of them")
    return _stored(kind, service).document


def _stored(kind: Kind[DocumentT], service: ServiceOptions, version: int | None = None) -> "Versioned[DocumentT]":
    """Read the current version from the service, or an earlier one."""
    with service.connect() as client:
        if version is None:
            return client.get_document(_document_type(kind))
        return client.get_document_version(_document_type(kind), version)


def _document_type(kind: Kind[DocumentT]) -> "DocumentType[DocumentT]":
    """Return the client's name of a kind.  The imports are late: they cost more than most local commands."""
    from api.client import DocumentType  # noqa: PLC0415 - on use, as above
    from api.schemas.documents import DocumentKind  # noqa: PLC0415 - as above

    return DocumentType(DocumentKind(kind.name), kind.model)
