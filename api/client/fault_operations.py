"""Describes operations on diagnoses, path plans, quarantine and remediation, as `api.client.operations` does."""

from dataclasses import replace
from http import HTTPStatus

from api.client.calls import (
    MISSING,
    Call,
    Versioned,
    as_bytes,
    as_type,
    as_versioned,
    creating,
    if_matching,
    listing,
    once,
    path_of,
    posting,
    putting,
    reading,
    under_lease,
)
from api.schemas.faults import (
    BundleReplay,
    DiagnosisRecord,
    DiagnosisReport,
    DiagnosisSummary,
    ExpiryChange,
)
from api.schemas.health_events import Delivery, StoredDelivery
from api.schemas.leases import LeaseTerm
from api.schemas.nodes import FleetNode
from api.schemas.pages import Page
from api.schemas.quarantine import (
    ActionRequest,
    BreakerView,
    Evaluation,
    EvaluationResult,
    NodeView,
    QuarantineView,
    StoredRules,
)
from api.schemas.remediation import CaseSpec, RemediationCase
from faults.quarantine import NodeState, OperatorAction, QuarantineRules

CHECKING_S = 30.0  # a bundle
REPLAYING_S = 120.0


def report_diagnosis(report: DiagnosisReport, *, idempotency_key: str | None = None) -> Call[DiagnosisRecord]:
    """Report a diagnosis, with its bundle if there is one."""
    return creating("/v1/faults/diagnoses", report, idempotency_key, DiagnosisRecord, work_s=CHECKING_S)


def list_diagnoses(
    *, active: bool | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[DiagnosisSummary]]:
    """Read diagnoses, newest first."""
    call: Call[Page[DiagnosisSummary]] = listing("/v1/faults/diagnoses", DiagnosisSummary, limit=limit, cursor=cursor)
    return call if active is None else replace(call, query={**call.query, "active": str(active).lower()})


def get_diagnosis(diagnosis_id: str) -> Call[DiagnosisRecord]:
    """Read one diagnosis without its bundle."""
    return reading(_diagnosis_path(diagnosis_id), as_type(DiagnosisRecord))


def set_diagnosis_expiry(diagnosis_id: str, *, expires_in_s: float) -> Call[DiagnosisRecord]:
    """Let a diagnosis expire this many seconds from now; 0 withdraws it."""
    path, change = f"{_diagnosis_path(diagnosis_id)}/expiry", ExpiryChange(expires_in_s=expires_in_s)
    return replace(putting(path, change, {}, as_type(DiagnosisRecord)), repeatable=True)


def get_diagnosis_bundle(diagnosis_id: str) -> Call[bytes]:
    """Read the bundle of a diagnosis as text; ConflictError if it was reported without one."""
    return Call(method="GET", path=f"{_diagnosis_path(diagnosis_id)}/bundle", read=as_bytes, repeatable=True)


def replay_diagnosis_bundle(diagnosis_id: str) -> Call[BundleReplay]:
    """Return the diagnoses that the service's version gives for the same observations."""
    return posting(f"{_diagnosis_path(diagnosis_id)}/replay", None, BundleReplay, work_s=REPLAYING_S)


def list_nodes(
    *,
    state: NodeState | None = None,
    gpu: str | None = None,
    has_diagnosis: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[FleetNode]]:
    """Read the nodes of the fleet, by name: state, diagnoses, case, place and power of each."""
    call: Call[Page[FleetNode]] = listing("/v1/nodes", FleetNode, limit=limit, cursor=cursor)
    wanted = {
        "state": state.value if state is not None else None,
        "gpu": gpu,
        "has_diagnosis": str(has_diagnosis).lower() if has_diagnosis is not None else None,
    }
    return replace(call, query={**call.query, **{name: value for name, value in wanted.items() if value is not None}})


def get_node(name: str) -> Call[FleetNode]:
    """Read one node of the fleet."""
    return reading(path_of("/v1/nodes/{name}", name=name), as_type(FleetNode))


def get_quarantine_rules() -> Call[Versioned[StoredRules]]:
    """Read the rules of the quarantine policy."""
    return reading("/v1/faults/quarantine/rules", as_versioned(StoredRules))


