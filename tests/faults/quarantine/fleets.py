"""A small fleet, suspicions of its nodes, and a policy that is stepped through time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.quarantine import (
    DecisionKind,
    Inputs,
    Member,
    NodeState,
    OperatorAction,
    Outcome,
    PolicyMode,
    ProbeResult,
    QuarantineRules,
    QuarantineState,
    Suspicion,
    step,
)

FLEET = {f"n{at:02}": Member(pool="train", domains=(f"rack{at // 10}",)) for at in range(40)}
APPLY = QuarantineRules(mode=PolicyMode.APPLY)


def diagnosis(**changed: Any) -> Diagnosis:
    """A hang of a node with good evidence, with these fields changed."""
    sound = {
        "fault": FaultClass.NONCOMM_HANG,
        "scope": Scope.NODE,
        "node": 0,
        "onset_s": 1.0,
        "detected_s": 3.0,
        "isolate": True,
        "confidence": 0.99,
        "reason": "holds unread bytes of both peers",
        "evidence": ("unread-bytes", "silence"),
    }
    return Diagnosis.model_validate({**sound, **changed})


def suspect(node: str, *, again: int = 0, **changed: Any) -> Suspicion:
    """`again`: another diagnosis of the same node, later."""
    return Suspicion(id=f"bundle-{node}" + "'" * again, node=node, diagnosis=diagnosis(**changed))


@dataclass
class Fleet:
    """A policy whose state is kept from step to step."""

    rules: QuarantineRules = APPLY
    members: Mapping[str, Member] = field(default_factory=lambda: FLEET)
    spares: int = 100
    now_s: float = 1000.0
    state: QuarantineState = field(default_factory=QuarantineState)

    def step(
        self,
        *suspicions: Suspicion,
        after_s: float = 2.0,
        network: frozenset[str] = frozenset(),
        probed: Mapping[str, bool] | None = None,
        results: Mapping[str, ProbeResult] | None = None,
        actions: Mapping[str, OperatorAction] | None = None,
        reset_breaker: bool = False,
    ) -> Outcome:
        self.now_s += after_s
        inputs = Inputs(
            now_s=self.now_s,
            members=self.members,
            suspicions=suspicions,
            network=network,
            spares={"train": self.spares},
            probe_results=results or {node: ProbeResult(self.now_s, passed) for node, passed in (probed or {}).items()},
            operator_actions=actions or {},
            reset_breaker=reset_breaker,
        )
        self.state, outcome = step(self.state, inputs, self.rules)
        return outcome

    def state_of(self, node: str) -> NodeState:
        record = self.state.nodes.get(node)
        return NodeState.SERVING if record is None else record.state


def decisions(outcome: Outcome) -> list[tuple[DecisionKind, str | None]]:
    return [(decision.kind, decision.node) for decision in outcome.decisions]


def reasons(outcome: Outcome) -> str:
    return "; ".join(decision.reason for decision in outcome.decisions)
