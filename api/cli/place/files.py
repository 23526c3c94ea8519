"""Reads loads and traces as bytes and placements as documents, and writes files atomically."""

import hashlib
import os
import sys
import tempfile
from contextlib import nullcontext, suppress
from pathlib import Path

from pydantic import ValidationError

from api.cli.common.errors import EXIT_BAD_INPUT, EXIT_NEGATIVE, CommandError
from api.cli.common.files import STDIN
from api.cli.common.text_files import name_of
from fleet.documents import MAX_PROBLEMS, dotted, validation_problems
from fleet.errors import DocumentError, Problem
from placement.document import Placement, Source

MAX_DOCUMENT_BYTES = 256 * 1024**2
MAX_BYTES = 1024**3  # a trace of a million tokens with 58 layers of 8 experts is 900 MB as 16-bit numbers


def read_bytes(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    try:
        with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as stream:
            data = stream.read(max_bytes + 1)
    except OSError as error:
        raise DocumentError(name=name_of(path), problems=[Problem("", error.strerror or "cannot be read")]) from error
    if len(data) > max_bytes:
        message = f"is larger than {max_bytes:,} bytes, expected at most that"
        raise DocumentError(name=name_of(path), problems=[Problem("", message)])
    return data


def source_of(path: Path, data: bytes) -> Source:
    """Return the provenance entry of a file."""
    from placement.formats import kind_of  # noqa: PLC0415 - readers of forms that no other command needs

    kind = kind_of(data, name=name_of(path))
    return Source(name=name_of(path), sha256=hashlib.sha256(data).hexdigest(), format=kind)


def placement_from(path: Path) -> tuple[Placement, Source]:
    """Return the placement of a file, and its provenance entry."""
    data = read_bytes(path, max_bytes=MAX_DOCUMENT_BYTES)
    found = placement_in(data, path)
    return found, source_of(path, data)


def placement_in(data: bytes, path: Path) -> Placement:
    try:
        return Placement.model_validate_json(data)
    except ValidationError as error:
        found = validation_problems(error)[:MAX_PROBLEMS]
        problems = [Problem(dotted(place), message) for place, message in found]
        raise DocumentError(name=name_of(path), problems=problems) from error


def require_writable(path: Path) -> None:
    """Refuse an output path that cannot be written, before any computation."""
    if not path.parent.is_dir():
        raise CommandError(f"{path}: there is no folder {path.parent}", exit_code=EXIT_BAD_INPUT)
    if path.is_dir():
        raise CommandError(f"{path}: is a folder", exit_code=EXIT_BAD_INPUT)


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
