"""Telling verdicts: one JSON object a line on a stream, and a bundle beside each so that anybody can replay it."""

import asyncio
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, TextIO

import structlog

from faults.bundle import write_bundle
from faults.detector import Job
from faults.replay import Act
from faults.verdict import Verdict
from faults.watcher import WatcherSettings

log = structlog.get_logger()

MOST_BUNDLES: Final = 1000  # the oldest go first


class Lines:
    """Verdicts as JSON lines."""

    def __init__(self, stream: TextIO, *, job: str, zero_s: float) -> None:
        self._stream, self._job, self._zero_s = stream, job, zero_s

    def tell(self, verdict: Verdict) -> None:
        """One line; a reader that went away costs nothing but the line."""
        document = verdict.model_dump(mode="json", exclude_none=True)
        at = datetime.fromtimestamp(self._zero_s + verdict.detected_s, tz=UTC).isoformat()
        line = json.dumps(
            {"job": self._job, "at": at, "class": document.pop("fault"), **document}, separators=(",", ":")
        )
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError) as error:
            log.warning("verdict_not_told", reason=str(error))


class Bundles:
    """A folder of bundles.  Writing one replays its calls, so it is done in a thread, one at a time."""

    def __init__(self, folder: Path, *, job: Job, settings: WatcherSettings) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._job, self._settings = folder, job, settings
        self._lock = asyncio.Lock()
        self.written = self.failed = 0

    async def write(self, name: str, acts: Sequence[Act], *, dropped: int) -> None:
        """One bundle; a disk that is full is logged and counted."""
        async with self._lock:
            try:
                await asyncio.to_thread(self._write, name, acts, dropped)
            except Exception:
                self.failed += 1
                log.exception("bundle_not_written", name=name)
            else:
                self.written += 1

    def _write(self, name: str, acts: Sequence[Act], dropped: int) -> None:
        path = self._folder / f"{name}.bundle.jsonl"
        draft = path.with_suffix(".part")
        with draft.open("w", encoding="ascii") as file:
            file.writelines(
                write_bundle(self._job, self._settings, acts, version=version("fleetwright"), dropped=dropped)
            )
        draft.replace(path)  # whole or not at all
        kept = sorted(self._folder.glob("*.bundle.jsonl"), key=os.path.getmtime)
        for old in kept[:-MOST_BUNDLES]:
            old.unlink(missing_ok=True)
