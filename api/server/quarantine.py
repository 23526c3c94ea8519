"""Evaluates active diagnoses, operator actions and the observed fleet with the policy, in one transaction.

All evaluations and actions take the lock that every writer takes, so each works on the state that the previous one
stored.  The policy is pure, and one transaction stores its state with the audit of its decisions.  A repeated
evaluation therefore decides nothing twice.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from api.jobs.diagnoses import failure_domains_of, read_report
from api.schemas.quarantine import BreakerView, DecisionView, Evaluation, EvaluationResult, NodeView, QuarantineView
from api.server.problems import conflict, not_found
from api.server.service import Service
from api.server.targets import is_frozen
from api.server.versioned import DocumentKey, current
from api.store import DiagnosisHead, QuarantineRecord, Transaction, canonical_json
from faults.quarantine import (
    OUT_OF_SERVICE,
    CircuitBreaker,
    Decision,
    Event,
    Inputs,
    NodeRecord,
    NodeState,
    OperatorAction,
    Outcome,
    ProbeResult,
    QuarantineRules,
    QuarantineState,
    Suspicion,
    step,
)
from faults.quarantine.inputs import NODES
from faults.quarantine.life_cycle import states_before
from fleet.documents import read_stored

RULES = DocumentKey(
    kind="quarantine-rules", name="default", shipped=canonical_json(QuarantineRules().model_dump(mode="json"))
)
MAX_ACTIVE = 1_000  # more at once is an outage; the circuit breaker opens far below
SHOWN_DECISIONS = 50
KEPT_DECISIONS = 200

ALLOWED = {
    OperatorAction.APPROVE: frozenset({NodeState.PROPOSED}),
    OperatorAction.DECLINE: frozenset({NodeState.PROPOSED}),
    OperatorAction.RELEASE: states_before(Event.RELEASE),
    OperatorAction.CORDON: states_before(Event.CORDON),
}


@dataclass(frozen=True, slots=True)
class StoredState:
    """Is the parsed document."""

    state: QuarantineState = field(default_factory=QuarantineState)
    members: frozenset[str] = frozenset()  # of the last evaluation
    operator_actions: Mapping[str, OperatorAction] = field(default_factory=dict)
    reset_breaker: bool = False
    decisions: tuple[Mapping[str, Any], ...] = ()  # newest first, as JSON
    record: QuarantineRecord | None = None  # the stored row

    def to_json(self) -> str:
        breaker = self.state.breaker
        return canonical_json(
            {
                "nodes": {name: record._asdict() for name, record in self.state.nodes.items()},
                "breaker": {"suspected_s": dict(breaker.suspected_s), "opened_s": breaker.opened_s},
                "quarantined_s": self.state.quarantined_s,
                "members": sorted(self.members),
                "operator_actions": dict(self.operator_actions),
                "reset_breaker": self.reset_breaker,
                "decisions": self.decisions[:KEPT_DECISIONS],
            }
        )


async def load_state(tx: Transaction) -> StoredState:
    """Return the stored state; empty before the first evaluation."""
    record = await tx.quarantine.get()
    return StoredState() if record is None else parsed(record)


def parsed(record: QuarantineRecord) -> StoredState:
    found = json.loads(record.body)
    breaker = found["breaker"]
    return StoredState(
        state=QuarantineState(
            nodes=MappingProxyType({name: _stored_node(each) for name, each in found["nodes"].items()}),
            breaker=CircuitBreaker(MappingProxyType(breaker["suspected_s"]), breaker["opened_s"]),
            quarantined_s=tuple(found["quarantined_s"]),
        ),
        members=frozenset(found["members"]),
        operator_actions={name: OperatorAction(action) for name, action in found["operator_actions"].items()},
        reset_breaker=found["reset_breaker"],
        decisions=tuple(found["decisions"]),
        record=record,
    )


def _stored_node(found: Mapping[str, Any]) -> NodeRecord:
    found = {field: value for field, value in found.items() if field in NodeRecord._fields}
    lists = {key: tuple(found.get(key, ())) for key in ("strikes_s", "domains")}
    return NodeRecord(**{**found, **lists, "state": NodeState(found["state"])})


def _stored_decision(found: Mapping[str, Any]) -> DecisionView:
    return DecisionView.model_validate(found, extra="ignore")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Holds the result of an evaluation, and its decisions for the metrics."""

    result: EvaluationResult
    decisions: tuple[Decision, ...]


