"""Findings that have persisted, as verdicts.

Confidence is 1 - 2^-k, with k the independent kinds of evidence that agree: pair bandwidth, measured step time (not
what peers imply), where bytes wait, one-way delays; compute gap and the arrival it causes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from faults.slow.directions import Ways
from faults.slow.gaps import Late
from faults.slow.persistence import Confirmed
from faults.slow.wires import Slow
from faults.slow.workload import Lost
from faults.verdict import Direction, FaultClass, Scope, Verdict

PAIRS: Final = "pair-bandwidth"
STEP: Final = "step-time"
WAITING: Final = "where-bytes-wait"
PASSES: Final = "one-way-delay"
GAP: Final = "compute-gap"
ARRIVAL: Final = "arrival"
CONNECTIONS: Final = "extra-connections"
UNREAD: Final = "unread-bytes"


@dataclass(frozen=True, slots=True)
class Wire:
    """A slow wire of one look, with what told its direction and what it costs."""

    slow: Slow
    ways: Ways
    ratio: float  # of the step time
    measured: bool  # against the step's own baseline; else implied by peers


def of_wire(confirmed: Confirmed[Wire], window_s: float) -> Verdict:
    """A slow NIC or link."""
    found = confirmed.found
    last = found[-1]
    entity, own = last.slow.entity, last.slow.own
    ways = Ways(_mean([wire.ways.waiting for wire in found]), _mean([wire.ways.passes for wire in found]))
    evidence = [PAIRS] + [STEP] * last.measured
    factor = float(np.exp(np.median([wire.slow.entity.slowdown for wire in found])))
    ratio = float(np.median([wire.ratio for wire in found]))
    cost = f"{factor:.1f} times slower than {'before' if own else 'its peers'}; steps take {ratio:.2f} times as long"
    if entity.peer is None:
        evidence += [WAITING] * bool(np.isfinite(ways.waiting)) + [PASSES] * bool(np.isfinite(ways.passes))
        direction = ways.direction(float(np.log(factor))) if ways.known else _by_pairs(found)
        what = {Direction.TX: "what it sends", Direction.RX: "what it receives"}.get(direction, "both ways")
        reason = f"the pairs of node {entity.node} are slow, {what}: {cost}"
    else:
        direction = Direction.FORWARD
        reason = f"of all pairs only {entity.node} -> {entity.peer} is slow: {cost}"
    return Verdict(
        fault=FaultClass.COMM_SLOW,
        scope=Scope.NODE if entity.peer is None else Scope.LINK,
        node=entity.node,
        peer=entity.peer,
        direction=direction,
        onset_s=max(0.0, confirmed.first_s - window_s / 2),
        detected_s=confirmed.confirmed_s,
        isolate=entity.peer is None and len(evidence) > 1 and _both_ways_or_seen(found, ways),
        confidence=_confidence(len(evidence)),
        reason=reason,
        evidence=tuple(evidence),
    )


def of_rank(confirmed: Confirmed[Late], node: int) -> Verdict:
    """A rank that comes late by its own doing."""
    last = confirmed.found[-1]
    against = "its peers, since the first step" if last.from_start else "before"
    return Verdict(
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


def of_foreign(confirmed: Confirmed[tuple[int, int]]) -> Verdict:
    """Other people's bytes on the job's wires."""
    source, target = confirmed.found[-1]
    return Verdict(
        fault=FaultClass.COMM_SLOW,
        scope=Scope.WORKLOAD,
        node=source,
        peer=target,
        direction=Direction.FORWARD,
        onset_s=max(0.0, confirmed.first_s),
        detected_s=confirmed.confirmed_s,
        isolate=False,
        confidence=_confidence(2),
        reason=f"foreign traffic: connections that the job did not open carry it from {source} to {target}",
        evidence=(CONNECTIONS, PAIRS),
    )


def of_unread(confirmed: Confirmed[int]) -> Verdict:
    """A process that does not take what has arrived."""
    node = confirmed.found[-1]
    return Verdict(
        fault=FaultClass.NONCOMM_SLOW,
        scope=Scope.WORKLOAD,
        node=node,
        onset_s=max(0.0, confirmed.first_s),
        detected_s=confirmed.confirmed_s,
        isolate=False,
        confidence=_confidence(1),
        reason=f"senders to node {node} wait for its receive window: its process reads too slowly, the wire is free",
        evidence=(UNREAD,),
    )


def of_workload(confirmed: Confirmed[Lost]) -> Verdict:
    """Time lost to the job's own doing."""
    last = confirmed.found[-1]
    return Verdict(
        fault=FaultClass.NONCOMM_SLOW,
        scope=Scope.WORKLOAD,
        onset_s=max(0.0, confirmed.first_s),
        detected_s=confirmed.confirmed_s,
        isolate=False,
        confidence=_confidence(1),
        reason=f"{last.cause.value}: {last.share:.0%} of the time",
        evidence=(GAP,),
    )


def _both_ways_or_seen(found: Sequence[Wire], ways: Ways) -> bool:
    """Over TCP a slow NIC slows row and column; one of them alone needs one-way evidence before a node is taken out."""
    both = np.median([min(wire.slow.entity.row, wire.slow.entity.column) for wire in found]) > 0
    return bool(both) or ways.known


def _by_pairs(found: Sequence[Wire]) -> Direction:
    """Without one-way evidence only a row without its column, or the other way round, tells."""
    row = float(np.median([wire.slow.entity.row for wire in found]))
    column = float(np.median([wire.slow.entity.column for wire in found]))
    if min(row, column) > 0.3 * max(row, column):
        return Direction.BOTH
    return Direction.TX if row > column else Direction.RX


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")


def _confidence(kinds: int) -> float:
    return float(1.0 - 0.5**kinds)
