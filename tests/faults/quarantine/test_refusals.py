"""Every rule that keeps a node in service, one at a time."""

from typing import Any

import pytest

from faults.diagnosis import SILENCE, Direction, FaultClass, Scope
from faults.quarantine import Act, Member, Wish
from tests.faults.quarantine.fleets import APPLY, FLEET, Led, accused, acts, reasons

SLOW: dict[str, Any] = {"fault": FaultClass.COMM_SLOW, "direction": Direction.TX, "evidence": ("bandwidth",)}


def test_a_hanging_node_goes_at_once() -> None:
    led = Led()
    outcome = led.step(accused("n03"))
    assert acts(outcome) == [(Act.ISOLATE, "n03")]
    assert outcome.out == {"n03"}
    assert outcome.decisions[0].accusation == "bundle-n03"


@pytest.mark.parametrize("scope", [Scope.LEAF, Scope.UPLINK, Scope.LINK, Scope.WORKLOAD])
def test_a_verdict_on_the_network_never_takes_out_a_node_whatever_it_says(scope: Scope) -> None:
    outcome = Led().step(accused("n03", scope=scope, switch="leaf0"))
    assert outcome.out == frozenset()
    assert "not-justified" in reasons(outcome)


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"isolate": False}, "not-justified"),
        ({"evidence": (SILENCE,)}, "silence"),
        ({"evidence": ()}, "silence"),
        ({"confidence": 0.84}, "confidence 0.84 is below 0.85"),
        (SLOW, "believed for 0 of 30 s"),
    ],
)
def test_a_weak_verdict_takes_out_nobody(changed: dict[str, Any], rule: str) -> None:
    led = Led()
    outcome = led.step(accused("n03", **changed))
    assert outcome.out == frozenset()
    assert rule in reasons(outcome)
    assert led.step(accused("n03", **changed)).decisions == ()  # told once


def test_a_slow_node_goes_once_it_has_been_believed_for_long_enough() -> None:
    led = Led()
    assert acts(led.step(accused("n03", **SLOW))) == [(Act.SUSPECT, "n03")]
    assert led.step(accused("n03", **SLOW), after_s=29.0).out == frozenset()
    assert led.step(accused("n03", **SLOW), after_s=1.0).out == {"n03"}


def test_a_break_in_belief_starts_the_wait_anew() -> None:
    led = Led()
    led.step(accused("n03", **SLOW))
    assert acts(led.step(after_s=20.0)) == [(Act.CLEAR, "n03")]
    led.step(accused("n03", **SLOW), after_s=5.0)
    assert led.step(accused("n03", **SLOW), after_s=29.0).out == frozenset()
    assert led.step(accused("n03", **SLOW), after_s=1.0).out == {"n03"}


def test_a_switch_under_a_verdict_explains_the_slow_traffic_of_its_nodes() -> None:
    rules = APPLY.model_copy(update={"confirm_s": 0.0})
    led = Led(rules=rules)
    assert "rack0" in reasons(led.step(accused("n03", **SLOW), network=frozenset({"rack0"})))
    # A straggler's arithmetic has nothing to do with the switch, nor has a node on another one.
    late = accused("n04", fault=FaultClass.NONCOMM_SLOW, evidence=("compute-gap",))
    assert led.step(late, accused("n15", **SLOW), network=frozenset({"rack0"})).out == {"n04", "n15"}


def test_a_failure_domain_keeps_its_nodes() -> None:
    led = Led()
    outcome = led.step(accused("n01"), accused("n02"), accused("n03"))
    assert outcome.out == {"n01", "n02"}  # a quarter of the ten of rack0
    assert "2 of the 10 nodes of domain rack0 are out, allowed: 2" in reasons(outcome)


def test_a_pool_keeps_its_nodes() -> None:
    rules = APPLY.model_copy(update={"rate_count": 10, "breaker_nodes": 10})
    outcome = Led(rules=rules).step(*(accused(f"n{at}5") for at in range(4)), accused("n06"))
    assert len(outcome.out) == 4  # a tenth of forty
    assert "pool train" in reasons(outcome)


