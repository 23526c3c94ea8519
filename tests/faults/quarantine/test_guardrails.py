"""Each guardrail alone."""

from typing import Any

import pytest

from faults.diagnosis import SILENCE, Direction, FaultClass, Scope
from faults.quarantine import DecisionKind, Member, OperatorAction
from tests.faults.quarantine.fleets import APPLY, FLEET, Fleet, decisions, reasons, suspect

SLOW: dict[str, Any] = {"fault": FaultClass.COMM_SLOW, "direction": Direction.TX, "evidence": ("bandwidth",)}


def test_a_node_with_a_hang_is_quarantined_at_once() -> None:
    fleet = Fleet()
    outcome = fleet.step(suspect("n03"))
    assert decisions(outcome) == [(DecisionKind.QUARANTINE, "n03")]
    assert outcome.out_of_service == {"n03"}
    assert outcome.decisions[0].diagnosis_id == "bundle-n03"


@pytest.mark.parametrize("scope", [Scope.LEAF, Scope.UPLINK, Scope.LINK, Scope.WORKLOAD])
def test_a_network_diagnosis_never_quarantines_a_node(scope: Scope) -> None:
    outcome = Fleet().step(suspect("n03", scope=scope, switch="leaf0"))
    assert outcome.out_of_service == frozenset()
    assert "not-justified" in reasons(outcome)


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"isolate": False}, "not-justified"),
        ({"evidence": (SILENCE,)}, "silence"),
        ({"evidence": ()}, "silence"),
        ({"confidence": 0.84}, "confidence 0.84 is below 0.85"),
        (SLOW, "active for 0 of 30 s"),
    ],
)
def test_a_weak_diagnosis_quarantines_no_node(changed: dict[str, Any], rule: str) -> None:
    fleet = Fleet()
    outcome = fleet.step(suspect("n03", **changed))
    assert outcome.out_of_service == frozenset()
    assert rule in reasons(outcome)
    assert fleet.step(suspect("n03", **changed)).decisions == ()  # one decision per refusal


def test_a_slow_node_is_quarantined_after_the_confirmation_time() -> None:
    fleet = Fleet()
    assert decisions(fleet.step(suspect("n03", **SLOW))) == [(DecisionKind.SUSPECT, "n03")]
    assert fleet.step(suspect("n03", **SLOW), after_s=29.0).out_of_service == frozenset()
    assert fleet.step(suspect("n03", **SLOW), after_s=1.0).out_of_service == {"n03"}


def test_a_gap_in_the_suspicion_restarts_the_confirmation_time() -> None:
    fleet = Fleet()
    fleet.step(suspect("n03", **SLOW))
    assert decisions(fleet.step(after_s=20.0)) == [(DecisionKind.CLEAR, "n03")]
    fleet.step(suspect("n03", **SLOW), after_s=5.0)
    assert fleet.step(suspect("n03", **SLOW), after_s=29.0).out_of_service == frozenset()
    assert fleet.step(suspect("n03", **SLOW), after_s=1.0).out_of_service == {"n03"}


def test_a_diagnosed_switch_explains_the_slow_traffic_of_its_nodes() -> None:
    rules = APPLY.model_copy(update={"confirm_s": 0.0})
    fleet = Fleet(rules=rules)
    assert "rack0" in reasons(fleet.step(suspect("n03", **SLOW), network=frozenset({"rack0"})))
    # The switch explains neither a straggler's compute time nor a node on another switch.
    late = suspect("n04", fault=FaultClass.NONCOMM_SLOW, evidence=("compute-gap",))
    assert fleet.step(late, suspect("n15", **SLOW), network=frozenset({"rack0"})).out_of_service == {"n04", "n15"}


def test_a_failure_domain_has_a_budget() -> None:
    fleet = Fleet()
    outcome = fleet.step(suspect("n01"), suspect("n02"), suspect("n03"))
    assert outcome.out_of_service == {"n01", "n02"}  # a quarter of the ten of rack0
    assert "2 of the 10 nodes of domain rack0 are out, allowed: 2" in reasons(outcome)


def test_a_pool_has_a_budget() -> None:
    rules = APPLY.model_copy(update={"rate_count": 10, "breaker_nodes": 10})
    outcome = Fleet(rules=rules).step(*(suspect(f"n{at}5") for at in range(4)), suspect("n06"))
    assert len(outcome.out_of_service) == 4  # a tenth of forty
    assert "pool train" in reasons(outcome)


