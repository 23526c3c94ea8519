"""Publishes diagnoses: one JSON object per line on a stream, and a bundle in a folder."""

import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import structlog

from faults.bundle import diagnoses_in, proves, write_bundle
from faults.detector import Job
from faults.diagnosis import Diagnosis
from faults.monitor import Key, MonitorSettings, key_of
from faults.replay import Call

log = structlog.get_logger()

KEPT: Final = 4096  # faults; four times as many as a monitor keeps, so that no active fault is published twice
HALVED: Final = 0.5  # of the uncertainty
MAX_BUNDLES: Final = 1000  # the oldest are deleted first
MAX_BUNDLE_BYTES: Final = 4 * 1024**3  # of all bundles together
UNPROVEN: Final = "-unproven"  # ends the name of a bundle that does not give the live diagnoses again
OUTCOMES: Final = ("proves", "unproven", "failed")


class Change(StrEnum):
    NEW = "new"
    UPDATED = "updated"


class DiagnosisChange(NamedTuple):
    diagnosis: Diagnosis
    change: Change
    isolates: bool  # for the first time


class DiagnosisChanges:
    """Selects the diagnoses to publish.  A fault is identified by its place and its detection time.

    new       a fault that was not published yet, also if it replaces a withdrawn one
    updated   it justifies a quarantine now, has another place or direction, or its uncertainty has halved
    """

    def __init__(self, max_kept: int = KEPT) -> None:
        self._max_kept = max_kept
        self._published: dict[tuple[Key, float], Diagnosis] = {}

    def of(self, active: Iterable[Diagnosis]) -> Iterator[DiagnosisChange]:
        for diagnosis in active:
            fault = (key_of(diagnosis), diagnosis.detected_s)
            before = self._published.pop(fault, None)
            better = before is None or _is_better(before, diagnosis)
            self._published[fault] = diagnosis if before is None or better else before
            if len(self._published) > self._max_kept:
                del self._published[next(iter(self._published))]  # the fault that has been inactive longest
            if before is None:
                yield DiagnosisChange(diagnosis, Change.NEW, diagnosis.isolate)
            elif better:
                yield DiagnosisChange(diagnosis, Change.UPDATED, diagnosis.isolate and not before.isolate)


class JsonLines:
    def __init__(self, stream: TextIO, *, job: str, zero_s: float) -> None:
        self._stream, self._job, self._zero_s = stream, job, zero_s

    def write(self, diagnosis: Diagnosis, change: Change) -> None:
        """Write one line; a closed stream costs only this line."""
        document = diagnosis.model_dump(mode="json", exclude_none=True)
        at = datetime.fromtimestamp(self._zero_s + diagnosis.detected_s, tz=UTC).isoformat()
        line = json.dumps(
            {"job": self._job, "at": at, "change": change.value, "class": document.pop("fault"), **document},
            separators=(",", ":"),
        )
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError) as error:
            log.warning("diagnosis_not_written", reason=str(error))


class BundleFolder:
    """A folder of bundles.  Writing one replays its calls, so a thread does it, one bundle at a time."""

    def __init__(self, folder: Path, *, job: Job, settings: MonitorSettings) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._job, self._settings = folder, job, settings
        self._lock = asyncio.Lock()
        self.written = self.failed = 0

    async def write(self, name: str, calls: Sequence[Call], *, dropped: int, live: Sequence[Diagnosis] = ()) -> str:
        """Write a bundle; return the outcome (OUTCOMES).  A full disk is logged and counted."""
        async with self._lock:
            try:
                proven = await asyncio.to_thread(self._write, name, calls, dropped, live)
            except Exception:
                self.failed += 1
                log.exception("bundle_not_written", name=name)
                return "failed"
        self.written += 1
        if not proven:
            log.warning("bundle_unproven", name=name, calls=len(calls), dropped=dropped)
        return "proves" if proven else "unproven"

    def _write(self, name: str, calls: Sequence[Call], dropped: int, live: Sequence[Diagnosis]) -> bool:
        draft = self._folder / f"{name}.part"
        lines = write_bundle(
            self._job, self._settings, calls, version=version("fleetwright"), dropped=dropped, live=live
        )
        proven = False
        with draft.open("w", encoding="ascii") as file:
            for line in lines:
                file.write(line)
                if (diagnoses := diagnoses_in(line)) is not None:
                    proven = proves(live, diagnoses)
        draft.replace(self._folder / f"{name}{'' if proven else UNPROVEN}.bundle.jsonl")  # complete or not at all
        self._delete_oldest()
        return proven

    def _delete_oldest(self) -> None:
        kept = sorted(self._folder.glob("*.bundle.jsonl"), key=os.path.getmtime, reverse=True)
        size_bytes = 0
        for place, path in enumerate(kept):
            size_bytes += path.stat().st_size
            if place and (place >= MAX_BUNDLES or size_bytes > MAX_BUNDLE_BYTES):
                path.unlink(missing_ok=True)


def _is_better(before: Diagnosis, now: Diagnosis) -> bool:
    if now.isolate and not before.isolate:
        return True
    halved = 1.0 - now.confidence <= HALVED * (1.0 - before.confidence) and now.confidence > before.confidence
    return halved or _place(now) != _place(before)


def _place(diagnosis: Diagnosis) -> tuple[object, ...]:
    return diagnosis.scope, diagnosis.node, diagnosis.peer, diagnosis.switch, diagnosis.direction
