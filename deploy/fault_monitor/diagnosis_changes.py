"""Selects the diagnoses to publish: new faults, and known faults whose diagnosis has improved.

    new       a fault that was not published yet, also if it replaces a withdrawn one
    updated   it justifies isolation now, has another place or direction, or its uncertainty (1 - confidence) has halved

A fault is identified by its place and its detection time.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from faults.diagnosis import Diagnosis
from faults.monitor import Key, key_of

KEPT: Final = 4096  # faults; four times as many as a monitor keeps, so that no active fault is published twice
HALVED: Final = 0.5  # of the uncertainty


class Change(StrEnum):
    """Kind of a published diagnosis."""

    NEW = "new"
    UPDATED = "updated"


class DiagnosisChange(NamedTuple):
    """A diagnosis to publish."""

    diagnosis: Diagnosis
    change: Change
    isolates: bool  # for the first time


class DiagnosisChanges:
    """The last published diagnosis of each fault of one monitor."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._published: dict[tuple[Key, float], Diagnosis] = {}

    def of(self, active: Iterable[Diagnosis]) -> Iterator[DiagnosisChange]:
        """Yield the active diagnoses that are new or have improved."""
        for diagnosis in active:
            fault = (key_of(diagnosis), diagnosis.detected_s)
            before = self._published.pop(fault, None)
            better = before is None or _is_better(before, diagnosis)
            self._published[fault] = diagnosis if before is None or better else before
            if len(self._published) > self._most:
                del self._published[next(iter(self._published))]  # the fault that has been inactive longest
            if before is None:
                yield DiagnosisChange(diagnosis, Change.NEW, diagnosis.isolate)
            elif better:
                yield DiagnosisChange(diagnosis, Change.UPDATED, diagnosis.isolate and not before.isolate)


def _is_better(before: Diagnosis, now: Diagnosis) -> bool:
    if now.isolate and not before.isolate:
        return True
    halved = 1.0 - now.confidence <= HALVED * (1.0 - before.confidence) and now.confidence > before.confidence
    return halved or _place(now) != _place(before)


def _place(diagnosis: Diagnosis) -> tuple[object, ...]:
    return diagnosis.scope, diagnosis.node, diagnosis.peer, diagnosis.switch, diagnosis.direction
