"""A rank's record: one JSON object of the schema in docs/explanation/faults/recorder.md."""

from typing import Any

Line = dict[str, Any]
