"""Scores diagnoses against the true events.  Definitions: docs/explanation/faults/simulator.md

A diagnosis counts when it is first given; a repetition within `AGAIN_S` is the same one.  Its time is when it was
given, not the time that it states.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.fabric import Fabric
from faults.simulator.fault_schedule import FAULTS, LINKS, NICS, SLOW, FaultEvent, FaultKind
from faults.simulator.quarantine_outcome import QuarantineOutcome

CLASS: Mapping[FaultKind, FaultClass] = MappingProxyType(
    {
        **dict.fromkeys(SLOW, FaultClass.COMM_SLOW),
        FaultKind.CRASH: FaultClass.CRASH,
        FaultKind.HANG_CODE: FaultClass.NONCOMM_HANG,
        FaultKind.HANG_NODE: FaultClass.COMM_HANG,
        FaultKind.HANG_LINK: FaultClass.COMM_HANG,
        FaultKind.STRAGGLER: FaultClass.NONCOMM_SLOW,
    }
)
DIRECTION: Mapping[FaultKind, Direction] = MappingProxyType(
    {
        FaultKind.SLOW_TX: Direction.TX,
        FaultKind.SLOW_RX: Direction.RX,
        FaultKind.SLOW_NIC: Direction.BOTH,
        FaultKind.SLOW_NODE: Direction.BOTH,
        FaultKind.HANG_NODE: Direction.BOTH,
    }
)
DIRECTED = frozenset(DIRECTION) | LINKS
_NODE = frozenset({FaultKind.CRASH, FaultKind.HANG_CODE, FaultKind.HANG_NODE, FaultKind.SLOW_NODE, FaultKind.STRAGGLER})
AGAIN_S = 60.0
PAUSE_S = 10.0  # a repetition after this time is new; a diagnosis before a fault does not count for it
AFTER_S = 30.0  # a diagnosis can outlive its fault by this time
MIN_FACTOR = 1.25
IN_TIME_S = 30.0
UPLINK_TIME_S = 720.0  # congestion of 10 minutes is normal
Key = tuple[object, ...]
Congested = Callable[[Diagnosis, float], bool]
_GRADED = frozenset({CLASS[FaultKind.SLOW_TX], CLASS[FaultKind.STRAGGLER]})  # faults with a factor


def matches(diagnosis: Diagnosis, one: FaultEvent, fabric: Fabric) -> bool:
    """Return whether the class and the node, pair of nodes, leaf or uplink are right."""
    if diagnosis.fault != CLASS.get(one.kind):
        return False
    if one.kind in LINKS:
        ends = {int(fabric.node[one.at]), int(fabric.node[one.to])}
        return diagnosis.scope is Scope.LINK and {diagnosis.node, diagnosis.peer} == ends
    if one.kind is FaultKind.LEAF:
        return diagnosis.scope is Scope.LEAF and diagnosis.switch == f"leaf-{one.at}"
    if one.kind is FaultKind.UPLINK:
        if diagnosis.scope is Scope.LINK:
            return _pairs_on(one.at, fabric) == {frozenset((diagnosis.node, diagnosis.peer))}
        return diagnosis.scope is Scope.UPLINK and diagnosis.switch == f"uplink-{one.at}"
    return diagnosis.scope in (Scope.NODE, Scope.RANK) and diagnosis.node == faulty_node(one, fabric)


def _pairs_on(uplink: int, fabric: Fabric) -> set[frozenset[int | None]]:
    """Return the pairs of nodes over a cable: with one pair only, the cable and the link are indistinguishable."""
    edges = np.flatnonzero((fabric.up == uplink) | (fabric.down == uplink))
    ends = zip(fabric.node[fabric.source[edges]].tolist(), fabric.node[fabric.target[edges]].tolist(), strict=True)
    return {frozenset(pair) for pair in ends}


def faulty_node(one: FaultEvent, fabric: Fabric) -> int | None:
    """Return the node whose quarantine the event justifies; None for links, switches and look-alikes."""
    if one.kind in NICS:
        return int(fabric.node[one.at])
    return one.at if one.kind in _NODE else None


def has_right_direction(diagnosis: Diagnosis, one: FaultEvent, fabric: Fabric) -> bool:
    if one.kind in LINKS:
        return diagnosis.node == int(fabric.node[one.at]) and diagnosis.direction in (Direction.FORWARD, None)
    return diagnosis.direction == DIRECTION.get(one.kind)


@dataclass(slots=True)
class Tally:
    eligible: Counter[FaultKind] = field(default_factory=Counter)  # that count in recall
    named: Counter[FaultKind] = field(default_factory=Counter)  # in time
    late: Counter[FaultKind] = field(default_factory=Counter)
    ways: Counter[FaultKind] = field(default_factory=Counter)  # named with the right direction
    isolated: Counter[FaultKind] = field(default_factory=Counter)  # eligible faults with `isolate` for the right node
    hidden: Counter[FaultKind] = field(default_factory=Counter)  # eligible faults whose only observer was lost
    hidden_named: Counter[FaultKind] = field(default_factory=Counter)  # of these, named in time
    right: int = 0  # diagnoses
    wrong: int = 0
    congestion: int = 0  # diagnoses of congested links and uplinks
    workload: int = 0  # diagnoses of the workload
    false_isolations: int = 0  # diagnoses with `isolate` of a healthy node
    carried_out: int = 0  # healthy nodes that the policy takes out
    ttd_s: dict[FaultKind, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, other: "Tally") -> None:
        for name in ("eligible", "named", "late", "ways", "isolated", "hidden", "hidden_named"):
            getattr(self, name).update(getattr(other, name))
        for name in ("right", "wrong", "congestion", "workload", "false_isolations", "carried_out"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, times in other.ttd_s.items():
            self.ttd_s[kind] += times


class Scorer:
    def __init__(
        self, fabric: Fabric, events: Sequence[FaultEvent], *, until_s: float, in_time_s: float = IN_TIME_S
    ) -> None:
        self._fabric, self._in_time_s = fabric, in_time_s
        self._faults = [one for one in events if one.kind in FAULTS]
        self._open = {at for at, one in enumerate(self._faults) if self._is_eligible(one, until_s)}
        self._eligible = tuple(self._open)
        self._named: set[int] = set()  # in time
        self.tally = Tally(eligible=Counter(self._faults[at].kind for at in self._open))
        self._last_s: dict[Key, float] = {}
        self._run: dict[Key, tuple[float, float]] = {}  # start and last time of the uninterrupted diagnosis
        self._out: dict[int, float] = {}
        self._policy = QuarantineOutcome(fabric)
        self.false_diagnoses: list[tuple[float, Diagnosis]] = []

    def _is_eligible(self, one: FaultEvent, until_s: float) -> bool:
        """Return whether the fault is large and long enough to count as missed."""
        heavy = one.factor >= MIN_FACTOR or CLASS[one.kind] not in _GRADED or self._in_time_s > IN_TIME_S
        return heavy and min(one.to_s, until_s) - one.from_s >= self._limit_s(one)

    def _limit_s(self, one: FaultEvent) -> float:
        """Return the time limit: a bad cable differs from daily congestion only by its duration."""
        return max(self._in_time_s, UPLINK_TIME_S) if one.kind is FaultKind.UPLINK else self._in_time_s

    @property
    def eligible(self) -> tuple[FaultEvent, ...]:
        return tuple(self._faults[at] for at in self._eligible)

    def hide(self, hidden: Callable[[FaultEvent], bool]) -> None:
        for at in self._eligible:
            one = self._faults[at]
            if hidden(one):
                self.tally.hidden[one.kind] += 1
                self.tally.hidden_named[one.kind] += at in self._named

    def observe(self, now_s: float, diagnoses: Sequence[Diagnosis], *, congested: Congested) -> None:
        """Score the active diagnoses.  `congested`: whether congestion fills the diagnosed link or uplink."""
        gone = self._policy.step(now_s, diagnoses)
        if not diagnoses and not gone:
            return
        lasting = [one for one in self._faults if one.from_s < now_s <= one.to_s + AFTER_S + self._slack_s(one)]
        faulty = {faulty_node(one, self._fabric) for one in lasting}
        self.tally.carried_out += sum(node not in faulty for node in gone)
        for diagnosis in diagnoses:
            self._name(now_s, diagnosis)
            self._grade(now_s, diagnosis, lasting, congested)
            if diagnosis.isolate and diagnosis.node is not None:
                self._isolate(now_s, diagnosis.node, diagnosis, faulty)

    def _slack_s(self, one: FaultEvent) -> float:
        return 240.0 if one.kind is FaultKind.STRAGGLER else 0.0  # a mean over minutes decays minutes later

    def _name(self, now_s: float, diagnosis: Diagnosis) -> None:
        key = _key(diagnosis)
        begun_s, last_s = self._run.get(key, (now_s, now_s))
        begun_s = now_s if now_s - last_s > PAUSE_S else begun_s
        self._run[key] = begun_s, now_s
        for at in list(self._open):
            one = self._faults[at]
            if one.from_s < begun_s and now_s <= one.to_s + AFTER_S and matches(diagnosis, one, self._fabric):
                self._open.discard(at)
                taken_s = now_s - one.from_s
                self.tally.ttd_s[one.kind].append(taken_s)
                if taken_s <= self._limit_s(one):
                    self._named.add(at)
                    self.tally.named[one.kind] += 1
                else:
                    self.tally.late[one.kind] += 1
                self.tally.ways[one.kind] += has_right_direction(diagnosis, one, self._fabric)
                self.tally.isolated[one.kind] += diagnosis.isolate

    def _grade(self, now_s: float, diagnosis: Diagnosis, lasting: Sequence[FaultEvent], congested: Congested) -> None:
        key = _key(diagnosis)
        before_s, self._last_s[key] = self._last_s.get(key, -AGAIN_S), now_s
        if now_s - before_s < AGAIN_S:
            return
        if diagnosis.scope is Scope.WORKLOAD:
            self.tally.workload += 1
        elif any(matches(diagnosis, one, self._fabric) for one in lasting):
            self.tally.right += 1
        elif diagnosis.scope in (Scope.LINK, Scope.UPLINK) and congested(diagnosis, now_s):
            self.tally.congestion += 1
        else:
            self.tally.wrong += 1
            self.false_diagnoses.append((now_s, diagnosis))

    def _isolate(self, now_s: float, node: int, diagnosis: Diagnosis, faulty: AbstractSet[int | None]) -> None:
        before_s, self._out[node] = self._out.get(node, -AGAIN_S), now_s
        if now_s - before_s >= AGAIN_S and node not in faulty:
            self.tally.false_isolations += 1
            self.false_diagnoses.append((now_s, diagnosis))


def _key(diagnosis: Diagnosis) -> Key:
    return diagnosis.fault, diagnosis.scope, diagnosis.node, diagnosis.peer, diagnosis.switch


@dataclass(slots=True)
class Outcome:
    hours: float = 0.0
    tally: Tally = field(default_factory=Tally)
    spent_s: list[float] = field(default_factory=list)  # by the detectors, per window
    false_diagnoses: list[tuple[float, Diagnosis]] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        self.hours += other.hours
        self.tally.add(other.tally)
        self.spent_s += other.spent_s
        self.false_diagnoses += other.false_diagnoses
