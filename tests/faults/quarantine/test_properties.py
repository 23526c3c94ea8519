"""Invariants under any sequence of suspicions, probes, operator actions and modes."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from faults.diagnosis import SILENCE, FaultClass, Scope
from faults.quarantine import (
    OUT_OF_SERVICE,
    DecisionKind,
    DisruptionBudget,
    Inputs,
    Member,
    OperatorAction,
    Outcome,
    PolicyMode,
    ProbeResult,
    QuarantineRules,
    Suspicion,
    step,
)
from tests.faults.quarantine.fleets import Fleet, suspect

FLEET = {f"n{at}": Member(pool="ab"[at % 2], domains=(f"rack{at // 4}", f"feed{at // 8}")) for at in range(16)}
NAMES = st.sampled_from(sorted(FLEET))
RULES = QuarantineRules(
    mode=PolicyMode.APPLY,
    pool=DisruptionBudget(share=0.3, count=2),
    domain=DisruptionBudget(share=0.5, count=2),
    rate_count=3,
    rate_window_s=50.0,
    breaker_share=0.3,
    breaker_window_s=20.0,
    breaker_hold_s=30.0,
    confirm_s=5.0,
    cooldown_s=20.0,
    max_cooldown_s=100.0,
    probation_s=60.0,
    strike_window_s=500.0,
    without_spare=True,
)
suspicions = st.builds(
    suspect,
    NAMES,
    fault=st.sampled_from(FaultClass),
    scope=st.sampled_from(Scope),
    isolate=st.booleans(),
    confidence=st.sampled_from([0.5, 0.95]),
    evidence=st.sampled_from([(), (SILENCE,), ("backoff",), ("backoff", SILENCE)]),
)


def unjustified(suspicion: Suspicion) -> bool:
    diagnosis = suspicion.diagnosis
    evidence = any(kind != SILENCE for kind in diagnosis.evidence)
    return not (diagnosis.isolate and evidence and diagnosis.scope in (Scope.NODE, Scope.RANK))


class AnyFleet(RuleBasedStateMachine):
    """A fleet with arbitrary suspicions."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(rules=RULES, members=FLEET, spares=0)
        self.outcome = Outcome(frozenset(), frozenset(), ())
        self.quarantined_s: list[float] = []

    def _step(self, *given: Suspicion, after_s: float = 1.0, probed: dict[str, bool] | None = None) -> None:
        before, was_open = self.fleet.state.out_of_service(), self.fleet.state.breaker.open
        self.outcome = self.fleet.step(*given, after_s=after_s, probed=probed)
        # A node can return and be quarantined again in one step.
        back = {one.node for one in self.outcome.decisions if one.kind is DecisionKind.RELEASE}
        gone = {
            one.node for one in self.outcome.decisions if one.kind is DecisionKind.QUARANTINE and one.node is not None
        }
        assert gone - back == self.fleet.state.out_of_service() - before
        by_node = {node: [one for one in given if one.node == node] for node in gone}
        assert all(any(not unjustified(one) for one in found) for found in by_node.values())
        assert not (gone and self.fleet.state.breaker.open)
        self.quarantined_s += [self.fleet.now_s] * len(gone)
        self._again(*given, probed=probed)
        if was_open and not self.fleet.state.breaker.open:
            assert any(one.kind is DecisionKind.CLOSE_BREAKER for one in self.outcome.decisions)

    def _again(self, *given: Suspicion, probed: dict[str, bool] | None) -> None:
        """Equal inputs again: no decision and no change."""
        results = {node: ProbeResult(self.fleet.now_s, passed) for node, passed in (probed or {}).items()}
        inputs = Inputs(now_s=self.fleet.now_s, members=FLEET, suspicions=given, probe_results=results)
        state, outcome = step(self.fleet.state, inputs, self.fleet.rules)
        assert outcome.decisions == ()
        assert state == self.fleet.state
        assert (outcome.out_of_service, outcome.probe) == (self.outcome.out_of_service, self.outcome.probe)

    @rule(given=st.lists(suspicions, max_size=6), after_s=st.floats(0.1, 40.0))
    def suspect_nodes(self, given: list[Suspicion], after_s: float) -> None:
        self._step(*given, after_s=after_s)

    @rule(node=NAMES, passed=st.booleans())
    def probe(self, node: str, *, passed: bool) -> None:
        self._step(probed={node: passed})

    @rule(after_s=st.floats(10.0, 1000.0))
    def wait(self, after_s: float) -> None:
        self._step(after_s=after_s)

    @rule(node=NAMES)
    def release(self, node: str) -> None:
        """An operator can always release a node."""
        self.outcome = self.fleet.step(actions={node: OperatorAction.RELEASE})
        assert node not in self.outcome.out_of_service

    @rule(mode=st.sampled_from(PolicyMode))
    def change_mode(self, mode: PolicyMode) -> None:
        self.fleet.rules = RULES.model_copy(update={"mode": mode})

    @invariant()
    def no_group_exceeds_its_budget(self) -> None:
        out = self.fleet.state.out_of_service()
        pools = Counter(FLEET[node].pool for node in out)
        domains = Counter(domain for node in out for domain in FLEET[node].domains)
        assert all(count <= RULES.pool.of(8) for count in pools.values())
        assert all(count <= RULES.domain.of(4 if "rack" in name else 8) for name, count in domains.items())

    @invariant()
    def the_rate_holds(self) -> None:
        for at_s in self.quarantined_s:
            within = [one for one in self.quarantined_s if at_s - RULES.rate_window_s < one <= at_s]
            assert len(within) <= RULES.rate_count

    @invariant()
    def dry_runs_request_nothing(self) -> None:
        nodes = self.fleet.state.nodes
        assert self.outcome.probe <= self.outcome.out_of_service
        assert self.outcome.out_of_service == {
            name for name, record in nodes.items() if record.state in OUT_OF_SERVICE and not record.dry_run
        }


TestAnyFleet = AnyFleet.TestCase
TestAnyFleet.settings = settings(stateful_step_count=40)
