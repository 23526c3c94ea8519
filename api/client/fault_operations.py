"""The operations on faults: verdicts and their bundles, simulations, and isolation.  As `api.client.operations`."""

from http import HTTPStatus
from uuid import uuid4

from api.client.calls import Call, Versioned, as_bytes, as_type, as_versioned, json_body, path_of
from api.client.request_builders import JSON, MISSING, creating, if_matching, listing, putting, reading
from api.schemas.fault_paths import PathsAnswer, PathsRequest
from api.schemas.faults import (
    BeliefChange,
    BundleReplay,
    FaultQuestion,
    FaultSimulationRecord,
    FaultSimulationSummary,
    VerdictRecord,
    VerdictReport,
    VerdictSummary,
)
from api.schemas.pages import Page
from api.schemas.quarantine import BreakerView, IsolationView, Look, LookOutcome, NodeView, StoredRules, WishRequest
from api.schemas.remediation import CaseSpec, HealingCase
from faults.quarantine import IsolationRules, Wish

CHECKING_S = 30.0  # a bundle
REPLAYING_S = 120.0
PLANNING_S = 120.0
SIMULATING_S = 600.0  # the most that a service takes by default, and others waiting their turn


def report_fault_verdict(report: VerdictReport, *, idempotency_key: str | None = None) -> Call[VerdictRecord]:
    """Keep a verdict, with the bundle that proves it where there is one."""
    return creating("/v1/faults/verdicts", report, idempotency_key, VerdictRecord, work_s=CHECKING_S)


def list_fault_verdicts(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[VerdictSummary]]:
    """Verdicts, newest first."""
    return listing("/v1/faults/verdicts", VerdictSummary, limit=limit, cursor=cursor)


def get_fault_verdict(verdict_id: str) -> Call[VerdictRecord]:
    """One verdict without its bundle."""
    return reading(_verdict_path(verdict_id), as_type(VerdictRecord))


def believe_fault_verdict(verdict_id: str, *, believed_for_s: float) -> Call[VerdictRecord]:
    """Believe a verdict for so long from now; 0: no longer."""
    return Call(
        method="PUT",
        path=f"{_verdict_path(verdict_id)}/belief",
        headers=JSON,
        body=json_body(BeliefChange(believed_for_s=believed_for_s)),
        read=as_type(VerdictRecord),
        repeatable=True,
    )


def get_fault_bundle(verdict_id: str) -> Call[bytes]:
    """What a verdict rests on, as text; ConflictError when it was reported without."""
    return Call(method="GET", path=f"{_verdict_path(verdict_id)}/bundle", read=as_bytes, repeatable=True)


def replay_fault_bundle(verdict_id: str) -> Call[BundleReplay]:
    """What the service's version of the program says of the same observations."""
    path = f"{_verdict_path(verdict_id)}/replay"
    return Call(method="POST", path=path, read=as_type(BundleReplay), repeatable=True, work_s=REPLAYING_S)


def create_fault_simulation(
    question: FaultQuestion, *, idempotency_key: str | None = None
) -> Call[FaultSimulationRecord]:
    """Simulate a cluster with known faults and store how the detectors did."""
    return creating("/v1/faults/simulations", question, idempotency_key, FaultSimulationRecord, work_s=SIMULATING_S)


def list_fault_simulations(
    *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[FaultSimulationSummary]]:
    """Simulations of faults, newest first."""
    return listing("/v1/faults/simulations", FaultSimulationSummary, limit=limit, cursor=cursor)


def get_fault_simulation(simulation_id: str) -> Call[FaultSimulationRecord]:
    """One simulation of faults with its question."""
    path = path_of("/v1/faults/simulations/{simulation_id}", simulation_id=simulation_id)
    return reading(path, as_type(FaultSimulationRecord))


def plan_fault_paths(request: PathsRequest) -> Call[PathsAnswer]:
    """Which cable each connection of a job should take, and how loaded the fabric then is."""
    return Call(
        method="POST",
        path="/v1/faults/paths",
        headers=JSON,
        body=json_body(request),
        read=as_type(PathsAnswer),
        repeatable=True,
        work_s=PLANNING_S,
    )


def get_isolation_rules() -> Call[Versioned[StoredRules]]:
    """By which rules nodes are taken out."""
    return reading("/v1/faults/isolation/rules", as_versioned(StoredRules))


def replace_isolation_rules(rules: IsolationRules, *, if_match: str) -> Call[Versioned[StoredRules]]:
    """Set other rules."""
    return putting("/v1/faults/isolation/rules", rules, if_matching(if_match), as_versioned(StoredRules))


def get_isolation() -> Call[IsolationView]:
    """Where every node stands that has a story, the breaker, and what is wanted."""
    return reading("/v1/faults/isolation", as_type(IsolationView))


def look_at_fleet(look: Look, *, idempotency_key: str | None = None) -> Call[LookOutcome]:
    """Say what is seen of the fleet; the answer is what shall be so."""
    return Call(
        method="POST",
        path="/v1/faults/isolation/looks",
        headers={**JSON, "Idempotency-Key": idempotency_key if idempotency_key is not None else uuid4().hex},
        body=json_body(look),
        read=as_type(LookOutcome),
        repeatable=True,
    )


def wish_for_node(node: str, wish: Wish) -> Call[NodeView]:
    """Say what is wanted of a node; the next look does it."""
    return Call(
        method="POST",
        path=path_of("/v1/faults/isolation/nodes/{node}", node=node),
        headers=JSON,
        body=json_body(WishRequest(wish=wish)),
        expects=frozenset({HTTPStatus.ACCEPTED}),
        read=as_type(NodeView),
        repeatable=True,
    )


def close_isolation_breaker() -> Call[BreakerView]:
    """Let the next look close the breaker."""
    return Call(
        method="POST",
        path="/v1/faults/isolation/breaker/close",
        expects=frozenset({HTTPStatus.ACCEPTED}),
        read=as_type(BreakerView),
        repeatable=True,
    )


def list_healing_cases(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[HealingCase]]:
    """Healing cases, by id."""
    return listing("/v1/faults/cases", HealingCase, limit=limit, cursor=cursor)


def get_healing_case(case_id: str) -> Call[Versioned[HealingCase]]:
    """One case, and the ETag under which it may be carried on."""
    return reading(_case_path(case_id), as_versioned(HealingCase))


def open_healing_case(case_id: str, case: CaseSpec) -> Call[Versioned[HealingCase]]:
    """Open a case; PreconditionFailedError when somebody has."""
    return putting(_case_path(case_id), case, MISSING, as_versioned(HealingCase), answer=HTTPStatus.CREATED)


def carry_healing_case_on(case_id: str, case: CaseSpec, *, if_match: str) -> Call[Versioned[HealingCase]]:
    """Write down how far a case is now."""
    return putting(_case_path(case_id), case, if_matching(if_match), as_versioned(HealingCase))


def _case_path(case_id: str) -> str:
    return path_of("/v1/faults/cases/{case_id}", case_id=case_id)


def _verdict_path(verdict_id: str) -> str:
    return path_of("/v1/faults/verdicts/{verdict_id}", verdict_id=verdict_id)
