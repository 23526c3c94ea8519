"""Which verdicts are worth a line: new faults, and known ones of which something better is known.

    new      a fault that was not told, also where it takes the place of one that was withdrawn
    again    it is to be isolated now, it has another place or way, or the doubt in it has halved

A fault is known by its place and by when it was first detected, never by how many there are: faults are withdrawn, and
old ones forgotten.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from faults.diagnosis import Diagnosis
from faults.monitor import Key, key_of

KEPT: Final = 4096  # faults; four times what a watcher remembers, so that none that it believes is forgotten here
HALVED: Final = 0.5  # of the doubt, 1 - confidence


class Change(StrEnum):
    """What a line is."""

    NEW = "new"
    AGAIN = "again"


class DiagnosisChange(NamedTuple):
    """One line to be told."""

    diagnosis: Diagnosis
    said: Change
    isolates: bool  # for the first time


class DiagnosisChanges:
    """What was told of each fault of one watcher."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._told: dict[tuple[Key, float], Diagnosis] = {}

    def of(self, believed: Iterable[Diagnosis]) -> Iterator[DiagnosisChange]:
        """What of the faults that are believed now has yet to be told."""
        for diagnosis in believed:
            fault = (key_of(diagnosis), diagnosis.detected_s)
            before = self._told.pop(fault, None)
            better = before is None or _better(before, diagnosis)
            self._told[fault] = diagnosis if before is None or better else before
            if len(self._told) > self._most:
                del self._told[next(iter(self._told))]  # the one that has not been believed for longest
            if before is None:
                yield DiagnosisChange(diagnosis, Change.NEW, diagnosis.isolate)
            elif better:
                yield DiagnosisChange(diagnosis, Change.AGAIN, diagnosis.isolate and not before.isolate)


def _better(told: Diagnosis, now: Diagnosis) -> bool:
    if now.isolate and not told.isolate:
        return True
    halved = 1.0 - now.confidence <= HALVED * (1.0 - told.confidence) and now.confidence > told.confidence
    return halved or _place(now) != _place(told)


def _place(diagnosis: Diagnosis) -> tuple[object, ...]:
    return diagnosis.scope, diagnosis.node, diagnosis.peer, diagnosis.switch, diagnosis.direction
