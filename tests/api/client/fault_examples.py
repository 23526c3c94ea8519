"""One call of each operation on faults, as `test_service.EXAMPLES` has of all others."""

from typing import Any

from api.client import fault_operations as faults
from api.client import operations
from api.client.calls import Call
from api.schemas.fault_paths import PathsRequest
from api.schemas.faults import DiagnosisReport, FaultSimulationRequest
from api.schemas.health_events import Delivery
from api.schemas.quarantine import Evaluation
from api.schemas.remediation import CaseSpec
from api.server.examples import bodies
from faults.quarantine import OperatorAction, QuarantineRules
from tests.testbed.fault_bundles import report

REPORT = DiagnosisReport.model_validate(report())
FAULT_SIMULATION = FaultSimulationRequest.model_validate(bodies()["create_fault_simulation"])
PATHS = PathsRequest.model_validate(bodies()["plan_fault_paths"])
EVALUATION = Evaluation.model_validate(bodies()["evaluate_quarantine"])
CASE = CaseSpec.model_validate(bodies()["put_remediation_case"])
DELIVERY = Delivery.model_validate(bodies()["put_health_event"])
DELIVERY_ID = "slurm-0123456789abcdef"

FAULT_EXAMPLES: dict[str, list[Call[Any]]] = {
    "report_diagnosis": [faults.report_diagnosis(REPORT)],
    "list_diagnoses": [faults.list_diagnoses(), faults.list_diagnoses(active=True)],
    "get_diagnosis": [faults.get_diagnosis("v")],
    "set_diagnosis_expiry": [faults.set_diagnosis_expiry("v", expires_in_s=1.0)],
    "get_diagnosis_bundle": [faults.get_diagnosis_bundle("v")],
    "replay_diagnosis_bundle": [faults.replay_diagnosis_bundle("v")],
    "create_fault_simulation": [operations.create_fault_simulation(FAULT_SIMULATION)],
    "list_fault_simulations": [operations.list_fault_simulations()],
    "get_fault_simulation": [operations.get_fault_simulation("s")],
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
    "list_health_events": [faults.list_health_events()],
    "get_health_event": [faults.get_health_event(DELIVERY_ID)],
    "create_health_event": [faults.create_health_event(DELIVERY_ID, DELIVERY)],
    "update_health_event": [faults.update_health_event(DELIVERY_ID, DELIVERY, if_match='"1-a"')],
}
