"""The guardrails, in the order of their evaluation.  Each can only refuse a quarantine."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import NamedTuple

from faults.diagnosis import SILENCE
from faults.quarantine.inputs import NODES, SLOW, TRAFFIC, Inputs, Member, Suspicion
from faults.quarantine.settings import QuarantineRules
from faults.quarantine.states import CircuitBreaker, NodeRecord

POOL, DOMAIN = "pool", "domain"

Group = tuple[str, str]  # kind, name


def groups_of(member: Member) -> Iterator[Group]:
    """Iterate over every group that loses a node when this one leaves service."""
    yield POOL, member.pool
    for name in dict.fromkeys(member.domains):
        yield DOMAIN, name


class Groups:
    """Numbers of nodes per group: counted once per step, and updated as nodes leave service."""

    def __init__(self, members: Mapping[str, Member], out: AbstractSet[str], missing: Iterable[Member] = ()) -> None:
        self.size: Counter[Group] = Counter()
        self.out: Counter[Group] = Counter()
        for name, member in members.items():
            self._count(member, out=member.absent or name in out)
        for member in missing:
            self._count(member, out=True)

    def _count(self, member: Member, *, out: bool) -> None:
        for group in groups_of(member):
            self.size[group] += 1
            self.out[group] += out

    def remove(self, member: Member) -> None:
        for group in groups_of(member):
            self.out[group] += not member.absent


class Guardrail(StrEnum):
    """Name of a guardrail."""

    NOT_JUSTIFIED = "not-justified"
    SILENCE = "silence"
    CONFIDENCE = "confidence"
    UNCONFIRMED = "unconfirmed"
    NETWORK = "network"
    BREAKER = "breaker"
    RATE = "rate"
    BUDGET = "budget"
    SPARE = "spare"
    DECLINED = "declined"
    RESOLVED = "resolved"


class Candidate(NamedTuple):
    suspicion: Suspicion
    record: NodeRecord
    member: Member
    breaker: CircuitBreaker
    quarantined_s: tuple[float, ...]  # recent quarantines of any node
    groups: Groups
    inputs: Inputs
    rules: QuarantineRules
    spares_taken: int = 0  # spares of the pool that this step has assigned


Refusal = tuple[Guardrail, str]


def first_refusal(candidate: Candidate) -> Refusal | None:
    return _first((*_OF_THE_DIAGNOSIS, *_OF_THE_FLEET), candidate)


def lack_of_cause(candidate: Candidate) -> Refusal | None:
    """Return the first refusal that concerns the suspicion itself; None if the node is suspected with cause."""
    return _first((*_OF_THE_DIAGNOSIS, _resolved, _unconfirmed), candidate)


def permanent_refusal(candidate: Candidate) -> Refusal | None:
    """Return the first refusal that lasts as long as the suspicion, whatever happens to the fleet."""
    return _first(_PERMANENT, candidate)


def _not_justified(candidate: Candidate) -> Refusal | None:
    diagnosis = candidate.suspicion.diagnosis
    if diagnosis.scope not in NODES:
        return Guardrail.NOT_JUSTIFIED, f"a diagnosis of a {diagnosis.scope.value} never quarantines a node"
    return None if diagnosis.isolate else (Guardrail.NOT_JUSTIFIED, "the evidence does not justify a quarantine")


def _silence(candidate: Candidate) -> Refusal | None:
    evidence = candidate.suspicion.diagnosis.evidence
    if all(kind == SILENCE for kind in evidence):
        return Guardrail.SILENCE, "the only evidence is silence"
    return None


def _confidence(candidate: Candidate) -> Refusal | None:
    confidence, least = candidate.suspicion.diagnosis.confidence, candidate.rules.min_confidence
    return (Guardrail.CONFIDENCE, f"confidence {confidence:.2f} is below {least:g}") if confidence < least else None


def _unconfirmed(candidate: Candidate) -> Refusal | None:
    if candidate.suspicion.diagnosis.fault not in SLOW:
        return None
    record, wait_s = candidate.record, candidate.rules.confirm_s
    active_s = candidate.inputs.now_s - record.suspected_s if record.diagnosis_id is not None else 0.0
    return (Guardrail.UNCONFIRMED, f"active for {active_s:.0f} of {wait_s:g} s") if active_s < wait_s else None


def _network(candidate: Candidate) -> Refusal | None:
    common = sorted(candidate.inputs.network.intersection(candidate.member.domains))
    if candidate.suspicion.diagnosis.fault in TRAFFIC and common:
        return Guardrail.NETWORK, f"{common[0]} has a diagnosis itself, which explains the node's traffic"
    return None


def _breaker(candidate: Candidate) -> Refusal | None:
    if not candidate.breaker.open:
        return None
    return Guardrail.BREAKER, f"{len(candidate.breaker.suspected_s)} nodes were suspected together; releases continue"


def _rate(candidate: Candidate) -> Refusal | None:
    after_s = candidate.inputs.now_s - candidate.rules.rate_window_s
    count, allowed = sum(at_s > after_s for at_s in candidate.quarantined_s), candidate.rules.rate_count
    if count < allowed:
        return None
    window_s = candidate.rules.rate_window_s
    return Guardrail.RATE, f"{count} nodes were quarantined within {window_s:g} s, allowed: {allowed}"


def _budget(candidate: Candidate) -> Refusal | None:
    for group in groups_of(candidate.member):
        kind, name = group
        size, out = candidate.groups.size[group], candidate.groups.out[group]
        allowed = (candidate.rules.pool if kind == POOL else candidate.rules.domain).of(size)
        if out + (not candidate.member.absent) > allowed:
            return Guardrail.BUDGET, f"{out} of the {size} nodes of {kind} {name} are out, allowed: {allowed}"
    return None


def _spare(candidate: Candidate) -> Refusal | None:
    pool = candidate.member.pool
    if candidate.rules.without_spare or candidate.inputs.spares.get(pool, 0) > candidate.spares_taken:
        return None
    return Guardrail.SPARE, f"pool {pool} has no spare"


def _declined(candidate: Candidate) -> Refusal | None:
    if candidate.record.declined != candidate.suspicion.id:
        return None
    return Guardrail.DECLINED, "an operator declined this diagnosis"


def _resolved(candidate: Candidate) -> Refusal | None:
    """Refuse an active diagnosis of a node that has returned: it is no new evidence."""
    if candidate.record.resolved != candidate.suspicion.id:
        return None
    return Guardrail.RESOLVED, "the node was quarantined for this diagnosis and has returned since"


def _first(rules: tuple[Callable[[Candidate], Refusal | None], ...], candidate: Candidate) -> Refusal | None:
    return next((found for rule in rules if (found := rule(candidate)) is not None), None)


_OF_THE_DIAGNOSIS = (_not_justified, _silence, _confidence)
_PERMANENT = (*_OF_THE_DIAGNOSIS, _declined, _resolved, _network)
_OF_THE_FLEET = (_declined, _resolved, _unconfirmed, _network, _breaker, _rate, _budget, _spare)