def replace_quarantine_rules(rules: QuarantineRules, *, if_match: str) -> Call[Versioned[StoredRules]]:
    """Replace the rules."""
    return putting("/v1/faults/quarantine/rules", rules, if_matching(if_match), as_versioned(StoredRules))


def get_quarantine() -> Call[QuarantineView]:
    """Read the nodes with a history, the circuit breaker, the desired state and the newest decisions."""
    return reading("/v1/faults/quarantine", as_type(QuarantineView))


def evaluate_quarantine(
    evaluation: Evaluation, *, idempotency_key: str | None = None, held: LeaseTerm | None = None
) -> Call[EvaluationResult]:
    """Run one step of the policy on the observed fleet; returns the desired state."""
    call: Call[EvaluationResult] = posting("/v1/faults/quarantine/evaluations", evaluation, EvaluationResult)
    return replace(call, headers={**call.headers, **once(idempotency_key), **under_lease(held)})


def request_node_action(node: str, action: OperatorAction) -> Call[NodeView]:
    """Request an action on a node; the next evaluation applies it."""
    path = path_of("/v1/faults/quarantine/nodes/{node}/actions", node=node)
    return posting(path, ActionRequest(action=action), NodeView, success=HTTPStatus.ACCEPTED)


def reset_quarantine_breaker() -> Call[BreakerView]:
    """Reset the circuit breaker at the next evaluation."""
    return posting("/v1/faults/quarantine/breaker/reset", None, BreakerView, success=HTTPStatus.ACCEPTED)


def list_remediation_cases(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[RemediationCase]]:
    """Read remediation cases, by id."""
    return listing("/v1/faults/cases", RemediationCase, limit=limit, cursor=cursor)


def get_remediation_case(case_id: str) -> Call[Versioned[RemediationCase]]:
    """Read one case, with the ETag for its next update."""
    return reading(_case_path(case_id), as_versioned(RemediationCase))


def open_remediation_case(
    case_id: str, case: CaseSpec, *, held: LeaseTerm | None = None
) -> Call[Versioned[RemediationCase]]:
    """Open a case; PreconditionFailedError if it exists."""
    headers = {**MISSING, **under_lease(held)}
    return putting(_case_path(case_id), case, headers, as_versioned(RemediationCase), success=HTTPStatus.CREATED)


def update_remediation_case(
    case_id: str, case: CaseSpec, *, if_match: str, held: LeaseTerm | None = None
) -> Call[Versioned[RemediationCase]]:
    """Store the next state of a case."""
    headers = {**if_matching(if_match), **under_lease(held)}
    return putting(_case_path(case_id), case, headers, as_versioned(RemediationCase))


def list_health_events(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[StoredDelivery]]:
    """Read the newest health event of each node and switch, per outlet."""
    return listing("/v1/faults/health-events", StoredDelivery, limit=limit, cursor=cursor)


def get_health_event(event_id: str) -> Call[Versioned[StoredDelivery]]:
    """Read the newest health event of one node or switch for one outlet, with the ETag for its next update."""
    return reading(_event_path(event_id), as_versioned(StoredDelivery))


def create_health_event(
    event_id: str, delivery: Delivery, *, held: LeaseTerm | None = None
) -> Call[Versioned[StoredDelivery]]:
    """Store the first event; PreconditionFailedError if there is one."""
    headers = {**MISSING, **under_lease(held)}
    return putting(_event_path(event_id), delivery, headers, as_versioned(StoredDelivery), success=HTTPStatus.CREATED)


def update_health_event(
    event_id: str, delivery: Delivery, *, if_match: str, held: LeaseTerm | None = None
) -> Call[Versioned[StoredDelivery]]:
    """Store the next event, or the next state of its delivery."""
    headers = {**if_matching(if_match), **under_lease(held)}
    return putting(_event_path(event_id), delivery, headers, as_versioned(StoredDelivery))


def _event_path(event_id: str) -> str:
    return path_of("/v1/faults/health-events/{event_id}", event_id=event_id)


def _case_path(case_id: str) -> str:
    return path_of("/v1/faults/cases/{case_id}", case_id=case_id)


def _diagnosis_path(diagnosis_id: str) -> str:
    return path_of("/v1/faults/diagnoses/{diagnosis_id}", diagnosis_id=diagnosis_id)
