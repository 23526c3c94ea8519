"""Readers of external formats and our own.  Malformed input is counted and skipped, never fatal.

The readers take bytes and lines and open no file or socket; `read` reads a whole recording folder, `read_loose`
the files of a stopped job without a description.
docs/explanation/faults/observations.md
"""

from faults.readers.loose_files import read_loose
from faults.readers.parse_errors import ParseErrors
from faults.readers.recording import Recording, read

__all__ = ["ParseErrors", "Recording", "read", "read_loose"]
