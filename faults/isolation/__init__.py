"""Verdicts in; which nodes take no work, and which are probed, out.  docs/faults/isolation.md"""

from faults.isolation.inputs import Accusation, Inputs, Member, ProbeResult, Wish
from faults.isolation.outcome import Act, Decision, Outcome
from faults.isolation.policy import step
from faults.isolation.refusals import Refusal
from faults.isolation.rules import Allowance, IsolationRules, Mode
from faults.isolation.states import Breaker, IsolationState, NodeRecord, Standing

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