async def evaluate(service: Service, tx: Transaction, evaluation: Evaluation, *, actor: str) -> Evaluated:
    """Run one step of the policy, store and audit it.  While the fleet is frozen, the state does not change."""
    await tx.audit.lock()
    stored, rules, now = await load_state(tx), await rules_in_force(tx), service.now()
    members = frozenset(evaluation.members)
    if await is_frozen(tx):
        await _store(tx, replace(stored, members=members), now=now, actor=actor)
        out, _probe = _desired(stored)
        result = EvaluationResult(at=now, mode=rules.mode, frozen=True, out_of_service=out, probe=(), decisions=())
        return Evaluated(result, ())
    inputs = _inputs(evaluation, stored, await tx.diagnoses.active(now=now, limit=MAX_ACTIVE), now=now)
    state, outcome = step(stored.state, inputs, rules)
    views = tuple(_views(outcome, now))
    newest = tuple(each.model_dump(mode="json") for each in reversed(views))
    after = StoredState(state=state, members=members, decisions=(*newest, *stored.decisions))
    await _store(tx, after, now=now, actor=actor)
    for each in views:
        subject = f"faults/quarantine/nodes/{each.node}" if each.node is not None else "faults/quarantine/breaker"
        detail = {"reason": each.reason, "diagnosis_id": each.diagnosis_id, "dry_run": each.dry_run}
        await service.audit(tx, actor=actor, action=f"quarantine.{each.kind.value}", subject=subject, detail=detail)
    result = EvaluationResult(
        at=now,
        mode=rules.mode,
        frozen=False,
        out_of_service=tuple(sorted(outcome.out_of_service)),
        probe=tuple(sorted(outcome.probe)),
        decisions=views,
    )
    return Evaluated(result, outcome.decisions)


async def request_action(service: Service, node: str, action: OperatorAction, *, actor: str) -> NodeView:
    """Store an operator's action for the next evaluation."""
    async with service.store.transaction() as tx:
        await tx.audit.lock()
        stored = await load_state(tx)
        if stored.record is None or (node not in stored.members and node not in stored.state.nodes):
            raise not_found(f"node {node!r} in the last evaluation of the fleet")
        record = stored.state.nodes.get(node, NodeRecord())
        if record.state not in ALLOWED[action]:
            allowed = ", ".join(sorted(ALLOWED[action]))
            raise conflict(f"node {node!r} is {record.state}; {action} is for one that is {allowed}")
        after = replace(stored, operator_actions={**stored.operator_actions, node: action})
        await _keep(tx, after, stored.record)
        await service.audit(
            tx,
            actor=actor,
            action="quarantine.action-requested",
            subject=f"faults/quarantine/nodes/{node}",
            detail={"action": action.value, "state": record.state.value},
        )
    return _node(node, record, action)


async def reset_breaker(service: Service, *, actor: str) -> BreakerView:
    """Request a reset of the circuit breaker at the next evaluation."""
    async with service.store.transaction() as tx:
        await tx.audit.lock()
        stored = await load_state(tx)
        if stored.record is None or not stored.state.breaker.open:
            raise conflict("the breaker is closed")
        after = replace(stored, reset_breaker=True)
        await _keep(tx, after, stored.record)
        await service.audit(
            tx, actor=actor, action="quarantine.breaker-reset-requested", subject="faults/quarantine/breaker"
        )
    return _breaker(after)


