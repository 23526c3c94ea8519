"""A recording folder, as `fleetwright faults replay` reads it: run.json, and per node or rank one file a kind.

One line is one observation or one look; it is handed to the system at once, so that a reader beside it, or after a
crash, finds whole lines.  docs/faults/recorder.md has the schema.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from deploy.recorder.diag import Sample
from deploy.recorder.records import line_of
from faults.observations import Observation

_encoded: Final = json.JSONEncoder(separators=(",", ":")).encode


class RecordingFolder:
    """Where one node's recorder writes.  Recorders of several nodes may share a folder."""

    def __init__(self, path: Path, *, run: Mapping[str, Any]) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._open: dict[str, BinaryIO] = {}
        self._begin(run)

    def sample(self, sample: Sample) -> None:
        """One look at the sockets."""
        rows = [[peer, *row] for peer, row in zip(sample.peers.tolist(), sample.rows.tolist(), strict=True)]
        self._write(f"tcp_node{sample.node}.jsonl", {"t": round(sample.at_s, 6), "node": sample.node, "c": rows})

    def observed(self, observations: Sequence[Observation]) -> None:
        """Anything else."""
        for observation in observations:
            name, line = line_of(observation)
            self._write(name, line)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Close every file."""
        while self._open:
            self._open.popitem()[1].close()

    def _begin(self, run: Mapping[str, Any]) -> None:
        try:
            with (self.path / "run.json").open("x", encoding="utf-8") as file:
                file.write(json.dumps(run, indent=1) + "\n")
        except FileExistsError:
            return  # another node's recorder, or the job, was first

    def _write(self, name: str, line: Mapping[str, Any]) -> None:
        if name not in self._open:
            self._open[name] = (self.path / name).open("ab", buffering=0)
        self._open[name].write(_encoded(line).encode() + b"\n")
