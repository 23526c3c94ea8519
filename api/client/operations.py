"""Describes every operation of the API as a `Call`.  Only this module and `fault_operations` contain paths and bodies.

Writes of documents, targets and the freeze are conditional: `if_match` takes the ETag of the version that the caller
read, so that no change is lost.  Operations that create take an idempotency key and draw one where none is given: the
key belongs to the call, and every attempt sends the same key.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from api.client.calls import (
    MISSING,
    Call,
    ResultOperations,
    Versioned,
    as_bytes,
    as_nothing,
    as_text,
    as_type,
    as_versioned,
    deleting,
    if_matching,
    listing,
    path_of,
    posting,
    putting,
    reading,
    under_lease,
)
from api.schemas.audit import NDJSON, AuditCheck, AuditCheckpoint, AuditEntry
from api.schemas.documents import DocumentKind, VersionInfo
from api.schemas.faults import FAULT_SIMULATIONS
from api.schemas.leases import Lease, LeaseClaim, LeaseTerm
from api.schemas.pages import Page
from api.schemas.placements import PLACEMENTS
from api.schemas.plans import PLANS, PlanCheck
from api.schemas.power import POWER_PLANS, POWER_SIMULATIONS, PowerBudget, StoredBudget, StoredTree
from api.schemas.sweeps import SWEEPS
from api.schemas.target_state import Approval, ApprovalRequest
from api.schemas.targets import Freeze, ReportedStatus, Target, TargetPreview, TargetSpec, TargetStatus
from api.schemas.wanted import WantedReplicas
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import PriceSheet
from fleet.topology import Topology
from placement.formats.engine_writers import Engine
from planner.request import PlanRequest
from planner.sweep import count_points
from power.tree import PowerTree

DocumentT = TypeVar("DocumentT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class DocumentType(Generic[DocumentT]):
    """Names one kind of document: its place in the API and its type."""

    kind: DocumentKind
    model: type[DocumentT]


GPUS = DocumentType(DocumentKind.GPUS, GpuCatalogue)
MODELS = DocumentType(DocumentKind.MODELS, ModelCatalogue)
OFFERS = DocumentType(DocumentKind.OFFERS, PriceSheet)
TOPOLOGY = DocumentType(DocumentKind.TOPOLOGY, Topology)


PLACING_S = 60.0  # with a trace, plus queueing
CHECKING_S = 600.0  # some ten million entries
SIMULATING_S = 600.0  # the default limit of a service, plus queueing


def check_live() -> Call[None]:
    """Check that the process runs; raises when it does not."""
    return Call(method="GET", path="/livez", read=as_nothing, retried=False)


def check_ready() -> Call[None]:
    """Check that the service is ready; raises ServerError with the reason when it is not."""
    return Call(method="GET", path="/readyz", read=as_nothing, retried=False)


def get_metrics() -> Call[str]:
    """Read the metrics in Prometheus' text format."""
    return Call(method="GET", path="/metrics", read=as_text, retried=False)


def get_document(document_type: DocumentType[DocumentT]) -> Call[Versioned[DocumentT]]:
    """Read a catalogue document in its current version."""
    return reading(_document_path(document_type), as_versioned(document_type.model))


def get_document_if_changed(document_type: DocumentType[DocumentT], *, etag: str) -> Call[Versioned[DocumentT] | None]:
    """Read a catalogue document, or None while it is still the version with this ETag."""
    read_changed = as_versioned(document_type.model)
    return Call(
        method="GET",
        path=_document_path(document_type),
        headers={"If-None-Match": etag},
        expects=frozenset({HTTPStatus.OK, HTTPStatus.NOT_MODIFIED}),
        read=lambda response: None if response.status_code == HTTPStatus.NOT_MODIFIED else read_changed(response),
        repeatable=True,
    )