def test_absent_nodes_count_against_the_budget() -> None:
    absent = {name: member._replace(absent=name in ("n08", "n09")) for name, member in FLEET.items()}
    outcome = Fleet(members=absent).step(suspect("n01"), suspect("n11"))
    assert outcome.out_of_service == {"n11"}


def test_a_quarantined_node_that_an_evaluation_omits_counts_against_the_budget() -> None:
    fleet = Fleet(rules=APPLY.model_copy(update={"domain": APPLY.domain.model_copy(update={"count": 1})}))
    assert fleet.step(suspect("n01")).out_of_service == {"n01"}
    fleet.members = {name: member for name, member in FLEET.items() if name != "n01"}
    outcome = fleet.step(suspect("n02"))
    assert outcome.out_of_service == {"n01"}
    assert "1 of the 10 nodes of domain rack0 are out, allowed: 1" in reasons(outcome)
    fleet.members = FLEET
    fleet.step(actions={"n01": OperatorAction.RELEASE})
    assert fleet.step(suspect("n02")).out_of_service == {"n02"}


def test_a_small_cluster_can_quarantine_one_node() -> None:
    members = {"a": Member("train"), "b": Member("train")}
    rules = APPLY.model_copy(update={"breaker_nodes": 3})
    assert Fleet(members=members, rules=rules).step(suspect("a"), suspect("b")).out_of_service == {"a"}


def test_the_rate_limits_quarantines_within_its_window() -> None:
    fleet = Fleet(rules=APPLY.model_copy(update={"breaker_nodes": 10}))
    assert len(fleet.step(*(suspect(f"n{at}1") for at in range(4))).out_of_service) == 3
    stuck = suspect("n31")
    assert "rate" in reasons(fleet.step(stuck, after_s=0.5)) or fleet.state.nodes["n31"].refused_by == "rate"
    assert "n31" not in fleet.step(stuck, after_s=598.0).out_of_service
    assert "n31" in fleet.step(stuck, after_s=2.0).out_of_service


def test_a_quarantine_needs_a_spare_unless_the_rules_allow_otherwise() -> None:
    assert "spare" in reasons(Fleet(spares=0).step(suspect("n03")))
    assert Fleet(spares=1).step(suspect("n03"), suspect("n13")).out_of_service == {"n03"}
    lenient = APPLY.model_copy(update={"without_spare": True})
    assert Fleet(spares=0, rules=lenient).step(suspect("n03")).out_of_service == {"n03"}


def test_an_unknown_node_is_ignored() -> None:
    assert Fleet().step(suspect("elsewhere")) == (frozenset(), frozenset(), ())


def test_of_two_suspicions_the_most_severe_without_a_permanent_refusal_counts() -> None:
    rules = APPLY.model_copy(update={"confirm_s": 0.0})
    late = suspect("n03", again=1, fault=FaultClass.NONCOMM_SLOW, evidence=("compute-gap",))
    silent = suspect("n03", evidence=(SILENCE,))
    assert Fleet(rules=rules).step(silent, late).out_of_service == {"n03"}
    assert "silence" in reasons(Fleet(rules=rules).step(silent))
    shared = suspect("n03", **SLOW)
    assert Fleet(rules=rules).step(shared, late, network=frozenset({"rack0"})).decisions[0].diagnosis_id == late.id


def test_a_resolved_suspicion_does_not_hide_another_one() -> None:
    fleet = Fleet()
    hang, slow = suspect("n03"), suspect("n03", again=1, **SLOW)
    assert fleet.step(hang).out_of_service == {"n03"}
    fleet.step(hang, actions={"n03": OperatorAction.RELEASE})
    assert fleet.step(hang, after_s=60.0).out_of_service == frozenset()
    assert "active for 0 of 30 s" in reasons(
        fleet.step(hang, slow)
    )  # its own time counts, not that of the resolved one
    assert fleet.step(hang, slow, after_s=29.0).out_of_service == frozenset()
    assert fleet.step(hang, slow, after_s=1.0).out_of_service == {"n03"}


def test_the_most_severe_suspicion_is_decided_first() -> None:
    fleet = Fleet(spares=1, rules=APPLY.model_copy(update={"confirm_s": 0.0}))
    assert fleet.step(suspect("n03", **SLOW), suspect("n13")).out_of_service == {"n13"}
