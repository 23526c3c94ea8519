"""Prints tables for people, JSON for programs, and YAML or JSON for documents that commands read again."""

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from api.cli.common.console import note, print_line, write
from api.cli.common.errors import EXIT_NEGATIVE, CommandError
from fleet.documents import write_model

Jsonable = BaseModel | Sequence[BaseModel] | Mapping[str, Any]


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


class DocumentFormat(StrEnum):
    YAML = "yaml"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", "-o", help="A table, or JSON for programs.")]
DocumentFormatOption = Annotated[DocumentFormat, typer.Option("--format", "-o", help="Both can be read back.")]


def print_json(value: Jsonable) -> None:
    encoding = sys.stdout.encoding or "ascii"
    print_line(json.dumps(_plain(value), indent=2, ensure_ascii=not encoding.lower().startswith("utf")))


def print_document(document: BaseModel, output: DocumentFormat) -> None:
    """Print a document in a form that `check` and `push` read."""
    if output is DocumentFormat.JSON:
        print_json(document)
    else:
        write(write_model(document))


def save_document(document: BaseModel, path: Path | None, output: DocumentFormat, *, header: str) -> None:
    """Write a document into a file, as YAML under a header; print it where there is no file."""
    if path is None:
        print_document(document, output)
        return
    yaml, indented = header + write_model(document), document.model_dump_json(indent=2) + "\n"
    try:
        path.write_text(yaml if output is DocumentFormat.YAML else indented, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", exit_code=EXIT_NEGATIVE) from error
    note(f"written to {path}")


def _plain(value: Jsonable) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return dict(value) if isinstance(value, Mapping) else [_plain(item) for item in value]
