"""Every reason for which a node stays, in the order in which they are asked."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from faults.diagnosis import SILENCE
from faults.quarantine.failure_domains import POOL, Groups, groups_of
from faults.quarantine.inputs import NODES, SLOW, TRAFFIC, Accusation, Inputs, Member
from faults.quarantine.settings import IsolationRules
from faults.quarantine.states import Breaker, NodeRecord


class Refusal(StrEnum):
    """The rule that says no."""

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
    ANSWERED = "answered"


class Case(NamedTuple):
    """One accusation before the rules."""

    accusation: Accusation
    record: NodeRecord
    member: Member
    breaker: Breaker
    went_s: tuple[float, ...]  # isolations of late
    groups: Groups
    inputs: Inputs
    rules: IsolationRules
    promised: int = 0  # spares of the pool that this step has given away


Objection = tuple[Refusal, str]


def objection(case: Case) -> Objection | None:
    """The first rule that says no, and why."""
    return next((found for rule in (*_OF_THE_VERDICT, *_OF_THE_FLEET) if (found := rule(case)) is not None), None)


def unsound(case: Case) -> Objection | None:
    """The first rule about the accusation itself that says no; what passes is one with cause."""
    return next(
        (found for rule in (*_OF_THE_VERDICT, _answered, _unconfirmed) if (found := rule(case)) is not None), None
    )


def void(case: Case) -> Objection | None:
    """The first rule that will say no to this accusation for as long as it stands, whatever becomes of the fleet."""
    return next((found for rule in _OF_ITS_OWN if (found := rule(case)) is not None), None)


def _not_justified(case: Case) -> Objection | None:
    verdict = case.accusation.verdict
    if verdict.scope not in NODES:
        return Refusal.NOT_JUSTIFIED, f"a verdict on a {verdict.scope.value} never takes out a node"
    return None if verdict.isolate else (Refusal.NOT_JUSTIFIED, "the evidence does not justify it")


def _silence(case: Case) -> Objection | None:
    evidence = case.accusation.verdict.evidence
    if all(kind == SILENCE for kind in evidence):
        return Refusal.SILENCE, "nothing speaks against it but that nothing is heard of it"
    return None


def _confidence(case: Case) -> Objection | None:
    sure, least = case.accusation.verdict.confidence, case.rules.min_confidence
    return (Refusal.CONFIDENCE, f"confidence {sure:.2f} is below {least:g}") if sure < least else None


def _unconfirmed(case: Case) -> Objection | None:
    if case.accusation.verdict.fault not in SLOW:
        return None
    believed_s = case.inputs.now_s - case.record.accused_s if case.record.accusation is not None else 0.0
    wait_s = case.rules.confirm_s
    return (Refusal.UNCONFIRMED, f"believed for {believed_s:.0f} of {wait_s:g} s") if believed_s < wait_s else None


def _network(case: Case) -> Objection | None:
    over = sorted(case.inputs.network.intersection(case.member.domains))
    if case.accusation.verdict.fault in TRAFFIC and over:
        return Refusal.NETWORK, f"{over[0]} is under a verdict itself and explains it"
    return None


def _breaker(case: Case) -> Objection | None:
    if not case.breaker.open:
        return None
    return Refusal.BREAKER, f"{len(case.breaker.accused_s)} nodes were accused together; releases go on"


def _rate(case: Case) -> Objection | None:
    after_s = case.inputs.now_s - case.rules.rate_window_s
    went = sum(at_s > after_s for at_s in case.went_s)
    if went < case.rules.rate_count:
        return None
    return Refusal.RATE, f"{went} nodes went within {case.rules.rate_window_s:g} s, allowed: {case.rules.rate_count}"


def _budget(case: Case) -> Objection | None:
    for group in groups_of(case.member):
        kind, name = group
        size, lacking = case.groups.size[group], case.groups.lacking[group]
        allowed = (case.rules.pool if kind == POOL else case.rules.domain).of(size)
        if lacking + (not case.member.absent) > allowed:
            return Refusal.BUDGET, f"{lacking} of the {size} nodes of {kind} {name} are out, allowed: {allowed}"
    return None


def _spare(case: Case) -> Objection | None:
    if case.rules.without_spare or case.inputs.spares.get(case.member.pool, 0) > case.promised:
        return None
    return Refusal.SPARE, f"nothing in pool {case.member.pool} could take its place"


def _declined(case: Case) -> Objection | None:
    if case.record.declined != case.accusation.id:
        return None
    return Refusal.DECLINED, "an operator would not let it go for this"


def _answered(case: Case) -> Objection | None:
    """A verdict that is still believed of a node that has come back says nothing new."""
    if case.record.answered != case.accusation.id:
        return None
    return Refusal.ANSWERED, "it went for this and has come back since"


_OF_THE_VERDICT: tuple[Callable[[Case], Objection | None], ...] = (_not_justified, _silence, _confidence)
_OF_ITS_OWN = (*_OF_THE_VERDICT, _declined, _answered, _network)
_OF_THE_FLEET = (_declined, _answered, _unconfirmed, _network, _breaker, _rate, _budget, _spare)
