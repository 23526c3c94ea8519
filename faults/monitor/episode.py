"""An episode: a stall from its first diagnosis until the job continues.

no diagnosis yet   crashes are evaluated first, then hangs
after a hang       a stronger cause replaces a weaker one that isolates no node; vanished ranks are consequences
after a crash      everything else is its cascade
"""

from collections.abc import Sequence

from faults.diagnosis import Diagnosis, FaultClass

HANGS = frozenset({FaultClass.COMM_HANG, FaultClass.NONCOMM_HANG})


class Episode:
    def __init__(self) -> None:
        self._diagnoses: dict[tuple[FaultClass, int | None, int | None], Diagnosis] = {}
        self.since_s: float | None = None  # time of the first diagnosis

    def over(self, progress_s: float | None) -> bool:
        """Return whether the job has continued since."""
        return self.since_s is not None and progress_s is not None and progress_s > self.since_s

    @property
    def crashed(self) -> bool:
        return any(diagnosis.fault is FaultClass.CRASH for diagnosis in self._diagnoses.values())

    @property
    def open(self) -> bool:
        return bool(self._diagnoses)

    def add(self, diagnoses: Sequence[Diagnosis], *, now_s: float) -> tuple[Diagnosis, ...]:
        """Add the current diagnoses; return those of the episode."""
        for diagnosis in diagnoses:
            if any(_explains(other, diagnosis) for other in self._diagnoses.values()):
                continue
            self._diagnoses = {key: other for key, other in self._diagnoses.items() if not _replaces(diagnosis, other)}
            self._diagnoses[(diagnosis.fault, diagnosis.node, diagnosis.peer)] = diagnosis
        if self._diagnoses and self.since_s is None:
            self.since_s = now_s
        return tuple(self._diagnoses.values())


def _explains(earlier: Diagnosis, later: Diagnosis) -> bool:
    """Return whether the earlier diagnosis is of another place and more confident, or is the node of this link."""
    other = (earlier.fault, earlier.node, earlier.peer) != (later.fault, later.node, later.peer)
    return other and (later.confidence < earlier.confidence or _part_of(later, earlier))


def _replaces(later: Diagnosis, earlier: Diagnosis) -> bool:
    """Return whether the later diagnosis is elsewhere and more confident than a weak one, or the node of this link."""
    if (later.fault, later.node, later.peer) == (earlier.fault, earlier.node, earlier.peer):
        return False
    return _part_of(earlier, later) or (later.confidence > earlier.confidence and not earlier.isolate)


def _part_of(link: Diagnosis, node: Diagnosis) -> bool:
    return node.peer is None and link.peer is not None and node.node in (link.node, link.peer)
