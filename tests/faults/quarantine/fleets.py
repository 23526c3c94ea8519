"""A small fleet, accusations against it, and a way to lead the policy through time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from faults.diagnosis import FaultClass, Scope, Verdict
from faults.quarantine import (
    Accusation,
    Act,
    Inputs,
    IsolationRules,
    IsolationState,
    Member,
    Mode,
    Outcome,
    ProbeResult,
    Standing,
    Wish,
    step,
)

FLEET = {f"n{at:02}": Member(pool="train", domains=(f"rack{at // 10}",)) for at in range(40)}
APPLY = IsolationRules(mode=Mode.APPLY)


def verdict(**changed: Any) -> Verdict:
    """A hang of a node with good evidence, unless said otherwise."""
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
    return Verdict.model_validate({**sound, **changed})


def accused(node: str, *, again: int = 0, **changed: Any) -> Accusation:
    """`again`: another verdict against the same node, later."""
    return Accusation(id=f"bundle-{node}" + "'" * again, node=node, verdict=verdict(**changed))


@dataclass
class Led:
    """A policy in a fleet whose state is kept from step to step."""

    rules: IsolationRules = APPLY
    members: Mapping[str, Member] = field(default_factory=lambda: FLEET)
    spares: int = 100
    now_s: float = 1000.0
    state: IsolationState = field(default_factory=IsolationState)

    def step(
        self,
        *accusations: Accusation,
        after_s: float = 2.0,
        network: frozenset[str] = frozenset(),
        probed: Mapping[str, bool] | None = None,
        results: Mapping[str, ProbeResult] | None = None,
        wishes: Mapping[str, Wish] | None = None,
        close_breaker: bool = False,
    ) -> Outcome:
        self.now_s += after_s
        inputs = Inputs(
            now_s=self.now_s,
            members=self.members,
            accusations=accusations,
            network=network,
            spares={"train": self.spares},
            probed=results or {node: ProbeResult(self.now_s, passed) for node, passed in (probed or {}).items()},
            wishes=wishes or {},
            close_breaker=close_breaker,
        )
        self.state, outcome = step(self.state, inputs, self.rules)
        return outcome

    def standing(self, node: str) -> Standing:
        record = self.state.nodes.get(node)
        return Standing.SERVING if record is None else record.standing


def acts(outcome: Outcome) -> list[tuple[Act, str | None]]:
    return [(decision.act, decision.node) for decision in outcome.decisions]


def reasons(outcome: Outcome) -> str:
    return "; ".join(decision.reason for decision in outcome.decisions)
