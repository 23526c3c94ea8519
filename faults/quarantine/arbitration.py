"""Selects one suspicion per node, the most severe first, and decides whether the node is quarantined."""

from collections import Counter

from faults.quarantine.guardrails import Candidate, Groups, Guardrail, first_refusal, lack_of_cause, permanent_refusal
from faults.quarantine.inputs import SLOW, OperatorAction, Suspicion
from faults.quarantine.life_cycle import OUT_OF_SERVICE, Event, NodeState
from faults.quarantine.settings import PolicyMode
from faults.quarantine.states import DecisionKind, NodeRecord
from faults.quarantine.step_context import StepContext


class QuarantineDecider:
    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._spares_taken: Counter[str] = Counter()
        self._groups = Groups(context.inputs.members, context.out_of_service(), context.missing())
        # Per node: the most severe suspicion without a permanent refusal, else the most severe one.  Suspicions of
        # unknown nodes are omitted: the policy can only take members of the fleet out of service.
        members = context.inputs.members
        known = [each for each in sorted(context.inputs.suspicions, key=_severity) if each.node in members]
        best: dict[str, Suspicion] = {}
        for suspicion in sorted(known, key=lambda each: permanent_refusal(self._candidate(each)) is not None):
            best.setdefault(suspicion.node, suspicion)
        self._suspicions = dict(sorted(best.items(), key=lambda item: _severity(item[1])))

    def suspected_with_cause(self) -> frozenset[str]:
        return frozenset(
            node
            for node, suspicion in self._suspicions.items()
            if self._context.record(node).state not in OUT_OF_SERVICE
            and lack_of_cause(self._candidate(suspicion)) is None
        )

    def decide(self) -> None:
        for node, suspicion in self._suspicions.items():
            if self._context.record(node).state not in OUT_OF_SERVICE:
                self._decide(node, suspicion)
        for node, record in list(self._context.nodes.items()):
            suspected = node in self._suspicions
            if not suspected and record.state not in OUT_OF_SERVICE and record.diagnosis_id is not None:
                self._clear(node, record)

    def _candidate(self, suspicion: Suspicion) -> Candidate:
        context, node = self._context, suspicion.node
        member = context.inputs.members[node]
        return Candidate(
            suspicion,
            context.record(node),
            member,
            context.breaker,
            context.quarantined_s,
            self._groups,
            context.inputs,
            context.rules,
            self._spares_taken[member.pool],
        )

    def _decide(self, node: str, suspicion: Suspicion) -> None:
        context = self._context
        record = context.record(node)
        over = {record.resolved, record.declined} - {suspicion.id}
        if record.diagnosis_id is None or record.diagnosis_id in over:
            record = record._replace(suspected_s=context.inputs.now_s)
        context.put(node, record._replace(diagnosis_id=suspicion.id))
        refusal = first_refusal(self._candidate(suspicion))
        if refusal is not None:
            self._refuse(node, *refusal)
        elif context.rules.mode is PolicyMode.RECOMMEND and not self._is_approved(node):
            self._propose(node, suspicion)
        else:
            member = context.inputs.members[node]
            self._spares_taken[member.pool] += 1
            self._groups.remove(member)
            context.quarantine(node, suspicion.diagnosis.reason)

    def _is_approved(self, node: str) -> bool:
        return self._approval_requested(node) and self._context.record(node).state is NodeState.PROPOSED

    def _approval_requested(self, node: str) -> bool:
        return self._context.inputs.operator_actions.get(node) is OperatorAction.APPROVE

    def _propose(self, node: str, suspicion: Suspicion) -> None:
        record = self._context.record(node)
        if record.state is not NodeState.PROPOSED:
            self._context.move(node, Event.PROPOSE, record._replace(refused_by=None))
            self._context.decide(DecisionKind.PROPOSE, node, suspicion.diagnosis.reason)

    def _refuse(self, node: str, guardrail: Guardrail, reason: str) -> None:
        """Record a refusal: the node stays in service.  A refusal is a decision when its guardrail is a new one."""
        context, record = self._context, self._context.record(node)
        unconfirmed = guardrail is Guardrail.UNCONFIRMED
        if unconfirmed and record.state is NodeState.SERVING:
            record = context.move(node, Event.SUSPECT, record)
        if record.refused_by != guardrail or self._approval_requested(node):
            kind = DecisionKind.SUSPECT if unconfirmed else DecisionKind.REFUSE
            context.decide(kind, node, f"{guardrail}: {reason}")
        context.put(node, record._replace(refused_by=guardrail))

    def _clear(self, node: str, record: NodeRecord) -> None:
        context = self._context
        if record.state in (NodeState.SUSPECT, NodeState.PROPOSED):
            context.decide(DecisionKind.CLEAR, node, "no longer suspected")
            record = context.move(node, Event.CLEAR, record)
        context.put(
            node,
            record._replace(diagnosis_id=None, suspected_s=0.0, refused_by=None, declined=None, resolved=None),
        )


def _severity(suspicion: Suspicion) -> tuple[bool, float, str, str]:
    diagnosis = suspicion.diagnosis
    return (diagnosis.fault in SLOW or not diagnosis.isolate, -diagnosis.confidence, suspicion.node, suspicion.id)
