"""Reads YAML or JSON files, or stdin as `-`."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from fleet.documents import Document, dotted, parse_document, read_model, validation_problems
from fleet.documents import Path as Place
from fleet.errors import DocumentError, Problem

ValueT = TypeVar("ValueT")


ModelT = TypeVar("ModelT", bound=BaseModel)
STDIN = Path("-")

MAX_BYTES = 8 * 1024 * 1024  # the default limit of the service; much more would take minutes to read

_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def read_file(path: Path, model: type[ModelT]) -> ModelT:
    """Parse a file as a model; errors have line numbers."""
    return read_model(read_document(path), model)


def read_document(path: Path) -> Document:
    name = "stdin" if path == STDIN else str(path)
    try:
        data = _bytes(path)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise DocumentError(name=name, problems=[Problem("", error.strerror or "cannot be read")]) from error
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 text: {error.reason} at byte {error.start:,}"
        raise DocumentError(name=name, problems=[Problem("", message)]) from error
    return parse_document(text, name=name)


def _bytes(path: Path) -> bytes:
    with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        name = "stdin" if path == STDIN else str(path)
        message = f"is larger than {MAX_BYTES // 1024**2} MiB, expected at most that"
        raise DocumentError(name=name, problems=[Problem("", message)])
    return data


@contextmanager
def locate_errors(document_of: Callable[[Place], Document]) -> Iterator[None]:
    """Add file and line to defects that appear only in use."""
    try:
        yield
    except DocumentError as error:
        places = [(_place(problem.path), problem.message) for problem in error.problems]
        found = [(document_of(place), place, message) for place, message in places]
        lines = (f"{document.name}: {document.problem(place, message)}" for document, place, message in found)
        raise CommandError(*lines, exit_code=EXIT_BAD_INPUT) from error


def _place(path: str) -> Place:
    """Parse a path: `offers[3].price` becomes `("offers", 3, "price")`."""
    return tuple(int(index) if index else name for index, name in _PART.findall(path))


def build_model(make: Callable[..., ValueT], what: str, /, **fields: Any) -> ValueT:
    """Call `make(**fields)` and report an invalid field as a defect of `what`."""
    try:
        return make(**fields)
    except ValidationError as error:
        problems = [Problem(dotted(path), message) for path, message in validation_problems(error)]
        raise DocumentError(name=what, problems=problems) from None
