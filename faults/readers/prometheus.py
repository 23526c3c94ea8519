"""Prometheus text exposition (format 0.0.4), as far as the scraped exporters use it.

Time stamps at a line's end are ignored: the time of the scrape counts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from faults.readers.fields import MAX_TEXT
from faults.readers.lines import split_lines
from faults.readers.parse_errors import MalformedError, ParseErrors

MAX_LINE_BYTES = 64 * 1024
MAX_LABELS = 64

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\s*\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")
_PLAIN = {"n": "\n", "\\": "\\", '"': '"'}


class Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float


def parse_samples(
    chunks: Iterable[bytes], *, prefixes: tuple[str, ...], source: str, tally: ParseErrors
) -> Iterator[Sample]:
    wanted = tuple(prefix.encode() for prefix in prefixes)
    for line in split_lines(chunks, source=source, tally=tally, max_bytes=MAX_LINE_BYTES):
        if line.startswith(wanted):
            with tally.skipping(source):
                yield _sample(line)


def _sample(line: bytes) -> Sample:
    try:
        match = _SAMPLE.fullmatch(line.decode())
    except UnicodeDecodeError as error:
        raise MalformedError("not UTF-8") from error
    if match is None:
        raise MalformedError("not a sample")
    try:
        value = float(match[3])
    except ValueError as error:
        raise MalformedError("value is no number") from error
    return Sample(match[1], _labels(match[2] or ""), value)


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None or len(match[2]) > MAX_TEXT or len(labels) >= MAX_LABELS:
            raise MalformedError("labels are malformed")
        labels[match[1]] = _ESCAPED.sub(lambda found: _PLAIN.get(found[1], found[0]), match[2])
        at = match.end()
    return labels
