"""Readers of external formats and our own.  Malformed input is counted and skipped, never fatal.

The readers take bytes and lines and open no file or socket.  docs/explanation/faults/observations.md
"""

from faults.readers.communicators import Communicators
from faults.readers.dcgm import parse_dcgm
from faults.readers.flight import flights, parse_dump
from faults.readers.ib_ports import parse_ports
from faults.readers.job_map import JobMap
from faults.readers.lines import LineReader
from faults.readers.nccl_ras import parse_ras, parse_ras_events
from faults.readers.parse_errors import MalformedError, ParseErrors
from faults.readers.recording import Recording, read
from faults.readers.recording_files import line_reader
from faults.readers.xpu_timer import parse_xpu_timer

__all__ = [
    "Communicators",
    "JobMap",
    "LineReader",
    "MalformedError",
    "ParseErrors",
    "Recording",
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
