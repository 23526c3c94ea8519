"""Looks at the fleet: verdicts that are believed and what operators want go through the policy, in one transaction.

All looks and wishes queue on the lock that every writer shares, so each sees what the one before left.  The policy is
pure and its memory is stored with the audit of what it decided, so a service that dies between two looks loses nothing,
and a look that comes twice decides once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus

from api.schemas.quarantine import BreakerView, Decided, IsolationView, Look, LookOutcome, NodeView
from api.schemas.targets import Freeze
from api.server.diagnoses import read_report, switched_off
from api.server.problems import ProblemError, not_found
from api.server.quarantine_state import Memory, remembered
from api.server.service import Service
from api.server.targets import FREEZE
from api.server.versioned import Slot, current
from api.store import IsolationRecord, Transaction, VerdictHead, canonical_json
from faults.quarantine import Accusation, Decision, Inputs, IsolationRules, Outcome, ProbeResult, Standing, Wish, step
from faults.quarantine.inputs import NODES
from faults.quarantine.states import OUT, NodeRecord

RULES = Slot(kind="isolation-rules", name="default", shipped=canonical_json(IsolationRules().model_dump(mode="json")))
MAX_BELIEVED = 1_000  # more at once is an outage, not faults: the breaker opens far below
SHOWN_DECISIONS = 50

ALLOWED = {
    Wish.APPROVE: frozenset({Standing.PROPOSED}),
    Wish.DECLINE: frozenset({Standing.PROPOSED}),
    Wish.RELEASE: OUT,
    Wish.KEEP_OUT: frozenset(Standing) - {Standing.KEPT_OUT},
}


@dataclass(frozen=True, slots=True)
class Looked:
    """What came of a look."""

    answer: LookOutcome
    decisions: tuple[Decision, ...]


async def look(service: Service, tx: Transaction, seen: Look, *, actor: str) -> Looked:
    """One step of the policy, stored and audited.  While the freeze holds, what stands goes on standing."""
    await tx.audit.lock()
    memory, rules, now = await remembered(tx), await rules_in_force(tx), service.now()
    members = frozenset(seen.members)
    if await is_frozen(tx):
        await _store(tx, replace(memory, members=members), now=now, actor=actor)
        out, _probe = _wanted(memory)
        answer = LookOutcome(at=now, mode=rules.mode, frozen=True, out=out, probe=(), decisions=())
        return Looked(answer, ())
    inputs = _inputs(seen, memory, await tx.verdicts.believed(now=now, limit=MAX_BELIEVED), now=now)
    state, outcome = step(memory.state, inputs, rules)
    decided = tuple(_decided(outcome, now))
    told = tuple(each.model_dump(mode="json") for each in reversed(decided))
    after = Memory(state=state, members=members, decisions=(*told, *memory.decisions))
    await _store(tx, after, now=now, actor=actor)
    for each in decided:
        subject = f"faults/quarantine/nodes/{each.node}" if each.node is not None else "faults/quarantine/breaker"
        detail = {"reason": each.reason, "accusation": each.accusation, "dry_run": each.dry_run}
        await service.audit(tx, actor=actor, action=f"isolation.{each.act.value}", subject=subject, detail=detail)
    answer = LookOutcome(
        at=now,
        mode=rules.mode,
        frozen=False,
        out=tuple(sorted(outcome.out)),
        probe=tuple(sorted(outcome.probe)),
        decisions=decided,
    )
    return Looked(answer, outcome.decisions)


async def wish(service: Service, node: str, wanted: Wish, *, actor: str) -> NodeView:
    """Remember what an operator wants, for the next look."""
    async with service.store.transaction() as tx:
        await tx.audit.lock()
        memory = await remembered(tx)
        if memory.record is None or (node not in memory.members and node not in memory.state.nodes):
            raise not_found(f"node {node!r} in the last look at the fleet")
        record = memory.state.nodes.get(node, NodeRecord())
        if record.standing not in ALLOWED[wanted]:
            allowed = ", ".join(sorted(ALLOWED[wanted]))
            raise _conflict(f"node {node!r} is {record.standing}; {wanted} is for one that is {allowed}")
        after = replace(memory, wishes={**memory.wishes, node: wanted})
        await _keep(tx, after, memory.record)
        await service.audit(
            tx,
            actor=actor,
            action="isolation.wished",
            subject=f"faults/quarantine/nodes/{node}",
            detail={"wish": wanted.value, "standing": record.standing.value},
        )
    return _node(node, record, wanted)


async def close_breaker(service: Service, *, actor: str) -> BreakerView:
    """Let the next look close the breaker."""
    async with service.store.transaction() as tx:
        await tx.audit.lock()
        memory = await remembered(tx)
        if memory.record is None or not memory.state.breaker.open:
            raise _conflict("the breaker is closed")
        after = replace(memory, close_breaker=True)
        await _keep(tx, after, memory.record)
        await service.audit(
            tx, actor=actor, action="isolation.breaker-wished-closed", subject="faults/quarantine/breaker"
        )
    return _breaker(after)


async def view(tx: Transaction) -> IsolationView:
    """Everything that is remembered."""
    memory, rules = await remembered(tx), await rules_in_force(tx)
    out, probe = _wanted(memory)
    nodes = [_node(name, record, memory.wishes.get(name)) for name, record in sorted(memory.state.nodes.items())]
    nodes += [
        _node(name, NodeRecord(), wanted) for name, wanted in memory.wishes.items() if name not in memory.state.nodes
    ]
    return IsolationView(
        looked_at=memory.record.looked_at if memory.record is not None else None,
        looked_by=memory.record.looked_by if memory.record is not None else None,
        mode=rules.mode,
        frozen=await is_frozen(tx),
        fleet=len(memory.members),
        out=out,
        probe=probe,
        breaker=_breaker(memory),
        nodes=tuple(nodes),
        decisions=tuple(Decided.model_validate(each) for each in memory.decisions[:SHOWN_DECISIONS]),
    )


async def rules_in_force(tx: Transaction) -> IsolationRules:
    """As last put, or as shipped."""
    return IsolationRules.model_validate_json((await current(tx, RULES)).body or "")


async def is_frozen(tx: Transaction) -> bool:
    """Whether the global freeze holds."""
    return Freeze.model_validate_json((await current(tx, FREEZE)).body or "").frozen


def _inputs(seen: Look, memory: Memory, believed: Iterable[VerdictHead], *, now: datetime) -> Inputs:
    accusations: list[Accusation] = []
    network: set[str] = set()
    for head in believed:
        report = read_report(head)
        network.update(switched_off(report))
        node = report.name_of(report.verdict.node)
        if report.verdict.scope in NODES and node is not None:
            accusations.append(Accusation(head.id, node, report.verdict))
    return Inputs(
        now_s=now.timestamp(),
        members={name: member.member for name, member in seen.members.items()},
        accusations=tuple(accusations),
        network=frozenset(network),
        spares=seen.spares,
        probed={name: ProbeResult(min(end.ended_at, now).timestamp(), end.passed) for name, end in seen.probed.items()},
        wishes=memory.wishes,
        close_breaker=memory.close_breaker,
    )


def _decided(outcome: Outcome, now: datetime) -> Iterator[Decided]:
    for each in outcome.decisions:
        yield Decided(
            at=now,
            act=each.act,
            node=each.node,
            reason=each.reason,
            accusation=each.accusation,
            dry_run=each.dry_run,
        )


async def _store(tx: Transaction, memory: Memory, *, now: datetime, actor: str) -> None:
    await tx.isolation.put(IsolationRecord(looked_at=now, looked_by=actor, body=memory.written()))


async def _keep(tx: Transaction, memory: Memory, record: IsolationRecord) -> None:
    await tx.isolation.put(replace(record, body=memory.written()))


def _wanted(memory: Memory) -> tuple[tuple[str, ...], tuple[str, ...]]:
    real = {name: record for name, record in sorted(memory.state.nodes.items()) if not record.dry_run}
    out = tuple(name for name, record in real.items() if record.standing in OUT)
    return out, tuple(name for name, record in real.items() if record.standing is Standing.PROBING)


def _breaker(memory: Memory) -> BreakerView:
    breaker = memory.state.breaker
    return BreakerView(
        opened_at=_moment(breaker.opened_s), accused=tuple(sorted(breaker.accused_s)), close_wanted=memory.close_breaker
    )


def _node(name: str, record: NodeRecord, wanted: Wish | None) -> NodeView:
    out = record.standing in OUT
    return NodeView(
        node=name,
        standing=record.standing,
        since=datetime.fromtimestamp(record.since_s, UTC),
        dry_run=record.dry_run,
        accusation=record.accusation,
        accused_since=_moment(record.accused_s) if record.accusation is not None else None,
        refused=record.refused,
        strikes=tuple(datetime.fromtimestamp(at_s, UTC) for at_s in record.isolated_s),
        probes_passed=record.passed,
        probes_failed=record.failed,
        probe_at=_moment(record.probe_at_s) if out else None,
        wish=wanted,
    )


def _moment(at_s: float | None) -> datetime | None:
    return None if not at_s else datetime.fromtimestamp(at_s, UTC)


def _conflict(detail: str) -> ProblemError:
    return ProblemError(status=HTTPStatus.CONFLICT, kind="conflict", detail=detail)
