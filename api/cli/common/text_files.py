"""Reads text files: measurements and traces, which are larger than documents and in other formats."""

import gzip
import io
import sys
import zlib
from contextlib import nullcontext
from pathlib import Path

from api.cli.common.files import STDIN
from fleet.errors import DocumentError, Problem

MAX_BYTES = 256 * 1024 * 1024  # a benchmark result with the texts of all requests
GZIP_MAGIC = b"\x1f\x8b"


def name_of(path: Path) -> str:
    """Return the name of a file for errors."""
    return "stdin" if path == STDIN else str(path)


def read_text(path: Path, *, max_bytes: int = MAX_BYTES) -> str:
    """Read a file, gzipped or not, or stdin as `-`; DocumentError when it is unreadable or too large."""
    try:
        with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as stream:
            data = stream.read(max_bytes + 1)
        if data.startswith(GZIP_MAGIC):
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise _refused(path, f"is larger than {max_bytes:,} bytes, expected at most that")
        return data.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _refused(path, f"is a broken gzip file: {error}") from error
    except OSError as error:
        raise _refused(path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise _refused(path, f"is not UTF-8 text: {error.reason} at byte {error.start:,}") from error


def _refused(path: Path, message: str) -> DocumentError:
    return DocumentError(name=name_of(path), problems=[Problem("", message)])
