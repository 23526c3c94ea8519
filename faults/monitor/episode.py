"""A standstill from its first verdict until the job goes on: what belongs together, and what is only its cascade.

no crash yet    hangs are judged; a stronger cause replaces a weaker one that isolates nobody
a hang is told  ranks that vanish now are killed by it: timeouts, operators
a crash is told whatever follows is its cascade
"""

from collections.abc import Sequence

from faults.diagnosis import Diagnosis, FaultClass

HANGS = frozenset({FaultClass.COMM_HANG, FaultClass.NONCOMM_HANG})


class Episode:
    """The verdicts of one standstill."""

    def __init__(self) -> None:
        self._told: dict[tuple[FaultClass, int | None, int | None], Diagnosis] = {}
        self.since_s: float | None = None  # when the first was told

    def over(self, progress_s: float | None) -> bool:
        """Whether the job has gone on since."""
        return self.since_s is not None and progress_s is not None and progress_s > self.since_s

    @property
    def crashed(self) -> bool:
        """Whether a crash is what it is about."""
        return any(diagnosis.fault is FaultClass.CRASH for diagnosis in self._told.values())

    @property
    def open(self) -> bool:
        """Whether anything has been told."""
        return bool(self._told)

    def tell(self, diagnoses: Sequence[Diagnosis], *, now_s: float) -> tuple[Diagnosis, ...]:
        """Take what is judged now; what the episode is about, after it."""
        for diagnosis in diagnoses:
            if any(_explains(other, diagnosis) for other in self._told.values()):
                continue
            self._told = {key: other for key, other in self._told.items() if not _replaces(diagnosis, other)}
            self._told[(diagnosis.fault, diagnosis.node, diagnosis.peer)] = diagnosis
        if self._told and self.since_s is None:
            self.since_s = now_s
        return tuple(self._told.values())


def _explains(told: Diagnosis, later: Diagnosis) -> bool:
    """Whether what was told is at least as sure and of another place, or a node whose link this is."""
    other = (told.fault, told.node, told.peer) != (later.fault, later.node, later.peer)
    return other and (later.confidence < told.confidence or _part_of(later, told))


def _replaces(later: Diagnosis, told: Diagnosis) -> bool:
    """A surer word on another place, where the earlier was not sure; or a node where its link was told before."""
    if (later.fault, later.node, later.peer) == (told.fault, told.node, told.peer):
        return False
    return _part_of(told, later) or (later.confidence > told.confidence and not told.isolate)


def _part_of(link: Diagnosis, node: Diagnosis) -> bool:
    return node.peer is None and link.peer is not None and node.node in (link.node, link.peer)