def replace_document(
    document_type: DocumentType[DocumentT], document: DocumentT, *, if_match: str
) -> Call[Versioned[DocumentT]]:
    """Store a new version of a catalogue document."""
    return putting(_document_path(document_type), document, if_matching(if_match), as_versioned(document_type.model))


def list_document_versions(
    document_type: DocumentType[Any], *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[VersionInfo]]:
    """Read the stored versions of a catalogue document, newest first."""
    return listing(f"{_document_path(document_type)}/versions", VersionInfo, limit=limit, cursor=cursor)


def get_document_version(document_type: DocumentType[DocumentT], version: int) -> Call[Versioned[DocumentT]]:
    """Read an earlier version of a catalogue document."""
    path = path_of(_document_path(document_type) + "/versions/{version}", version=version)
    return reading(path, as_versioned(document_type.model))


_PLANS = ResultOperations(PLANS, lambda request: request.time_limit_s)
create_plan, list_plans, get_plan = _PLANS.create, _PLANS.page_by_status, _PLANS.get
submit_plan = _PLANS.submit
_SWEEPS = ResultOperations(SWEEPS, lambda request: count_points(request.axes) * request.request.time_limit_s)
create_sweep, list_sweeps, get_sweep = _SWEEPS.create, _SWEEPS.page, _SWEEPS.get
submit_sweep = _SWEEPS.submit
_PLACEMENTS = ResultOperations(PLACEMENTS, lambda _request: PLACING_S)
create_placement, list_placements, get_placement = _PLACEMENTS.create, _PLACEMENTS.page, _PLACEMENTS.get
submit_placement = _PLACEMENTS.submit
_POWER_PLANS = ResultOperations(POWER_PLANS, lambda request: request.time_limit_s)
create_power_plan, list_power_plans, get_power_plan = (
    _POWER_PLANS.create,
    _POWER_PLANS.page_by_status,
    _POWER_PLANS.get,
)
submit_power_plan = _POWER_PLANS.submit
_ROWS = ResultOperations(POWER_SIMULATIONS, lambda _request: SIMULATING_S)
create_power_simulation, list_power_simulations, get_power_simulation = _ROWS.create, _ROWS.page, _ROWS.get
submit_power_simulation = _ROWS.submit
_FAULTS = ResultOperations(FAULT_SIMULATIONS, lambda _request: SIMULATING_S)
create_fault_simulation, list_fault_simulations, get_fault_simulation = _FAULTS.create, _FAULTS.page, _FAULTS.get
submit_fault_simulation = _FAULTS.submit


def export_placement(placement_id: str, *, engine: Engine) -> Call[bytes]:
    """Read one placement as the file that an engine loads."""
    path = path_of("/v1/placements/{placement_id}/export", placement_id=placement_id)
    return Call(method="GET", path=path, query={"engine": engine.value}, read=as_bytes, repeatable=True)


def list_power_trees(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[StoredTree]]:
    """Read power trees, by name."""
    return listing("/v1/power/trees", StoredTree, limit=limit, cursor=cursor)


def get_power_tree(name: str) -> Call[Versioned[StoredTree]]:
    """Read one power tree."""
    return reading(_power_path("trees", name), as_versioned(StoredTree))


def create_power_tree(tree: PowerTree) -> Call[Versioned[StoredTree]]:
    """Store a tree under its own name; PreconditionFailedError when that is taken."""
    path = _power_path("trees", tree.name)
    return putting(path, tree, MISSING, as_versioned(StoredTree), success=HTTPStatus.CREATED)


def replace_power_tree(tree: PowerTree, *, if_match: str) -> Call[Versioned[StoredTree]]:
    """Store a new version of a tree; budgets in force must still fit."""
    return putting(_power_path("trees", tree.name), tree, if_matching(if_match), as_versioned(StoredTree))


def delete_power_tree(name: str, *, if_match: str) -> Call[None]:
    """Delete a tree on which no budget is in force."""
    return deleting(_power_path("trees", name), if_matching(if_match))


