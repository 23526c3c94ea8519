"""What the isolation policy makes of the verdicts: who would be out, were it allowed to act.  docs/faults/isolation.md

The machine itself (`faults.quarantine`) with its shipped rules for a verdict: confidence, a slow class confirmed for
`confirm_s`, no network verdict above the node.  What only lessens the number that go (budget, rate, breaker, spares,
strikes) is off, so that it hides no error here.  It looks whenever a plane has said something; as with the watcher, a
verdict is believed until it has not been said for `GONE_S`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from faults.diagnosis import Scope, Verdict
from faults.fabric import Fabric
from faults.quarantine import (
    Accusation,
    Act,
    Allowance,
    Inputs,
    IsolationRules,
    IsolationState,
    Member,
    Mode,
    ProbeResult,
    Standing,
    step,
)

GONE_S = 5.0
_POOL = "job"
_ANY = Allowance(share=1.0, count=1_000_000)
RULES = IsolationRules(
    mode=Mode.APPLY,
    pool=_ANY,
    domain=_ANY,
    rate_count=1_000_000,
    breaker_nodes=1_000_000,
    without_spare=True,
    strikes=1_000_000,
)
_Key = tuple[object, ...]


class _Said(NamedTuple):
    """A verdict that is believed."""

    verdict: Verdict
    since_s: float
    last_s: float


class Carrying:
    """The policy of one job's nodes.  A node that is out comes back by a probe that passes, and can go again."""

    def __init__(self, fabric: Fabric, rules: IsolationRules = RULES) -> None:
        self._fabric, self._rules = fabric, rules
        self._state = IsolationState()
        self._said: dict[_Key, _Said] = {}
        self._members: dict[str, Member] = {}

    def see(self, now_s: float, verdicts: Sequence[Verdict]) -> list[int]:
        """The nodes that go now, by what is said and what still is believed."""
        for verdict in verdicts:
            if verdict.isolate or verdict.scope is Scope.LEAF:
                key = _key(verdict)
                since_s = self._said[key].since_s if key in self._said else now_s
                self._said[key] = _Said(verdict, since_s=since_s, last_s=now_s)
        if not self._said and not any(record.accusation for record in self._state.nodes.values()):
            return []
        self._said = {key: said for key, said in self._said.items() if now_s - said.last_s <= GONE_S}
        accusations = tuple(
            Accusation(id=f"{key} since {said.since_s}", node=str(said.verdict.node), verdict=said.verdict)
            for key, said in self._said.items()
            if said.verdict.node is not None
        )
        network = frozenset(str(one.verdict.switch) for one in self._said.values() if one.verdict.scope is Scope.LEAF)
        concerned = {accusation.node for accusation in accusations} | self._state.nodes.keys()
        probing = (name for name, record in self._state.nodes.items() if record.standing is Standing.PROBING)
        inputs = Inputs(
            now_s=now_s,
            members={name: self._member(name) for name in sorted(concerned)},
            accusations=accusations,
            network=network,
            probed={name: ProbeResult(now_s, passed=True) for name in probing},
        )
        self._state, outcome = step(self._state, inputs, self._rules)
        return [int(str(one.node)) for one in outcome.decisions if one.act is Act.ISOLATE]

    def _member(self, name: str) -> Member:
        if name not in self._members:
            leaves = np.unique(self._fabric.leaf[self._fabric.node == int(name)])
            self._members[name] = Member(pool=_POOL, domains=tuple(f"leaf-{leaf}" for leaf in leaves))
        return self._members[name]


def _key(verdict: Verdict) -> _Key:
    return verdict.fault, verdict.scope, verdict.node, verdict.switch
