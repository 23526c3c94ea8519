"""Reads documents, text and bytes from files or from stdin (`-`), builds models from options, and writes files."""

import gzip
import io
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from fleet.documents import Document, RuleError, Violation, dotted, parse_document, read_model, validation_problems
from fleet.documents import Path as Place
from fleet.errors import DocumentError, Problem

ValueT = TypeVar("ValueT")
ModelT = TypeVar("ModelT", bound=BaseModel)
STDIN = Path("-")

MIB = 1024**2
MAX_DOCUMENT_BYTES = 8 * MIB  # the default limit of the service; much more would take minutes to read
MAX_TEXT_BYTES = 256 * MIB  # a benchmark result with the texts of all requests
MAX_BYTES = 1024 * MIB  # a trace of a million tokens with 58 layers of 8 experts is 900 MB as 16-bit numbers
GZIP_MAGIC = b"\x1f\x8b"

_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def name_of(path: Path) -> str:
    """Return the name of a file for errors."""
    return "stdin" if path == STDIN else str(path)


def read_file(path: Path, model: type[ModelT]) -> ModelT:
    """Parse a YAML or JSON file as a model; errors have line numbers."""
    return read_model(read_document(path), model)


def read_document(path: Path) -> Document:
    return parse_document(_decoded(path, read_bytes(path, max_bytes=MAX_DOCUMENT_BYTES)), name=name_of(path))


def read_text(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Read measurements or traces, gzipped or not: larger than documents, and in other formats."""
    data = read_bytes(path, max_bytes=max_bytes)
    if data.startswith(GZIP_MAGIC):
        try:
            with gzip.open(io.BytesIO(data)) as packed:
                data = _bounded(path, packed.read(max_bytes + 1), max_bytes)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _refused(path, f"is a broken gzip file: {error}") from error
    return _decoded(path, data)


def read_bytes(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a file; DocumentError when it is unreadable or too large."""
    try:
        with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as stream:
            return _bounded(path, stream.read(max_bytes + 1), max_bytes)
    except OSError as error:
        raise _refused(path, error.strerror or "cannot be read") from error


def _bounded(path: Path, data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        limit = f"{max_bytes:,} bytes" if max_bytes % MIB else f"{max_bytes // MIB} MiB"
        raise _refused(path, f"is larger than {limit}, expected at most that")
    return data


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(path, f"is not UTF-8 text: {error.reason} at byte {error.start:,}") from error


def _refused(path: Path, message: str) -> DocumentError:
    return DocumentError(name=name_of(path), problems=[Problem("", message)])


@contextmanager
def violations_of(name: str) -> Iterator[None]:
    """Report broken rules, a line each, under the name of a file or option."""
    try:
        yield
    except RuleError as error:
        lines = (": ".join(filter(None, (name, dotted(path), message))) for path, message in error.violations)
        raise InputError(*lines) from error


@contextmanager
def option_errors() -> Iterator[None]:
    """Report each violation on a line, under the option that caused it."""
    try:
        yield
    except RuleError as error:
        raise InputError(*map(_option_line, error.violations)) from error
    except ValidationError as error:
        raise InputError(*map(_option_line, validation_problems(error))) from None


def _option_line(violation: Violation) -> str:
    (field, *inner), message = violation[0] or ("servers",), violation[1]
    option = "--trace" if field == "traces" else f"--{str(field).replace('_', '-')}"
    return ": ".join(filter(None, (option, dotted(inner), message)))


@contextmanager
def locate_errors(document_of: Callable[[Place], Document]) -> Iterator[None]:
    """Add file and line to defects that appear only in use."""
    try:
        yield
    except DocumentError as error:
        places = [(_place(problem.path), problem.message) for problem in error.problems]
        found = [(document_of(place), place, message) for place, message in places]
        lines = (f"{document.name}: {document.problem(place, message)}" for document, place, message in found)
        raise InputError(*lines) from error


def _place(path: str) -> Place:
    """Parse a path: `offers[3].price` becomes `("offers", 3, "price")`."""
    return tuple(int(index) if index else name for index, name in _PART.findall(path))


def build_model(make: Callable[..., ValueT], name: str, /, **fields: Any) -> ValueT:
    """Call `make(**fields)` and report an invalid field as a defect of `name`."""
    try:
        return make(**fields)
    except ValidationError as error:
        problems = [Problem(dotted(path), message) for path, message in validation_problems(error)]
        raise DocumentError(name=name, problems=problems) from None


def require_writable(path: Path) -> None:
    """Refuse an output path that cannot be written, before any computation."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if path.is_dir():
        raise InputError(f"{path}: is a folder")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically; an error leaves the previous file."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", exit_code=EXIT_NEGATIVE) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
