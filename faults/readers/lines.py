"""Reads lines and whole documents from chunks of bytes, in bounded memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from faults.observations import Observation
from faults.readers.parse_errors import MalformedError, ParseErrors

MAX_LINE_BYTES = 4 * 1024 * 1024  # a poll of 16,384 peers is about 1.6 MB
TOO_LONG = "line too long"
MAX_BYTES = 32 * 1024 * 1024
MAX_VALUES = 2_000_000  # in one JSON document; each costs about 100 bytes once parsed


class Splitter:
    """Takes chunks and returns whole lines.  A line beyond the limit is counted and dropped.

    The same code splits finished and growing files: the rest after the last line end waits for more, or for `end`.
    """

    def __init__(self, *, source: str, tally: ParseErrors, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._source = source
        self._tally = tally
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._dropping = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Return the lines that this chunk completes, without line ends and empty lines."""
        first, *rest = chunk.split(b"\n")
        self._hold(first)
        for part in rest:
            yield from self.end()
            self._hold(part)

    def end(self) -> Iterator[bytes]:
        """Return the remaining bytes as a line, at the end of the stream."""
        line = bytes(self._held)
        self._held.clear()
        dropped, self._dropping = self._dropping, False
        if not dropped and line and not line.isspace():
            yield line

    def _hold(self, part: bytes) -> None:
        if self._dropping or not part:
            return
        if len(self._held) + len(part) > self._max_bytes:
            self._held.clear()
            self._dropping = True
            self._tally.add(self._source, TOO_LONG)
        else:
            self._held += part


def split_lines(
    chunks: Iterable[bytes], *, source: str, tally: ParseErrors, max_bytes: int = MAX_LINE_BYTES
) -> Iterator[bytes]:
    splitter = Splitter(source=source, tally=tally, max_bytes=max_bytes)
    for chunk in chunks:
        yield from splitter.feed(chunk)
    yield from splitter.end()


@dataclass(frozen=True, slots=True)
class LineReader:
    """A reader of one file of lines: chunks, then `end`.  Malformed lines are counted."""

    source: str  # the kind of file
    parse: Callable[[bytes], list[Observation]]  # may raise MalformedError
    splitter: Splitter
    tally: ParseErrors

    def feed(self, chunk: bytes) -> Iterator[Observation]:
        return self._read(self.splitter.feed(chunk))

    def end(self) -> Iterator[Observation]:
        return self._read(self.splitter.end())

    def all(self, chunks: Iterable[bytes]) -> Iterator[Observation]:
        for chunk in chunks:
            yield from self.feed(chunk)
        yield from self.end()

    def _read(self, lines: Iterable[bytes]) -> Iterator[Observation]:
        for line in lines:
            try:
                yield from self.parse(line)
            except MalformedError as error:
                self.tally.add(self.source, str(error))


def whole_document(content: bytes | Iterable[bytes], *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of a document.  Reading stops at the limit."""
    held = bytearray()
    for chunk in (content,) if isinstance(content, bytes) else content:
        if len(held) + len(chunk) > max_bytes:
            raise MalformedError("too large")
        held += chunk
    return bytes(held)


def max_values(data: bytes, *, maximum: int = MAX_VALUES) -> bytes:
    """Return the same bytes, if parsing them as JSON cannot make more values than the limit."""
    if sum(map(data.count, (b",", b"[", b"{"))) > maximum:
        raise MalformedError("too many values")
    return data