def list_power_budgets(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[StoredBudget]]:
    """Read the newest budget of each domain, expired ones included."""
    return listing("/v1/power/budgets", StoredBudget, limit=limit, cursor=cursor)


def get_power_budget(domain: str) -> Call[Versioned[StoredBudget]]:
    """Read the budget of a power domain; NotFoundError where none was set."""
    return reading(_power_path("budgets", domain), as_versioned(StoredBudget))


def create_power_budget(domain: str, budget: PowerBudget) -> Call[Versioned[StoredBudget]]:
    """Set the first budget of a domain; PreconditionFailedError when there is one."""
    path = _power_path("budgets", domain)
    return putting(path, budget, MISSING, as_versioned(StoredBudget), success=HTTPStatus.CREATED)


def replace_power_budget(domain: str, budget: PowerBudget, *, if_match: str) -> Call[Versioned[StoredBudget]]:
    """Replace a budget; after a refusal the old one stays in force."""
    return putting(_power_path("budgets", domain), budget, if_matching(if_match), as_versioned(StoredBudget))


def delete_power_budget(domain: str, *, if_match: str) -> Call[None]:
    """Withdraw a budget: the power guard of the domain falls back to its standing budget."""
    return deleting(_power_path("budgets", domain), if_matching(if_match))


def list_targets(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Target]]:
    """Read targets, by name."""
    return listing("/v1/targets", Target, limit=limit, cursor=cursor)


def get_target(name: str) -> Call[Versioned[Target]]:
    """Read one target."""
    return reading(_target_path(name), as_versioned(Target))


def create_target(name: str, spec: TargetSpec) -> Call[Versioned[Target]]:
    """Register a target; PreconditionFailedError when the name is taken."""
    return putting(_target_path(name), spec, MISSING, as_versioned(Target), success=HTTPStatus.CREATED)


def replace_target(name: str, spec: TargetSpec, *, if_match: str) -> Call[Versioned[Target]]:
    """Replace the specification of a target: its plan, its mode, its limits."""
    return putting(_target_path(name), spec, if_matching(if_match), as_versioned(Target))


def preview_target(name: str, spec: TargetSpec, *, if_match: str | None = None) -> Call[Versioned[TargetPreview]]:
    """Check the write of a target (`if_match`: of its replacement); returns what it would store, and stores nothing."""
    condition = MISSING if if_match is None else if_matching(if_match)
    call: Call[Any] = putting(_target_path(name), spec, condition, as_versioned(TargetPreview))
    return replace(call, query={"dry_run": "true"}, repeatable=True)


def delete_target(name: str, *, if_match: str) -> Call[None]:
    """Delete a target; its application does not change."""
    return deleting(_target_path(name), if_matching(if_match))


def get_target_status(name: str) -> Call[TargetStatus]:
    """Read the last report on a target; NotFoundError before the first."""
    return reading(f"{_target_path(name)}/status", as_type(TargetStatus))


def get_wanted_replicas(name: str) -> Call[WantedReplicas]:
    """Read the counts that an external autoscaler should run; NotFoundError where the target publishes none."""
    return reading(f"{_target_path(name)}/wanted", as_type(WantedReplicas))


def report_target_status(name: str, status: TargetStatus, *, held: LeaseTerm | None = None) -> Call[None]:
    """Replace the report on a target; ConflictError when the lease of the controller has another term than `held`."""
    path = f"{_target_path(name)}/status"
    call = putting(path, status, under_lease(held), as_nothing, success=HTTPStatus.NO_CONTENT)
    return replace(call, repeatable=True)


def list_target_statuses(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[ReportedStatus]]:
    """Read the last reports on all targets, by name of the target."""
    return listing("/v1/target-statuses", ReportedStatus, limit=limit, cursor=cursor)


def approve_target(name: str, request: ApprovalRequest) -> Call[Approval]:
    """Approve the change set with this digest; ConflictError when another change set is ready."""
    return posting(f"{_target_path(name)}/approval", request, Approval)


