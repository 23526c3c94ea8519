"""Builds the subcommands of every catalogue document: `fleetwright gpus|models|offers|topology COMMAND`.

`list`, `show` and `check` need no service; `pull`, `push` and `versions` exchange the document with one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.catalogues.kinds import DocumentT, Kind, known_gpus
from api.cli.common.console import note, print_line
from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import Group, new_app
from api.cli.common.options import AskUrlOption, FileArgument, GpusOption, MostOption, TokenFileOption, UrlOption
from api.cli.common.output import DocumentFormat, DocumentFormatOption, Format, FormatOption, print_document, print_json
from api.cli.common.tables import Column, Table, moment, number, print_fields, print_table

if TYPE_CHECKING:
    from api.cli.catalogues.exchange import RemoteDocument


def document_app(kind: Kind[DocumentT], *, cls: type[Group] = Group) -> typer.Typer:
    app = new_app(cls=cls)
    _add_reading(app, kind)
    _add_check(app, kind)
    _add_exchange(app, kind)
    return app


def _add_reading(app: typer.Typer, kind: Kind[DocumentT]) -> None:
    overlay = typer.Option(None, "--file", "-f", metavar="FILE", help=kind.file_help)

    @app.command("list", help=f"List the {kind.entry_name}s.")
    def list_entries(
        file: list[Path] | None = overlay,
        url: AskUrlOption = None,
        token_file: TokenFileOption = None,
        output: FormatOption = Format.TABLE,
    ) -> None:
        document = _current(kind, file or (), url, token_file)
        if output is Format.JSON:
            print_json(document)
        else:
            print_table(kind.table(document))

    @app.command("show", help=f"Show one {kind.entry_name} with derived figures.")
    def show(
        name: str = typer.Argument(
            metavar="NAME", help="As `list` prints it.", autocompletion=lambda: list(kind.names(kind.builtin()))
        ),
        file: list[Path] | None = overlay,
        url: AskUrlOption = None,
        token_file: TokenFileOption = None,
        output: FormatOption = Format.TABLE,
    ) -> None:
        document = _current(kind, file or (), url, token_file)
        entry = kind.entry(document, name)
        fields, derived = entry.model_dump(mode="json"), kind.derived(document, entry)
        if output is Format.JSON:
            print_json(fields | {"derived": derived})
        else:
            print_fields(fields | derived)


def _add_check(app: typer.Typer, kind: Kind[DocumentT]) -> None:
    def answer(file: Path, value: DocumentT, output: Format) -> None:
        count = sum(1 for _ in kind.names(value))
        if output is Format.JSON:
            print_json({"file": str(file), "good": True, kind.name: count})
        else:
            print_line(f"{file}: good, {count:,} {kind.entry_name}{'s' if count != 1 else ''}")

    summary = "Check a file: one line per defect with the allowed values, and exit code 2."
    if kind.require_known is None:

        @app.command("check", help=summary)
        def check(file: FileArgument, output: FormatOption = Format.TABLE) -> None:
            answer(file, read_file(file, kind.model), output)

    else:

        @app.command("check", help=summary)
        def check_names_too(file: FileArgument, gpus: GpusOption = None, output: FormatOption = Format.TABLE) -> None:
            answer(file, kind.read(file, gpus=known_gpus(gpus)), output)


def _add_exchange(app: typer.Typer, kind: Kind[DocumentT]) -> None:
    @app.command("pull", help="Print the document of a service.")
    def pull(
        version: Annotated[
            int | None, typer.Option(metavar="N", min=0, help="An earlier version; 0 ships with the product.")
        ] = None,
        url: UrlOption = None,
        token_file: TokenFileOption = None,
        output: DocumentFormatOption = DocumentFormat.YAML,
    ) -> None:
        found = _exchange(kind, url, token_file).fetch(version)
        note(f"version {found.etag}")
        print_document(found.document, output)

    @app.command("push", help="Replace the document of a service by a file.")
    def push(
        file: FileArgument,
        etag: Annotated[
            str | None,
            typer.Option(metavar="ETAG", help="Replace only this version; default: the current one."),
        ] = None,
        url: UrlOption = None,
        token_file: TokenFileOption = None,
        output: FormatOption = Format.TABLE,
    ) -> None:
        stored = _exchange(kind, url, token_file).replace(read_file(file, kind.model), etag=etag)
        if output is Format.JSON:
            print_json({"etag": stored})
        else:
            print_line(f"{kind.name}: version {stored}")

    @app.command("versions", help="List the versions of a service's document, newest first.")
    def versions(
        most: MostOption = 20,
        url: UrlOption = None,
        token_file: TokenFileOption = None,
        output: FormatOption = Format.TABLE,
    ) -> None:
        found = _exchange(kind, url, token_file).versions(most)
        if output is Format.JSON:
            print_json(found)
        else:
            rows = ((each.version, each.created_at, each.created_by, each.etag) for each in found)
            print_table(Table((number("version"), moment("at"), Column("by"), Column("etag")), rows))


def _current(kind: Kind[DocumentT], files: Sequence[Path], url: str | None, token_file: Path | None) -> DocumentT:
    if url is None:
        return kind.local(files)
    if files:
        message = "--file is local, --url (or FLEETWRIGHT_URL) uses a service: give one of them"
        raise CommandError(message, exit_code=EXIT_BAD_INPUT)
    return _exchange(kind, url, token_file).fetch().document


def _exchange(kind: Kind[DocumentT], url: str | None, token_file: Path | None) -> "RemoteDocument[DocumentT]":
    """Return the document at the service.  The import is late: it costs more than most local commands."""
    from api.cli.catalogues.exchange import RemoteDocument  # noqa: PLC0415 - on use, as above

    return RemoteDocument(kind, url=url, token_file=token_file)
