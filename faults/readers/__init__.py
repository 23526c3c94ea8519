"""Formats of others and our own, read into observations.  What is malformed is counted and skipped, never fatal.

Nothing here opens a file or a socket: bytes and lines are arguments.  docs/faults/observations.md
"""

from faults.readers.dcgm import parse_dcgm
from faults.readers.flight import flights, parse_dump
from faults.readers.folder import line_reader
from faults.readers.lines import LineReader
from faults.readers.members import Members
from faults.readers.places import Places
from faults.readers.ports import parse_ports
from faults.readers.ras import parse_ras, parse_ras_events
from faults.readers.recording import Recording, read
from faults.readers.tally import MalformedError, Tally
from faults.readers.xpu_timer import parse_xpu_timer

__all__ = [
    "LineReader",
    "MalformedError",
    "Members",
    "Places",
    "Recording",
    "Tally",
    "flights",
    "line_reader",
    "parse_dcgm",
    "parse_dump",
    "parse_ports",
    "parse_ras",
    "parse_ras_events",
    "parse_xpu_timer",
    "read",
]
