"""Verdicts in; which nodes take no work, and which are probed, out.  docs/faults/isolation.md"""

from faults.quarantine.guardrails import Refusal
from faults.quarantine.inputs import Accusation, Inputs, Member, ProbeResult, Wish
from faults.quarantine.outcome import Act, Decision, Outcome
from faults.quarantine.policy import step
from faults.quarantine.settings import Allowance, IsolationRules, Mode
from faults.quarantine.states import Breaker, IsolationState, NodeRecord, Standing

__all__ = [
    "Accusation",
    "Act",
    "Allowance",
    "Breaker",
    "Decision",
    "Inputs",
    "IsolationRules",
    "IsolationState",
    "Member",
    "Mode",
    "NodeRecord",
    "Outcome",
    "ProbeResult",
    "Refusal",
    "Standing",
    "Wish",
    "step",
]
