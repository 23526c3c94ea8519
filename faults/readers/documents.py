"""Reading of a whole document from chunks, in bounded memory."""

from collections.abc import Iterable

from faults.readers.parse_errors import MalformedError

MAX_BYTES = 32 * 1024 * 1024
MAX_VALUES = 2_000_000  # in one JSON document; each costs about 100 bytes once parsed


def whole_document(content: bytes | Iterable[bytes], *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of a document.  Reading stops at the limit."""
    held = bytearray()
    for chunk in (content,) if isinstance(content, bytes) else content:
        if len(held) + len(chunk) > max_bytes:
            raise MalformedError("too large")
        held += chunk
    return bytes(held)


def most_values(data: bytes, *, most: int = MAX_VALUES) -> bytes:
    """Return the same bytes, if parsing them as JSON cannot make more values than the limit."""
    if sum(map(data.count, (b",", b"[", b"{"))) > most:
        raise MalformedError("too many values")
    return data
