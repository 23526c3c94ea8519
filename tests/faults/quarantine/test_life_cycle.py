"""The life cycle of a node, the circuit breaker, dry runs and operator actions."""

import pytest

from faults.quarantine import DecisionKind, NodeState, OperatorAction, PolicyMode, ProbeResult, QuarantineRules
from faults.quarantine.life_cycle import OUT_OF_SERVICE, Event, next_state, states_before
from fleet.documents import RuleError
from tests.faults.quarantine.fleets import APPLY, Fleet, decisions, reasons, suspect


def quarantined(node: str = "n03", rules: QuarantineRules = APPLY) -> Fleet:
    fleet = Fleet(rules=rules)
    fleet.step(suspect(node))
    return fleet


def test_a_node_returns_after_a_passed_probe_and_is_on_probation() -> None:
    fleet = quarantined()
    assert fleet.step(after_s=599.0).probe == frozenset()
    outcome = fleet.step(after_s=1.0)
    assert outcome.probe == outcome.out_of_service == {"n03"}
    assert fleet.step(after_s=900.0).out_of_service == {"n03"}  # never by time alone
    outcome = fleet.step(probed={"n03": True})
    assert decisions(outcome) == [(DecisionKind.RELEASE, "n03")]
    assert outcome.out_of_service == frozenset()
    assert fleet.state_of("n03") is NodeState.PROBATION
    fleet.step(after_s=3600.0)
    assert fleet.state_of("n03") is NodeState.SERVING


def test_the_result_of_a_probe_that_was_not_requested_is_ignored() -> None:
    fleet = quarantined()
    assert fleet.step(probed={"n03": True}).out_of_service == {"n03"}
    assert fleet.step(probed={"n07": False}).decisions == ()


def test_each_failed_probe_doubles_the_cooldown_until_the_node_is_cordoned() -> None:
    fleet, waits_s = quarantined(), []
    for _ in range(4):
        before_s = fleet.now_s
        while not fleet.step(after_s=100.0).probe:
            pass
        waits_s.append(fleet.now_s - before_s)
        fleet.step(probed={"n03": False}, after_s=0.0)
    assert waits_s == [600.0, 1200.0, 2400.0, 4800.0]
    assert fleet.state_of("n03") is NodeState.CORDONED
    assert fleet.step(after_s=1e6).out_of_service == {"n03"}


def test_all_requested_probes_must_pass_in_a_row() -> None:
    fleet = quarantined(rules=APPLY.model_copy(update={"probes": 2}))
    fleet.step(after_s=600.0)
    assert fleet.step(probed={"n03": True}).out_of_service == {"n03"}
    assert fleet.step().probe == {"n03"}
    assert fleet.step(probed={"n03": True}).out_of_service == frozenset()


def test_the_third_strike_cordons_a_node_until_an_operator_releases_it() -> None:
    fleet = Fleet()
    for again in range(2):
        fleet.step(suspect("n03", again=again))
        fleet.step(after_s=600.0)
        fleet.step(probed={"n03": True})
    outcome = fleet.step(suspect("n03", again=2))
    assert decisions(outcome) == [(DecisionKind.QUARANTINE, "n03"), (DecisionKind.CORDON, "n03")]
    assert fleet.step(after_s=1e5).probe == frozenset()
    assert fleet.step(actions={"n03": OperatorAction.RELEASE}).out_of_service == frozenset()
    assert fleet.state.nodes["n03"].strikes_s == ()  # cleared


def test_a_resolved_diagnosis_does_not_quarantine_the_node_again() -> None:
    """The diagnosis is still active after the release, and is no new evidence."""
    fleet = quarantined()
    fleet.step(suspect("n03"), after_s=600.0)
    outcome = fleet.step(suspect("n03"), probed={"n03": True})
    assert decisions(outcome) == [(DecisionKind.RELEASE, "n03"), (DecisionKind.REFUSE, "n03")]
    assert "has returned since" in reasons(outcome)
    assert fleet.step(suspect("n03"), after_s=900.0).out_of_service == frozenset()
    assert fleet.step(suspect("n03", again=1)).out_of_service == {"n03"}  # a new diagnosis counts


def test_a_probe_counts_once() -> None:
    fleet = quarantined(rules=APPLY.model_copy(update={"probes": 2}))
    fleet.step(after_s=600.0)
    first = {"n03": ProbeResult(fleet.now_s + 1.0, passed=True)}
    assert all(fleet.step(results=first).out_of_service == {"n03"} for _ in range(5))
    assert fleet.step(probed={"n03": True}).out_of_service == frozenset()


def test_old_strikes_do_not_count() -> None:
    fleet = Fleet()
    for _ in range(4):
        fleet.step(suspect("n03"))
        fleet.step(after_s=600.0)
        fleet.step(probed={"n03": True})
        fleet.step(after_s=4 * 86_400.0)
    assert fleet.state_of("n03") is NodeState.SERVING