async def view(tx: Transaction) -> QuarantineView:
    stored, rules = await load_state(tx), await rules_in_force(tx)
    out, probe = _desired(stored)
    return QuarantineView(
        evaluated_at=stored.record.evaluated_at if stored.record is not None else None,
        evaluated_by=stored.record.evaluated_by if stored.record is not None else None,
        mode=rules.mode,
        frozen=await is_frozen(tx),
        fleet=len(stored.members),
        out_of_service=out,
        probe=probe,
        breaker=_breaker(stored),
        nodes=tuple(node_views(stored).values()),
        decisions=tuple(map(_stored_decision, stored.decisions[:SHOWN_DECISIONS])),
    )


def node_views(stored: StoredState) -> dict[str, NodeView]:
    """Return the nodes with a history or a requested action, by name."""
    actions, known = stored.operator_actions, stored.state.nodes
    views = {name: _node(name, record, actions.get(name)) for name, record in sorted(known.items())}
    return views | {name: _node(name, NodeRecord(), action) for name, action in actions.items() if name not in known}


async def rules_in_force(tx: Transaction) -> QuarantineRules:
    """Return the stored rules, or the shipped ones."""
    return read_stored(QuarantineRules, (await current(tx, RULES)).body or "")


def _inputs(evaluation: Evaluation, stored: StoredState, active: Iterable[DiagnosisHead], *, now: datetime) -> Inputs:
    suspicions: list[Suspicion] = []
    network: set[str] = set()
    for head in active:
        report = read_report(head)
        network.update(failure_domains_of(report))
        node = report.name_of(report.diagnosis.node)
        if report.diagnosis.scope in NODES and node is not None:
            suspicions.append(Suspicion(head.id, node, report.diagnosis))
    return Inputs(
        now_s=now.timestamp(),
        members={name: member.member for name, member in evaluation.members.items()},
        suspicions=tuple(suspicions),
        network=frozenset(network),
        spares=evaluation.spares,
        probe_results={
            name: ProbeResult(min(probe.ended_at, now).timestamp(), probe.passed)
            for name, probe in evaluation.probed.items()
        },
        operator_actions=stored.operator_actions,
        reset_breaker=stored.reset_breaker,
    )


def _views(outcome: Outcome, now: datetime) -> Iterator[DecisionView]:
    for each in outcome.decisions:
        yield DecisionView(at=now, **each._asdict())


async def _store(tx: Transaction, stored: StoredState, *, now: datetime, actor: str) -> None:
    await tx.quarantine.put(QuarantineRecord(evaluated_at=now, evaluated_by=actor, body=stored.to_json()))


async def _keep(tx: Transaction, stored: StoredState, record: QuarantineRecord) -> None:
    await tx.quarantine.put(replace(record, body=stored.to_json()))


def _desired(stored: StoredState) -> tuple[tuple[str, ...], tuple[str, ...]]:
    real = {name: record for name, record in sorted(stored.state.nodes.items()) if not record.dry_run}
    out = tuple(name for name, record in real.items() if record.state in OUT_OF_SERVICE)
    return out, tuple(name for name, record in real.items() if record.state is NodeState.PROBING)


def _breaker(stored: StoredState) -> BreakerView:
    breaker = stored.state.breaker
    return BreakerView(
        opened_at=_moment(breaker.opened_s),
        suspected=tuple(sorted(breaker.suspected_s)),
        reset_requested=stored.reset_breaker,
    )


def _node(name: str, record: NodeRecord, action: OperatorAction | None) -> NodeView:
    out = record.state in OUT_OF_SERVICE
    return NodeView(
        node=name,
        state=record.state,
        since=datetime.fromtimestamp(record.since_s, UTC),
        dry_run=record.dry_run,
        diagnosis_id=record.diagnosis_id,
        suspected_since=_moment(record.suspected_s) if record.diagnosis_id is not None else None,
        refused_by=record.refused_by,
        strikes=tuple(datetime.fromtimestamp(at_s, UTC) for at_s in record.strikes_s),
        probes_passed=record.probes_passed,
        probes_failed=record.probes_failed,
        probe_at=_moment(record.probe_at_s) if out else None,
        pending_action=action,
    )


def _moment(at_s: float | None) -> datetime | None:
    return None if not at_s else datetime.fromtimestamp(at_s, UTC)
