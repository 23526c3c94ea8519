"""Conversion of findings to diagnoses: names, expiry and texts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.localisation.entities import Kind

Key = tuple[Scope, int | str, int]
EVIDENCE = ("bandwidth", "joint-fit")
PROBE_EVIDENCE = ("one-way-probes", "joint-fit")
_DIRECTION = {Kind.TX: Direction.TX, Kind.RX: Direction.RX, Kind.NIC: Direction.BOTH, Kind.NODE: Direction.BOTH}


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind | None  # None: a link
    which: int  # node, leaf, uplink, or the sender's node of a link
    peer: int
    slowdown: float  # log
    nats: float  # posterior log odds
    edges: int
    since_s: float
    isolate: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """A diagnosis, and the number of windows without support for it."""

    diagnosis: Diagnosis
    unobserved: int = 0


class ProbeFit(NamedTuple):
    named: Mapping[Key, Named]
    explained: NDArray[np.bool_]  # per pair: a slow host or leaf lies on its path


def key_of(finding: Finding) -> Key:
    if finding.kind is None:
        return Scope.LINK, finding.which, finding.peer
    if finding.kind in _DIRECTION:
        return Scope.NODE, finding.which, -1
    return (Scope.LEAF if finding.kind is Kind.LEAF else Scope.UPLINK), switch_of(finding), -1


def switch_of(finding: Finding) -> str:
    return f"{'leaf' if finding.kind is Kind.LEAF else 'uplink'}-{finding.which}"


def diagnosis(finding: Finding, *, detected_s: float) -> Diagnosis:
    scope, _, _ = key_of(finding)
    node = finding.which if scope in (Scope.NODE, Scope.LINK) else None
    direction = None if finding.kind is None else _DIRECTION.get(finding.kind)
    if scope is Scope.LINK:
        direction = Direction.FORWARD
    return Diagnosis(
        fault=FaultClass.COMM_SLOW,
        scope=scope,
        node=node,
        peer=finding.peer if scope is Scope.LINK else None,
        switch=switch_of(finding) if scope in (Scope.LEAF, Scope.UPLINK) else None,
        direction=direction,
        onset_s=finding.since_s,
        detected_s=detected_s,
        isolate=finding.isolate,
        confidence=round(float(1.0 / (1.0 + np.exp(-min(finding.nats, 50.0)))), 4),
        reason=_reason(finding, scope),
        evidence=EVIDENCE,
    )


def _reason(finding: Finding, scope: Scope) -> str:
    times = f"{np.exp(finding.slowdown):.2f} times slower than usual"
    if scope is Scope.LINK:
        return f"{times} from node {finding.which} to node {finding.peer}; nothing else of either is"
    place = {Scope.NODE: f"node {finding.which}", Scope.LEAF: "a leaf switch", Scope.UPLINK: "a leaf-spine cable"}[
        scope
    ]
    return f"{finding.edges} edges of {place} are {times}, on paths that share nothing else"


def merged(found: Iterable[Finding]) -> dict[Key, Finding]:
    """Return one finding per fault: the NICs of a node are one."""
    best: dict[Key, Finding] = {}
    for finding in found:
        key = key_of(finding)
        if key not in best or finding.nats > best[key].nats:
            kind = finding.kind
            if key in best and kind in _DIRECTION and kind is not best[key].kind:
                kind = Kind.NODE
            best[key] = replace(finding, kind=kind, isolate=finding.isolate or (key in best and best[key].isolate))
    return best


def update(
    named: Mapping[Key, Named], finding: Mapping[Key, Finding], alive: frozenset[Key], *, now_s: float, forget: int
) -> dict[Key, Named]:
    """Return the named faults after this window.  `alive`: without new evidence, but supported by this window."""
    after: dict[Key, Named] = {}
    for key, old in named.items():
        if key in finding:
            fresh = diagnosis(finding[key], detected_s=old.diagnosis.detected_s)
            after[key] = Named(fresh.model_copy(update={"onset_s": old.diagnosis.onset_s}))
        elif key in alive or old.unobserved + 1 < forget:
            after[key] = replace(old, unobserved=0 if key in alive else old.unobserved + 1)
    for key, new in finding.items():
        if key not in after:
            after[key] = Named(diagnosis(new, detected_s=now_s))
    return after


def reported(named: Mapping[Key, Named], probe_fit: ProbeFit | None, *, min_confidence: float) -> tuple[Diagnosis, ...]:
    """Return the diagnoses that are sure enough, those of `probe_fit` alone last."""
    sure = {key: one for key, one in named.items() if one.diagnosis.confidence >= min_confidence}
    by_probes = {} if probe_fit is None else _hosts_and_leaves(probe_fit.named, besides=sure)
    sure |= {key: one for key, one in by_probes.items() if one.diagnosis.confidence >= min_confidence}
    return tuple(one.diagnosis for one in sure.values())


def _hosts_and_leaves(named: Mapping[Key, Named], *, besides: Mapping[Key, Named]) -> dict[Key, Named]:
    """Leave out links, which the fit of traffic evaluates.

    What only probes find never justifies a quarantine, because its effect on the job is unknown.
    """
    return {
        key: replace(one, diagnosis=one.diagnosis.model_copy(update={"isolate": False, "evidence": PROBE_EVIDENCE}))
        for key, one in named.items()
        if key[0] in {Scope.NODE, Scope.LEAF} and key not in besides
    }