def test_nodes_that_are_missing_for_other_reasons_count() -> None:
    absent = {name: member._replace(absent=name in ("n08", "n09")) for name, member in FLEET.items()}
    outcome = Led(members=absent).step(accused("n01"), accused("n11"))
    assert outcome.out == {"n11"}


def test_a_node_that_is_out_and_missing_for_a_look_is_still_lacking() -> None:
    led = Led(rules=APPLY.model_copy(update={"domain": APPLY.domain.model_copy(update={"count": 1})}))
    assert led.step(accused("n01")).out == {"n01"}
    led.members = {name: member for name, member in FLEET.items() if name != "n01"}
    outcome = led.step(accused("n02"))
    assert outcome.out == {"n01"}
    assert "1 of the 10 nodes of domain rack0 are out, allowed: 1" in reasons(outcome)
    led.members = FLEET
    led.step(wishes={"n01": Wish.RELEASE})
    assert led.step(accused("n02")).out == {"n02"}


def test_a_small_cluster_can_heal() -> None:
    members = {"a": Member("train"), "b": Member("train")}
    rules = APPLY.model_copy(update={"breaker_nodes": 3})
    assert Led(members=members, rules=rules).step(accused("a"), accused("b")).out == {"a"}


def test_not_too_many_go_within_the_window_of_the_rate() -> None:
    led = Led(rules=APPLY.model_copy(update={"breaker_nodes": 10}))
    assert len(led.step(*(accused(f"n{at}1") for at in range(4))).out) == 3
    stuck = accused("n31")
    assert "rate" in reasons(led.step(stuck, after_s=0.5)) or led.state.nodes["n31"].refused == "rate"
    assert "n31" not in led.step(stuck, after_s=598.0).out
    assert "n31" in led.step(stuck, after_s=2.0).out


def test_without_a_spare_nothing_goes_unless_that_is_allowed() -> None:
    assert "spare" in reasons(Led(spares=0).step(accused("n03")))
    assert Led(spares=1).step(accused("n03"), accused("n13")).out == {"n03"}
    lenient = APPLY.model_copy(update={"without_spare": True})
    assert Led(spares=0, rules=lenient).step(accused("n03")).out == {"n03"}


def test_a_node_of_another_fleet_is_left_alone() -> None:
    assert Led().step(accused("elsewhere")) == (frozenset(), frozenset(), ())


def test_of_two_accusations_the_gravest_that_can_take_the_node_out_is_heard() -> None:
    rules = APPLY.model_copy(update={"confirm_s": 0.0})
    late = accused("n03", again=1, fault=FaultClass.NONCOMM_SLOW, evidence=("compute-gap",))
    silent = accused("n03", evidence=(SILENCE,))
    assert Led(rules=rules).step(silent, late).out == {"n03"}
    assert "silence" in reasons(Led(rules=rules).step(silent))
    shared = accused("n03", **SLOW)
    assert Led(rules=rules).step(shared, late, network=frozenset({"rack0"})).decisions[0].accusation == late.id


def test_an_accusation_that_was_answered_does_not_hide_another() -> None:
    led = Led()
    hang, slow = accused("n03"), accused("n03", again=1, **SLOW)
    assert led.step(hang).out == {"n03"}
    led.step(hang, wishes={"n03": Wish.RELEASE})
    assert led.step(hang, after_s=60.0).out == frozenset()
    assert "believed for 0 of 30 s" in reasons(
        led.step(hang, slow)
    )  # its own time counts, not that of the answered one
    assert led.step(hang, slow, after_s=29.0).out == frozenset()
    assert led.step(hang, slow, after_s=1.0).out == {"n03"}


def test_the_gravest_accusation_is_heard_first() -> None:
    led = Led(spares=1, rules=APPLY.model_copy(update={"confirm_s": 0.0}))
    assert led.step(accused("n03", **SLOW), accused("n13")).out == {"n13"}
