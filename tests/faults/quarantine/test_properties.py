"""What holds under any sequence of accusations, probes, wishes and modes."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from faults.diagnosis import SILENCE, FaultClass, Scope
from faults.quarantine import (
    Accusation,
    Act,
    Allowance,
    Inputs,
    IsolationRules,
    Member,
    Mode,
    Outcome,
    ProbeResult,
    Wish,
    step,
)
from faults.quarantine.states import OUT
from tests.faults.quarantine.fleets import Led, accused

FLEET = {f"n{at}": Member(pool="ab"[at % 2], domains=(f"rack{at // 4}", f"feed{at // 8}")) for at in range(16)}
NAMES = st.sampled_from(sorted(FLEET))
RULES = IsolationRules(
    mode=Mode.APPLY,
    pool=Allowance(share=0.3, count=2),
    domain=Allowance(share=0.5, count=2),
    rate_count=3,
    rate_window_s=50.0,
    breaker_share=0.3,
    breaker_window_s=20.0,
    breaker_hold_s=30.0,
    confirm_s=5.0,
    probation_s=20.0,
    longest_wait_s=100.0,
    watch_s=60.0,
    strike_window_s=500.0,
    without_spare=True,
)
accusations = st.builds(
    accused,
    NAMES,
    fault=st.sampled_from(FaultClass),
    scope=st.sampled_from(Scope),
    isolate=st.booleans(),
    confidence=st.sampled_from([0.5, 0.95]),
    evidence=st.sampled_from([(), (SILENCE,), ("backoff",), ("backoff", SILENCE)]),
)


def unjustified(accusation: Accusation) -> bool:
    verdict = accusation.verdict
    heard = any(kind != SILENCE for kind in verdict.evidence)
    return not (verdict.isolate and heard and verdict.scope in (Scope.NODE, Scope.RANK))


class AnyFleet(RuleBasedStateMachine):
    """A fleet in which anybody is accused of anything."""

    def __init__(self) -> None:
        super().__init__()
        self.led = Led(rules=RULES, members=FLEET, spares=0)
        self.outcome = Outcome(frozenset(), frozenset(), ())
        self.went_s: list[float] = []

    def _step(self, *given: Accusation, after_s: float = 1.0, probed: dict[str, bool] | None = None) -> None:
        before, was_open = self.led.state.out(), self.led.state.breaker.open
        self.outcome = self.led.step(*given, after_s=after_s, probed=probed)
        # A node may come back and go again in one step.
        back = {one.node for one in self.outcome.decisions if one.act is Act.RELEASE}
        gone = {one.node for one in self.outcome.decisions if one.act is Act.ISOLATE and one.node is not None}
        assert gone - back == self.led.state.out() - before
        by_node = {node: [one for one in given if one.node == node] for node in gone}
        assert all(any(not unjustified(one) for one in found) for found in by_node.values())
        assert not (gone and self.led.state.breaker.open)
        self.went_s += [self.led.now_s] * len(gone)
        self._again(*given, probed=probed)
        if was_open and not self.led.state.breaker.open:
            assert any(one.act is Act.CLOSE_BREAKER for one in self.outcome.decisions)

    def _again(self, *given: Accusation, probed: dict[str, bool] | None) -> None:
        """The same inputs once more: nothing is decided and nothing changes."""
        results = {node: ProbeResult(self.led.now_s, passed) for node, passed in (probed or {}).items()}
        inputs = Inputs(now_s=self.led.now_s, members=FLEET, accusations=given, probed=results)
        state, outcome = step(self.led.state, inputs, self.led.rules)
        assert outcome.decisions == ()
        assert state == self.led.state
        assert (outcome.out, outcome.probe) == (self.outcome.out, self.outcome.probe)

    @rule(given=st.lists(accusations, max_size=6), after_s=st.floats(0.1, 40.0))
    def accuse(self, given: list[Accusation], after_s: float) -> None:
        self._step(*given, after_s=after_s)

    @rule(node=NAMES, passed=st.booleans())
    def probe(self, node: str, *, passed: bool) -> None:
        self._step(probed={node: passed})

    @rule(after_s=st.floats(10.0, 1000.0))
    def wait(self, after_s: float) -> None:
        self._step(after_s=after_s)

    @rule(node=NAMES)
    def release(self, node: str) -> None:
        """Whatever the breaker says, a person can always release."""
        self.outcome = self.led.step(wishes={node: Wish.RELEASE})
        assert node not in self.outcome.out

    @rule(mode=st.sampled_from(Mode))
    def turn(self, mode: Mode) -> None:
        self.led.rules = RULES.model_copy(update={"mode": mode})

    @invariant()
    def no_group_lacks_more_than_it_may(self) -> None:
        out = self.led.state.out()
        pools = Counter(FLEET[node].pool for node in out)
        domains = Counter(domain for node in out for domain in FLEET[node].domains)
        assert all(count <= RULES.pool.of(8) for count in pools.values())
        assert all(count <= RULES.domain.of(4 if "rack" in name else 8) for name, count in domains.items())

    @invariant()
    def the_rate_holds(self) -> None:
        for at_s in self.went_s:
            within = [one for one in self.went_s if at_s - RULES.rate_window_s < one <= at_s]
            assert len(within) <= RULES.rate_count

    @invariant()
    def only_what_is_real_is_wanted(self) -> None:
        nodes = self.led.state.nodes
        assert self.outcome.probe <= self.outcome.out
        assert self.outcome.out == {
            name for name, record in nodes.items() if record.standing in OUT and not record.dry_run
        }


TestAnyFleet = AnyFleet.TestCase
TestAnyFleet.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
