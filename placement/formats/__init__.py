"""Recordings of expert loads in, engines' placement files in and out: bytes to values and back.

docs/reference/engine-files.md lists the formats.
"""

from placement.formats.engine_readers import read_loaded
from placement.formats.engine_writers import Engine, export_placement
from placement.formats.reading import read_loads, read_trace, read_windows
from placement.formats.sniff import Kind, kind_of

__all__ = [
    "Engine",
    "Kind",
    "export_placement",
    "kind_of",
    "read_loaded",
    "read_loads",
    "read_trace",
    "read_windows",
]
