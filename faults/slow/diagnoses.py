"""Diagnoses from findings that persisted.

Confidence is 1 - 2^-k, with k the independent kinds of evidence that agree: pair bandwidth, measured step time (not
the time implied by peers), queue location, one-way delays; compute gap and the late arrival.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.slow.compute_gaps import Late
from faults.slow.merge import Slow
from faults.slow.persistence import Confirmed
from faults.slow.workload import Lost

PAIRS: Final = "pair-bandwidth"
STEP: Final = "step-time"
WAITING: Final = "where-bytes-wait"
PASSES: Final = "one-way-delay"
PROBES: Final = "one-way-probes"
GAP: Final = "compute-gap"
ARRIVAL: Final = "arrival"
CONNECTIONS: Final = "extra-connections"
UNREAD: Final = "unread-bytes"

MIN_NATS: Final = 1.0  # of the mean evaluation, by which one direction is likelier than the other

BOTH_NATS: Final = 3.0  # more, for a NIC slow both ways: acknowledgements may slow more than data

LINK_NATS: Final = 3.0  # of sockets alone: a NIC explains a link's pair too, and has more ways to fit noise
ISOLATE_NATS: Final = 5.0  # a link would have to be 150 times less likely

Hypothesis = tuple[int, int | None, Direction]


@dataclass(frozen=True, slots=True)
class NetworkFault:
    """A slow NIC or link of one evaluation, with the log likelihoods of all hypotheses and its cost."""

    slow: Slow
    likely: Mapping[Hypothesis, float]
    one_way_evidence: tuple[str, ...]  # kinds of one-way evidence
    ratio: float  # of the step time
    measured: bool  # against the step's own baseline; otherwise implied by peers
    unobserved: frozenset[int] = frozenset()  # nodes without counters of their own


def informative(found: Sequence[NetworkFault]) -> Sequence[NetworkFault]:
    """Return the evaluations that count: after a probe finding, those with probes."""
    return [wire for wire in found if wire.slow.probed] or found


def named(evaluations: Sequence[NetworkFault]) -> Hypothesis:
    """Return the likeliest hypothesis over all evaluations; a link, unless a NIC is clearly likelier or probes found
    it.
    """
    found = informative(evaluations)
    sums: dict[Hypothesis, float] = {}
    link_nats = 0.0 if found[0].slow.probed else LINK_NATS
    for wire in found:
        for hypothesis, nats in wire.likely.items():
            sums[hypothesis] = sums.get(hypothesis, 0.0) + nats / len(found)
    return max(sums, key=lambda hypothesis: sums[hypothesis] + (link_nats if hypothesis[1] is not None else 0.0))


@dataclass(frozen=True, slots=True)
class Named:
    node: int
    peer: int | None
    at_s: float

    def updated(self, evaluations: Sequence[NetworkFault], *, now_s: float) -> "Named":
        """Return the same name; or the NIC for its link after probes, with the margin that a quarantine needs."""
        node, peer, _ = named(evaluations)
        if self.peer is None or peer is not None or node not in (self.node, self.peer):
            return self
        return (
            Named(node, None, now_s)
            if informative(evaluations)[0].slow.probed and _no_link(evaluations, node)
            else self
        )


def direction(evaluations: Sequence[NetworkFault], node: int) -> Direction:
    found = informative(evaluations)
    tx, rx, both = (
        sum(wire.likely.get((node, None, way), 0.0) for wire in found) / len(found)
        for way in (Direction.TX, Direction.RX, Direction.BOTH)
    )
    if both > max(tx, rx) + BOTH_NATS or abs(tx - rx) < MIN_NATS:
        return Direction.BOTH
    return Direction.TX if tx > rx else Direction.RX


def of_wire(confirmed: Confirmed[NetworkFault], place: Named, window_s: float, *, alone: bool = True) -> Diagnosis:
    """Diagnose a slow NIC or link.  `alone`: no switch may be the cause."""
    found = confirmed.found
    node, peer = place.node, place.peer
    last = found[-1]
    silent = node in last.unobserved
    if silent:  # its transmissions are unknown: no direction and no link can be named
        peer = None
    factor = float(np.exp(np.median([wire.slow.entity.slowdown for wire in found])))
    ratio = float(np.median([wire.ratio for wire in found]))
    against = "before" if last.slow.own else "its peers"
    cost = f"{factor:.1f} times slower than {against}; steps take {ratio:.2f} times as long"
    one_way_evidence = {kind for wire in found for kind in wire.one_way_evidence}
    evidence = [PAIRS, *[STEP] * last.measured, *sorted(one_way_evidence)]
    nodes_own = alone and place.peer is None and len(evidence) > 1
    way = Direction.FORWARD if peer is not None else Direction.BOTH if silent else direction(found, node)
    if peer is None:
        traffic = {Direction.TX: "what it sends", Direction.RX: "what it receives"}.get(way, "both ways")
        reason = f"the pairs of node {node} are slow, {traffic}: {cost}"
    else:
        reason = f"of all pairs only {node} -> {peer} is slow: {cost}"
    return Diagnosis(
        fault=FaultClass.COMM_SLOW,
        scope=Scope.NODE if peer is None else Scope.LINK,
        node=node,
        peer=peer,
        direction=way,
        onset_s=max(0.0, confirmed.first_s - window_s / 2),
        detected_s=place.at_s,
        isolate=nodes_own and _no_link(found, node) and _both_ways_or_one_way_evidence(found, one_way_evidence),
        confidence=_confidence(len(evidence)),
        reason=reason,
        evidence=tuple(evidence),
    )


def of_rank(confirmed: Confirmed[Late], node: int) -> Diagnosis:
    last = confirmed.found[-1]
    against = "its peers, since the first step" if last.from_start else "before"
    return Diagnosis(
        fault=FaultClass.NONCOMM_SLOW,
        scope=Scope.NODE,
        node=node,
        onset_s=max(0.0, last.since_s),
        detected_s=confirmed.confirmed_s,
        isolate=not last.from_start,
        confidence=_confidence(1 if last.from_start else 3),
        reason=(
            f"rank {last.rank} takes {1e3 * last.extra_s:.0f} ms more between operations than {against}; "
            f"all others wait for it, {last.harm:.0%} of each step"
        ),
        evidence=(GAP, ARRIVAL),
    )


def of_foreign(confirmed: Confirmed[tuple[int, int]]) -> Diagnosis:
    source, target = confirmed.found[-1]
    reason = f"foreign traffic: connections that the job did not open carry it from {source} to {target}"
    found = _workload(confirmed, FaultClass.COMM_SLOW, reason, CONNECTIONS, PAIRS, node=source)
    return found.model_copy(update={"peer": target, "direction": Direction.FORWARD})


def of_unread(confirmed: Confirmed[int]) -> Diagnosis:
    node = confirmed.found[-1]
    reason = f"senders to node {node} wait for its receive window: its process reads too slowly, the network is free"
    return _workload(confirmed, FaultClass.NONCOMM_SLOW, reason, UNREAD, node=node)


def of_workload(confirmed: Confirmed[Lost]) -> Diagnosis:
    last = confirmed.found[-1]
    return _workload(confirmed, FaultClass.NONCOMM_SLOW, f"{last.cause.value}: {last.share:.0%} of the time", GAP)


def _workload(
    confirmed: Confirmed[Any], fault: FaultClass, reason: str, *evidence: str, node: int | None = None
) -> Diagnosis:
    return Diagnosis(
        fault=fault,
        scope=Scope.WORKLOAD,
        node=node,
        onset_s=max(0.0, confirmed.first_s),
        detected_s=confirmed.confirmed_s,
        isolate=False,
        confidence=_confidence(len(evidence)),
        reason=reason,
        evidence=evidence,
    )


def _no_link(evaluations: Sequence[NetworkFault], node: int) -> bool:
    """Return whether each of the node's links alone is so much less likely that the node may be quarantined."""
    found = informative(evaluations)
    sums: dict[bool, dict[Hypothesis, float]] = {True: {}, False: {}}
    for wire in found:
        for hypothesis, nats in wire.likely.items():
            of_kind = sums[hypothesis[0] == node and hypothesis[1] is None]
            of_kind[hypothesis] = of_kind.get(hypothesis, 0.0) + nats / len(found)
    link = max((nats for hypothesis, nats in sums[False].items() if hypothesis[1] is not None), default=0.0)
    return max(sums[True].values(), default=0.0) >= link + ISOLATE_NATS


def _both_ways_or_one_way_evidence(found: Sequence[NetworkFault], one_way_evidence: set[str]) -> bool:
    """Return whether a quarantine has enough evidence.

    Over TCP a slow NIC slows row and column; one of them alone needs one-way evidence.
    """
    both = np.median([wire.slow.entity.leak for wire in found]) > 0
    return bool(both or one_way_evidence)


def _confidence(kinds: int) -> float:
    return float(1.0 - 0.5**kinds)
