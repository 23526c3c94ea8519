"""One diagnosis per fault: repeated diagnoses of a fault are merged and keep the time of the first one."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from faults.diagnosis import Diagnosis, FaultClass, Scope

KEPT: Final = 1024
SWITCHES: Final = frozenset({Scope.LEAF, Scope.UPLINK})
NETWORK_FAULTS: Final = frozenset({FaultClass.COMM_HANG, FaultClass.COMM_SLOW})
TOGETHER_S: Final = 5.0  # difference between the onsets that two detectors give for one fault
SPREADING_S: Final = 30.0  # the links of a slow switch become slow one after the other within this time

Key = tuple[str, int | None, int | None, str | None]


@dataclass(slots=True)
class _Fault:
    key: Key
    diagnosis: Diagnosis
    last_s: float


class FaultDedup:
    """The newest KEPT faults of a job, in the order of their detection."""

    def __init__(self, same_fault_s: float) -> None:
        self._same_s = same_fault_s
        self._all: deque[_Fault] = deque()
        self._newest: dict[Key, _Fault] = {}

    def update(self, diagnoses: Iterable[Diagnosis], *, now_s: float) -> tuple[Diagnosis, ...]:
        """Merge the active diagnoses with the earlier ones; return the merged ones."""
        return tuple(self._merged(diagnosis, now_s=now_s) for diagnosis in diagnoses)

    def diagnoses(self) -> tuple[Diagnosis, ...]:
        return tuple(fault.diagnosis for fault in self._all)

    def _merged(self, diagnosis: Diagnosis, *, now_s: float) -> Diagnosis:
        key = key_of(diagnosis)
        fault = self._newest.get(key)
        if fault is not None and now_s - fault.last_s <= self._same_s:
            fault.diagnosis = merged(fault.diagnosis, diagnosis)
            fault.last_s = now_s
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
        """Withdraw earlier diagnoses of a part of this fault."""
        for fault in [each for each in self._all if now_s - self._same_s <= each.last_s < now_s]:
            if _is_link_of(fault.diagnosis, diagnosis) or _is_behind(fault.diagnosis, diagnosis):
                self._all.remove(fault)
                self._newest.pop(fault.key, None)


def _is_link_of(earlier: Diagnosis, node: Diagnosis) -> bool:
    """A link of a node that hangs or is slow as a whole is no separate fault, unless it was slow much earlier."""
    network = node.fault is earlier.fault and node.fault in NETWORK_FAULTS
    part = node.scope is Scope.NODE and earlier.scope is Scope.LINK and node.node in (earlier.node, earlier.peer)
    before = node.fault is FaultClass.COMM_SLOW and earlier.onset_s < node.onset_s - TOGETHER_S
    return network and part and not before


def _is_behind(earlier: Diagnosis, switch: Diagnosis) -> bool:
    """A NIC or link that became slow together with a switch, and justifies no quarantine, belongs to the switch."""
    network = earlier.scope in (Scope.NODE, Scope.LINK) and earlier.fault is switch.fault and not earlier.isolate
    with_it = -TOGETHER_S <= earlier.onset_s - switch.onset_s <= SPREADING_S
    return switch.scope in SWITCHES and network and with_it


def merged(before: Diagnosis, now: Diagnosis) -> Diagnosis:
    """Return the more confident diagnosis with the earlier times; a quarantine stays justified."""
    best = now if (now.confidence, now.isolate) > (before.confidence, before.isolate) else before
    return best.model_copy(
        update={
            "onset_s": before.onset_s,
            "detected_s": before.detected_s,
            "isolate": before.isolate or now.isolate,
            "evidence": tuple(dict.fromkeys((*before.evidence, *now.evidence))),
        }
    )


def key_of(diagnosis: Diagnosis) -> Key:
    """Return the place of a fault.  A rank equals its node, and a link has no order of its ends."""
    if diagnosis.scope is Scope.LINK and diagnosis.node is not None and diagnosis.peer is not None:
        ends = sorted((diagnosis.node, diagnosis.peer))
        return (f"{diagnosis.fault}/link", ends[0], ends[1], None)
    scope = "node" if diagnosis.scope in (Scope.RANK, Scope.NODE) else diagnosis.scope
    return (f"{diagnosis.fault}/{scope}", diagnosis.node, diagnosis.peer, diagnosis.switch)