def test_many_suspected_nodes_open_the_breaker_and_releases_continue() -> None:
    fleet = quarantined("n35")
    fleet.step(after_s=600.0)
    many = tuple(suspect(f"n{at:02}") for at in (1, 4, 12, 17, 23))
    outcome = fleet.step(*many)
    assert decisions(outcome)[0] == (DecisionKind.OPEN_BREAKER, None)
    assert outcome.out_of_service == {"n35"}
    assert "releases continue" in reasons(outcome)
    assert fleet.step(*many, probed={"n35": True}).out_of_service == frozenset()
    # It stays open while a node is suspected, and closes after the hold time.
    assert fleet.step(many[0], after_s=599.0).out_of_service == frozenset()
    assert (DecisionKind.CLOSE_BREAKER, None) in decisions(fleet.step(after_s=600.0))
    assert fleet.step(many[0]).out_of_service == {"n01"}


def test_an_operator_can_reset_the_breaker() -> None:
    fleet = Fleet()
    fleet.step(*(suspect(f"n{at:02}") for at in (1, 4, 12, 17, 23)))
    outcome = fleet.step(suspect("n01"), reset_breaker=True)
    assert outcome.out_of_service == {"n01"}


def test_suspicions_without_cause_do_not_open_the_breaker() -> None:
    fleet = Fleet()
    outcome = fleet.step(*(suspect(f"n{at:02}", confidence=0.5) for at in range(20)))
    assert not fleet.state.breaker.open
    assert (DecisionKind.OPEN_BREAKER, None) not in decisions(outcome)


def test_a_dry_run_decides_everything_and_requests_nothing() -> None:
    fleet = Fleet(rules=QuarantineRules())
    outcome = fleet.step(suspect("n03"))
    assert outcome.out_of_service == frozenset()
    assert [(d.kind, d.dry_run) for d in outcome.decisions] == [(DecisionKind.QUARANTINE, True)]
    assert fleet.step(after_s=600.0).probe == frozenset()
    assert fleet.state_of("n03") is NodeState.PROBATION


def test_dry_run_states_are_discarded_when_the_mode_changes() -> None:
    fleet = Fleet(rules=QuarantineRules())
    fleet.step(suspect("n03"))
    fleet.rules = APPLY
    assert fleet.step().out_of_service == frozenset()
    assert fleet.state.nodes == {}


def test_a_change_to_observe_does_not_release_quarantined_nodes() -> None:
    fleet = quarantined()
    fleet.rules = QuarantineRules()
    assert fleet.step().out_of_service == {"n03"}


def test_a_proposal_waits_for_an_operator() -> None:
    fleet = Fleet(rules=QuarantineRules(mode=PolicyMode.RECOMMEND))
    assert decisions(fleet.step(suspect("n03"))) == [(DecisionKind.PROPOSE, "n03")]
    assert fleet.step(suspect("n03"), after_s=100.0) == (frozenset(), frozenset(), ())
    assert fleet.step(suspect("n03"), actions={"n03": OperatorAction.APPROVE}).out_of_service == {"n03"}


def test_an_approval_does_not_override_the_guardrails() -> None:
    fleet = Fleet(rules=QuarantineRules(mode=PolicyMode.RECOMMEND))
    fleet.step(suspect("n03"))
    fleet.spares = 0
    outcome = fleet.step(suspect("n03"), actions={"n03": OperatorAction.APPROVE})
    assert outcome.out_of_service == frozenset()
    assert "spare" in reasons(outcome)


def test_a_declined_diagnosis_is_not_proposed_again() -> None:
    fleet = Fleet(rules=QuarantineRules(mode=PolicyMode.RECOMMEND))
    fleet.step(suspect("n03"))
    fleet.step(suspect("n03"), actions={"n03": OperatorAction.DECLINE})
    assert fleet.step(suspect("n03"), after_s=100.0).decisions == ()
    fleet.step()
    assert decisions(fleet.step(suspect("n03"))) == [(DecisionKind.PROPOSE, "n03")]


def test_a_proposal_ends_with_its_suspicion() -> None:
    fleet = Fleet(rules=QuarantineRules(mode=PolicyMode.RECOMMEND))
    fleet.step(suspect("n03"))
    assert decisions(fleet.step()) == [(DecisionKind.CLEAR, "n03")]
    assert fleet.step(actions={"n03": OperatorAction.APPROVE}).out_of_service == frozenset()


def test_an_operator_can_cordon_a_node_whatever_the_budget() -> None:
    fleet = Fleet(spares=0)
    assert fleet.step(actions={"n03": OperatorAction.CORDON}).out_of_service == {"n03"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_cooldown_s": 10.0}, "max_cooldown_s: is below cooldown_s, allowed: 600 and more"),
        ({"strike_window_s": 10.0}, "strike_window_s: is below probation_s"),
    ],
)
def test_inconsistent_rules_are_refused_with_the_field_name(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match="below") as error:
        QuarantineRules.model_validate(fields)
    cause = error.value.errors()[0]["ctx"]["error"]  # type: ignore[attr-defined]
    assert isinstance(cause, RuleError)
    assert message in str(cause)


def test_the_table_refuses_an_event_that_the_state_does_not_have() -> None:
    with pytest.raises(ValueError, match="a node that is serving has no event release"):
        next_state(NodeState.SERVING, Event.RELEASE)


def test_out_of_service_states_can_be_released_and_all_but_cordoned_can_be_cordoned() -> None:
    assert states_before(Event.RELEASE) == OUT_OF_SERVICE
    assert states_before(Event.CORDON) == frozenset(NodeState) - {NodeState.CORDONED}
    assert {next_state(state, Event.QUARANTINE) for state in states_before(Event.QUARANTINE)} == {NodeState.QUARANTINED}
