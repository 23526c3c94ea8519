"""The quarantine policy: decides from active diagnoses which nodes take no work, which are probed, and which return.

`step` is the entry: a pure function from the stored state and the inputs of one evaluation to the next state and the
desired state of the fleet.  The API, the remediation controller and the simulator call it.
docs/explanation/faults/quarantine.md
"""

from faults.quarantine.guardrails import Guardrail
from faults.quarantine.inputs import Inputs, Member, OperatorAction, ProbeResult, Suspicion
from faults.quarantine.life_cycle import OUT_OF_SERVICE, Event, NodeState
from faults.quarantine.policy import step
from faults.quarantine.settings import DisruptionBudget, PolicyMode, QuarantineRules
from faults.quarantine.states import CircuitBreaker, Decision, DecisionKind, NodeRecord, Outcome, QuarantineState

__all__ = [
    "OUT_OF_SERVICE",
    "CircuitBreaker",
    "Decision",
    "DecisionKind",
    "DisruptionBudget",
    "Event",
    "Guardrail",
    "Inputs",
    "Member",
    "NodeRecord",
    "NodeState",
    "OperatorAction",
    "Outcome",
    "PolicyMode",
    "ProbeResult",
    "QuarantineRules",
    "QuarantineState",
    "Suspicion",
    "step",
]
