"""Applies the quarantine policy to the diagnoses of a simulated job: the nodes that it would take out of service.

The policy (`faults.quarantine`) runs with its shipped confidence, confirmation and network guardrails.  Guardrails that
only reduce the number of quarantines (budget, rate, breaker, spares, strikes) are off, so that they hide no error.  A
diagnosis is active until no detector has given it for `EXPIRES_S`, as in the fault monitor.
docs/explanation/faults/quarantine.md
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from faults import quarantine
from faults.diagnosis import Diagnosis, Scope
from faults.fabric import Fabric

EXPIRES_S = 5.0
_POOL = "job"
_ANY = quarantine.DisruptionBudget(share=1.0, count=1_000_000)
RULES = quarantine.QuarantineRules(
    mode=quarantine.PolicyMode.APPLY,
    pool=_ANY,
    domain=_ANY,
    rate_count=1_000_000,
    breaker_nodes=1_000_000,
    without_spare=True,
    strikes=1_000_000,
)
_Key = tuple[object, ...]


class _Active(NamedTuple):
    diagnosis: Diagnosis
    since_s: float
    last_s: float


class QuarantineOutcome:
    """The policy of one job's nodes.  A quarantined node returns after its first probe, and can go again."""

    def __init__(self, fabric: Fabric, rules: quarantine.QuarantineRules = RULES) -> None:
        self._fabric, self._rules = fabric, rules
        self._state = quarantine.QuarantineState()
        self._active: dict[_Key, _Active] = {}
        self._members: dict[str, quarantine.Member] = {}

    def step(self, now_s: float, diagnoses: Sequence[Diagnosis]) -> list[int]:
        for diagnosis in diagnoses:
            if diagnosis.isolate or diagnosis.scope is Scope.LEAF:
                key = _key(diagnosis)
                since_s = self._active[key].since_s if key in self._active else now_s
                self._active[key] = _Active(diagnosis, since_s=since_s, last_s=now_s)
        if not self._active and not any(record.diagnosis_id for record in self._state.nodes.values()):
            return []
        self._active = {key: one for key, one in self._active.items() if now_s - one.last_s <= EXPIRES_S}
        suspicions = tuple(
            quarantine.Suspicion(id=f"{key} since {one.since_s}", node=str(one.diagnosis.node), diagnosis=one.diagnosis)
            for key, one in self._active.items()
            if one.diagnosis.node is not None
        )
        active = [one.diagnosis for one in self._active.values()]
        nodes = self._state.nodes
        inputs = quarantine.Inputs(
            now_s=now_s,
            members={name: self._member(name) for name in sorted({one.node for one in suspicions} | nodes.keys())},
            suspicions=suspicions,
            network=frozenset(str(diagnosis.switch) for diagnosis in active if diagnosis.scope is Scope.LEAF),
            probe_results={
                name: quarantine.ProbeResult(now_s, passed=True)
                for name, record in nodes.items()
                if record.state is quarantine.NodeState.PROBING
            },
        )
        self._state, outcome = quarantine.step(self._state, inputs, self._rules)
        return [int(str(one.node)) for one in outcome.decisions if one.kind is quarantine.DecisionKind.QUARANTINE]

    def _member(self, name: str) -> quarantine.Member:
        if name not in self._members:
            leaves = np.unique(self._fabric.leaf[self._fabric.node == int(name)])
            self._members[name] = quarantine.Member(pool=_POOL, domains=tuple(f"leaf-{leaf}" for leaf in leaves))
        return self._members[name]


def _key(diagnosis: Diagnosis) -> _Key:
    return diagnosis.fault, diagnosis.scope, diagnosis.node, diagnosis.switch
