"""Joins what the store has about each node: topology, quarantine, active diagnoses, open cases, power budgets."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from api.jobs.diagnoses import read_report
from api.schemas.nodes import FleetNode, NodeCase, NodeDiagnosis, NodeDomain, NodePlace
from api.schemas.power import PowerBudget
from api.schemas.quarantine import NodeView
from api.schemas.remediation import CaseSpec
from api.server.catalogues import TOPOLOGY
from api.server.power_trees import BUDGETS
from api.server.projects import ProjectAccess
from api.server.quarantine import MAX_ACTIVE, load_state, node_views
from api.server.remediation import CASES
from api.server.versioned import current
from api.store import DiagnosisHead, DocumentRecord, Transaction
from faults.diagnosis import FaultClass, Scope
from faults.quarantine import NodeState
from fleet.documents import read_stored
from fleet.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Is what the store has about the nodes, as stored."""

    topology: str
    members: frozenset[str]
    quarantine: Mapping[str, NodeView]
    diagnoses: Sequence[DiagnosisHead]
    cases: Sequence[DocumentRecord]
    budgets: Mapping[str, PowerBudget]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilter:
    """Selects nodes; what is not set selects all."""

    name: str | None = None
    state: NodeState | None = None
    gpu: str | None = None
    has_diagnosis: bool | None = None


class _Named(NamedTuple):
    """Is the part of a diagnosis that is shown at its nodes."""

    nodes: tuple[str, ...]
    confidence: float


async def read_records(tx: Transaction, project: ProjectAccess, *, now: datetime) -> Records:
    stored = await load_state(tx)
    active = await tx.diagnoses.active(now=now, limit=MAX_ACTIVE)
    return Records(
        topology=(await current(tx, TOPOLOGY.key)).body or "",
        members=stored.members,
        quarantine=node_views(stored),
        diagnoses=[head for head in active if project.includes(head.project)],
        cases=[each async for each in CASES.heads(tx)],
        budgets={each.name: each.spec async for each in BUDGETS.all(tx) if each.spec.expires_at > now},
    )


def nodes_of(records: Records, chosen: NodeFilter, *, after: str | None, limit: int) -> list[FleetNode]:
    """Return the chosen nodes after a name, by name."""
    index = _topology(records.topology).index
    diagnoses: defaultdict[str, list[DiagnosisHead]] = defaultdict(list)
    for head in records.diagnoses:
        for node in _named(head).nodes:
            diagnoses[node].append(head)
    cases = {
        case.node: (each.name, case) for each in records.cases if (case := _open_case(each.body or "")) is not None
    }
    names = {*index.nodes, *records.members, *records.quarantine, *diagnoses, *cases}

    def is_chosen(name: str) -> bool:
        node = index.nodes.get(name)
        return (
            (after is None or name > after)
            and chosen.name in (None, name)
            and chosen.state in (None, _state(records, name))
            and (chosen.gpu is None or (node is not None and node.gpu == chosen.gpu))
            and chosen.has_diagnosis in (None, name in diagnoses)
        )

    return [
        FleetNode(
            name=name,
            state=_state(records, name),
            evaluated=name in records.members,
            place=_place(records, name),
            quarantine=records.quarantine.get(name),
            diagnoses=tuple(map(_diagnosis, diagnoses.get(name, ()))),
            case=_case(*cases[name]) if name in cases else None,
        )
        for name in sorted(filter(is_chosen, names))[:limit]
    ]


def _state(records: Records, name: str) -> NodeState:
    found = records.quarantine.get(name)
    return found.state if found is not None else NodeState.SERVING


def _place(records: Records, name: str) -> NodePlace | None:
    index = _topology(records.topology).index
    if (node := index.nodes.get(name)) is None:
        return None
    site, budgets = index.site_of(name), records.budgets
    return NodePlace(
        site=site.name,
        region=site.region,
        gpu=node.gpu,
        gpus=node.gpus,
        nominal_w=node.nominal_w,
        power=tuple(
            NodeDomain(
                name=domain.name,
                kind=domain.kind,
                limit_w=domain.limit_w,
                budget_w=budgets[domain.name].limit_w if domain.name in budgets else None,
                budget_expires_at=budgets[domain.name].expires_at if domain.name in budgets else None,
            )
            for domain in index.power_path(name)
        ),
        leaves=node.leaves,
        scale_up_domain=node.scale_up_domain,
    )


def _diagnosis(head: DiagnosisHead) -> NodeDiagnosis:
    return NodeDiagnosis(
        id=head.id,
        job=head.job,
        fault=FaultClass(head.fault),
        scope=Scope(head.scope),
        confidence=_named(head).confidence,
        created_at=head.created_at,
        expires_at=head.expires_at,
    )


def _case(case_id: str, case: CaseSpec) -> NodeCase:
    runs = tuple(run.run for run in case.runs)
    return NodeCase(id=case_id, stage=case.stage, since=case.since, runs=runs, message=case.message)


@lru_cache(maxsize=2)
def _topology(body: str) -> Topology:
    """Parse a topology; cached, because validating a large one takes long."""
    return read_stored(Topology, body)


@lru_cache(maxsize=4096)
def _open_case(body: str) -> CaseSpec | None:
    """Parse a case; cached, because closed ones never change."""
    case = read_stored(CaseSpec, body)
    return case if case.open else None


@lru_cache(maxsize=MAX_ACTIVE)
def _named(head: DiagnosisHead) -> _Named:
    report = read_report(head)
    ends = (report.name_of(report.diagnosis.node), report.name_of(report.diagnosis.peer))
    return _Named(tuple({end: None for end in ends if end is not None}), report.diagnosis.confidence)