def list_leases(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Lease]]:
    """Read leases, by name."""
    return listing("/v1/leases", Lease, limit=limit, cursor=cursor)


def get_lease(name: str) -> Call[Versioned[Lease]]:
    """Read one lease, with the ETag for taking it."""
    return reading(path_of("/v1/leases/{name}", name=name), as_versioned(Lease))


def create_lease(name: str, claim: LeaseClaim) -> Call[Versioned[Lease]]:
    """Take a lease that had no holder before."""
    path = path_of("/v1/leases/{name}", name=name)
    return putting(path, claim, MISSING, as_versioned(Lease), success=HTTPStatus.CREATED)


def replace_lease(name: str, claim: LeaseClaim, *, if_match: str) -> Call[Versioned[Lease]]:
    """Take, renew or release the lease of this ETag."""
    path = path_of("/v1/leases/{name}", name=name)
    return putting(path, claim, if_matching(if_match), as_versioned(Lease))


def get_freeze() -> Call[Versioned[Freeze]]:
    """Read the global freeze."""
    return reading("/v1/freeze", as_versioned(Freeze))


def replace_freeze(freeze: Freeze, *, if_match: str) -> Call[Versioned[Freeze]]:
    """Set or lift the global freeze."""
    return putting("/v1/freeze", freeze, if_matching(if_match), as_versioned(Freeze))


def validate_plan(request: PlanRequest) -> Call[PlanCheck]:
    """Check a request without planning it; InvalidRequestError names what is wrong."""
    return posting("/v1/plans/validate", request, PlanCheck)


def list_audit(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    since: datetime | None = None,
    before: datetime | None = None,
    actor: str | None = None,
    action: str | None = None,
    subject: str | None = None,
) -> Call[Page[AuditEntry]]:
    """Read the audit trail, newest first: all entries, or those of a time, an actor, an action or a subject."""
    call = listing("/v1/audit", AuditEntry, limit=limit, cursor=cursor)
    moments = {"from": since, "to": before}
    chosen = {name: moment.isoformat() for name, moment in moments.items() if moment is not None}
    names = {"actor": actor, "action": action, "subject": subject}
    chosen |= {name: value for name, value in names.items() if value is not None}
    return replace(call, query={**call.query, **chosen})


def export_audit(*, from_seq: int, to_seq: int) -> Call[bytes]:
    """Read entries as they were written, oldest first, one JSON object a line."""
    return Call(
        method="GET",
        path="/v1/audit",
        query={"from_seq": str(from_seq), "to_seq": str(to_seq)},
        headers={"Accept": NDJSON},
        read=as_bytes,
        repeatable=True,
    )


def check_audit(*, full: bool = False, anchor: str | None = None) -> Call[AuditCheck]:
    """Verify the audit chain after the newest checkpoint, after an anchor (`SEQ:HASH`), or whole."""
    call = reading("/v1/audit/check", as_type(AuditCheck))
    query = {**({"full": "true"} if full else {}), **({"anchor": anchor} if anchor is not None else {})}
    return replace(call, query=query, work_s=CHECKING_S)


def list_audit_checkpoints(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[AuditCheckpoint]]:
    """Read the checkpoints of the audit, newest first."""
    return listing("/v1/audit/checkpoints", AuditCheckpoint, limit=limit, cursor=cursor)


def create_audit_checkpoint() -> Call[AuditCheckpoint]:
    """Verify the chain after the newest checkpoint, and make the last entry the next one."""
    return posting("/v1/audit/checkpoints", None, AuditCheckpoint, success=HTTPStatus.CREATED, work_s=CHECKING_S)


def _document_path(document_type: DocumentType[Any]) -> str:
    return f"/v1/{document_type.kind.value}"


def _power_path(kind: str, name: str) -> str:
    return path_of("/v1/power/{kind}/{name}", kind=kind, name=name)


def _target_path(name: str) -> str:
    return path_of("/v1/targets/{name}", name=name)
