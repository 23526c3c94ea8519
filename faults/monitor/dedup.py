"""One fault, one verdict: what is said of the same thing again and again, merged, with the moment it was first said."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from faults.diagnosis import Diagnosis, FaultClass, Scope

KEPT: Final = 1024
SWITCHES: Final = frozenset({Scope.LEAF, Scope.UPLINK})
WIRES: Final = frozenset({FaultClass.COMM_HANG, FaultClass.COMM_SLOW})
TOGETHER_S: Final = 5.0  # onsets of one fault as two detectors see them
SPREADING_S: Final = 30.0  # in which the wires of a slow switch are taken for slow, one after the other

Key = tuple[str, int | None, int | None, str | None]


class FaultDedup:
    """The faults of a job in the order of their detection; the newest KEPT of them."""

    def __init__(self, same_fault_s: float) -> None:
        self._same_s = same_fault_s
        self._all: deque[_Fault] = deque()
        self._newest: dict[Key, _Fault] = {}

    def say(self, diagnoses: Iterable[Diagnosis], *, now_s: float) -> tuple[Diagnosis, ...]:
        """Take what is believed now; the same as merged with what was said before."""
        return tuple(self._merged(diagnosis, now_s=now_s) for diagnosis in diagnoses)

    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """Every fault so far, as it was last said."""
        return tuple(fault.diagnosis for fault in self._all)

    def _merged(self, diagnosis: Diagnosis, *, now_s: float) -> Diagnosis:
        key = key_of(diagnosis)
        fault = self._newest.get(key)
        if fault is not None and now_s - fault.said_s <= self._same_s:
            fault.diagnosis = again(fault.diagnosis, diagnosis)
            fault.said_s = now_s
            self._withdraw(fault.diagnosis, now_s=now_s)
            return fault.diagnosis
        self._withdraw(diagnosis, now_s=now_s)
        self._newest[key] = fault = _Fault(key, diagnosis, now_s)
        self._all.append(fault)
        if len(self._all) > KEPT:
            oldest = self._all.popleft()
            if self._newest.get(oldest.key) is oldest:
                del self._newest[oldest.key]
        return diagnosis

    def _withdraw(self, diagnosis: Diagnosis, *, now_s: float) -> None:
        """What was told before of a part of this."""
        for fault in [each for each in self._all if now_s - self._same_s <= each.said_s < now_s]:
            if _is_link_of(fault.diagnosis, diagnosis) or _is_behind(fault.diagnosis, diagnosis):
                self._all.remove(fault)
                self._newest.pop(fault.key, None)


class _Fault:
    __slots__ = ("diagnosis", "key", "said_s")

    def __init__(self, key: Key, diagnosis: Diagnosis, now_s: float) -> None:
        self.key, self.diagnosis, self.said_s = key, diagnosis, now_s


def _is_link_of(told: Diagnosis, node: Diagnosis) -> bool:
    """A link of a node that hangs or is slow as a whole was no fault of its own, unless it was slow long before."""
    wires = node.fault is told.fault and node.fault in WIRES
    part = node.scope is Scope.NODE and told.scope is Scope.LINK and node.node in (told.node, told.peer)
    before = node.fault is FaultClass.COMM_SLOW and told.onset_s < node.onset_s - TOGETHER_S
    return wires and part and not before


def _is_behind(told: Diagnosis, switch: Diagnosis) -> bool:
    """A wire that became slow with a switch, and that nobody was to be taken out for, was the switch's."""
    wire = told.scope in (Scope.NODE, Scope.LINK) and told.fault is switch.fault and not told.isolate
    with_it = -TOGETHER_S <= told.onset_s - switch.onset_s <= SPREADING_S
    return switch.scope in SWITCHES and wire and with_it


def again(before: Diagnosis, now: Diagnosis) -> Diagnosis:
    """The later word with the earlier times; what was once sure does not become less so."""
    surer = now if (now.confidence, now.isolate) > (before.confidence, before.isolate) else before
    return surer.model_copy(
        update={
            "onset_s": before.onset_s,
            "detected_s": before.detected_s,
            "isolate": before.isolate or now.isolate,
            "evidence": tuple(dict.fromkeys((*before.evidence, *now.evidence))),
        }
    )


def key_of(diagnosis: Diagnosis) -> Key:
    """A rank and its node are one place; a link is one, whichever end it is told from."""
    if diagnosis.scope is Scope.LINK and diagnosis.node is not None and diagnosis.peer is not None:
        ends = sorted((diagnosis.node, diagnosis.peer))
        return (f"{diagnosis.fault}/link", ends[0], ends[1], None)
    scope = "node" if diagnosis.scope in (Scope.RANK, Scope.NODE) else diagnosis.scope
    return (f"{diagnosis.fault}/{scope}", diagnosis.node, diagnosis.peer, diagnosis.switch)
