"""Cutting a stream of bytes into lines, in bounded memory whatever comes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from faults.observations import Observation
from faults.readers.parse_errors import MalformedError, ParseErrors

MAX_LINE_BYTES = 4 * 1024 * 1024  # a look at 16,384 peers is about 1.6 MB
TOO_LONG = "line too long"


class Splitter:
    """Feed it chunks as they come; it gives whole lines back.  A line past the limit is counted and dropped.

    The same code cuts a file that is replayed and one that is still being written: what follows the last line end
    waits for its rest, or for `end`.
    """

    def __init__(self, *, source: str, tally: ParseErrors, most_bytes: int = MAX_LINE_BYTES) -> None:
        self._source = source
        self._tally = tally
        self._most_bytes = most_bytes
        self._held = bytearray()
        self._dropping = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this chunk completes, without their ends and without empty ones."""
        first, *rest = chunk.split(b"\n")
        self._hold(first)
        for part in rest:
            yield from self.end()
            self._hold(part)

    def end(self) -> Iterator[bytes]:
        """What is held, as a line: the stream ended, or the line did."""
        line = bytes(self._held)
        self._held.clear()
        dropped, self._dropping = self._dropping, False
        if not dropped and line and not line.isspace():
            yield line

    def _hold(self, part: bytes) -> None:
        if self._dropping or not part:
            return
        if len(self._held) + len(part) > self._most_bytes:
            self._held.clear()
            self._dropping = True
            self._tally.add(self._source, TOO_LONG)
        else:
            self._held += part


def split_lines(
    chunks: Iterable[bytes], *, source: str, tally: ParseErrors, most_bytes: int = MAX_LINE_BYTES
) -> Iterator[bytes]:
    """All lines of a stream that ends."""
    splitter = Splitter(source=source, tally=tally, most_bytes=most_bytes)
    for chunk in chunks:
        yield from splitter.feed(chunk)
    yield from splitter.end()


@dataclass(frozen=True, slots=True)
class LineReader:
    """Reads one file of lines: feed it chunks, and `end` when no more come.  What is malformed is counted."""

    source: str  # the kind of file
    parse: Callable[[bytes], list[Observation]]  # may raise MalformedError
    splitter: Splitter
    tally: ParseErrors

    def feed(self, chunk: bytes) -> Iterator[Observation]:
        """What the lines completed by this chunk say."""
        return self._read(self.splitter.feed(chunk))

    def end(self) -> Iterator[Observation]:
        """What a last line without an end says."""
        return self._read(self.splitter.end())

    def all(self, chunks: Iterable[bytes]) -> Iterator[Observation]:
        """What a whole file says."""
        for chunk in chunks:
            yield from self.feed(chunk)
        yield from self.end()

    def _read(self, lines: Iterable[bytes]) -> Iterator[Observation]:
        for line in lines:
            try:
                yield from self.parse(line)
            except MalformedError as error:
                self.tally.add(self.source, str(error))
