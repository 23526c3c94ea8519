"""One call of each operation on faults, as `test_service.EXAMPLES` has of all others."""

from datetime import UTC, datetime
from typing import Any

from api.client import fault_operations as faults
from api.client import operations
from api.client.calls import Call
from api.schemas.fault_paths import PathsRequest
from api.schemas.faults import DiagnosisReport, FaultSimulationRequest
from api.schemas.quarantine import Evaluation
from api.schemas.remediation import CaseSpec, RemediationStage
from faults.quarantine import NodeState, OperatorAction, QuarantineRules
from faults.simulator.scenario import ScenarioName
from tests.testbed.fault_bundles import report
from tests.testbed.fault_paths import two_rings

REPORT = DiagnosisReport.model_validate(report())
FAULT_SIMULATION = FaultSimulationRequest(ranks=128, hours=0.02, scenario=ScenarioName.HEALTHY, seed=1)
PATHS = PathsRequest.model_validate(two_rings())
EVALUATION = Evaluation.model_validate(
    {"members": {f"gpu-{index}": {} for index in range(20)}, "spares": {"default": 1}}
)
BEGUN = datetime(2026, 11, 23, tzinfo=UTC)
CASE = CaseSpec(node="n", state=NodeState.QUARANTINED, stage=RemediationStage.DRAINING, since=BEGUN, opened_at=BEGUN)

FAULT_EXAMPLES: dict[str, list[Call[Any]]] = {
    "report_diagnosis": [faults.report_diagnosis(REPORT)],
    "list_diagnoses": [faults.list_diagnoses()],
    "get_diagnosis": [faults.get_diagnosis("v")],
    "set_diagnosis_expiry": [faults.set_diagnosis_expiry("v", expires_in_s=1.0)],
    "get_diagnosis_bundle": [faults.get_diagnosis_bundle("v")],
    "replay_diagnosis_bundle": [faults.replay_diagnosis_bundle("v")],
    "create_fault_simulation": [operations.create_fault_simulation(FAULT_SIMULATION)],
    "list_fault_simulations": [operations.list_fault_simulations()],
    "get_fault_simulation": [operations.get_fault_simulation("s")],
    "plan_fault_paths": [faults.plan_fault_paths(PATHS)],
    "list_nodes": [faults.list_nodes()],
    "get_node": [faults.get_node("n")],
    "get_quarantine_rules": [faults.get_quarantine_rules()],
    "replace_quarantine_rules": [faults.replace_quarantine_rules(QuarantineRules(), if_match='"1-a"')],
    "get_quarantine": [faults.get_quarantine()],
    "evaluate_quarantine": [faults.evaluate_quarantine(EVALUATION)],
    "request_node_action": [faults.request_node_action("n", OperatorAction.RELEASE)],
    "reset_quarantine_breaker": [faults.reset_quarantine_breaker()],
    "list_remediation_cases": [faults.list_remediation_cases()],
    "get_remediation_case": [faults.get_remediation_case("c")],
    "open_remediation_case": [faults.open_remediation_case("c", CASE)],
    "update_remediation_case": [faults.update_remediation_case("c", CASE, if_match='"1-a"')],
}
