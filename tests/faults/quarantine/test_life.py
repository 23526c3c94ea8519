"""A node's way out and back, the breaker, dry runs and operators."""

import pytest

from faults.quarantine import Act, IsolationRules, Mode, ProbeResult, Standing, Wish
from fleet.documents import RuleError
from tests.faults.quarantine.fleets import APPLY, Led, accused, acts, reasons


def isolated(node: str = "n03", rules: IsolationRules = APPLY) -> Led:
    led = Led(rules=rules)
    led.step(accused(node))
    return led


def test_a_node_comes_back_by_a_passed_probe_and_is_watched() -> None:
    led = isolated()
    assert led.step(after_s=599.0).probe == frozenset()
    outcome = led.step(after_s=1.0)
    assert outcome.probe == outcome.out == {"n03"}
    assert led.step(after_s=900.0).out == {"n03"}  # never by time alone
    outcome = led.step(probed={"n03": True})
    assert acts(outcome) == [(Act.RELEASE, "n03")]
    assert outcome.out == frozenset()
    assert led.standing("n03") is Standing.WATCHED
    led.step(after_s=3600.0)
    assert led.standing("n03") is Standing.SERVING


def test_a_result_that_nobody_wanted_counts_for_nothing() -> None:
    led = isolated()
    assert led.step(probed={"n03": True}).out == {"n03"}
    assert led.step(probed={"n07": False}).decisions == ()


def test_each_failed_probe_doubles_the_wait_until_the_node_is_kept_out() -> None:
    led, waits_s = isolated(), []
    for _ in range(4):
        before_s = led.now_s
        while not led.step(after_s=100.0).probe:
            pass
        waits_s.append(led.now_s - before_s)
        led.step(probed={"n03": False}, after_s=0.0)
    assert waits_s == [600.0, 1200.0, 2400.0, 4800.0]
    assert led.standing("n03") is Standing.KEPT_OUT
    assert led.step(after_s=1e6).out == {"n03"}


def test_all_of_the_wanted_probes_must_pass_in_a_row() -> None:
    led = isolated(rules=APPLY.model_copy(update={"probes": 2}))
    led.step(after_s=600.0)
    assert led.step(probed={"n03": True}).out == {"n03"}
    assert led.step().probe == {"n03"}
    assert led.step(probed={"n03": True}).out == frozenset()


def test_the_third_strike_keeps_a_node_out_until_a_person_releases_it() -> None:
    led = Led()
    for again in range(2):
        led.step(accused("n03", again=again))
        led.step(after_s=600.0)
        led.step(probed={"n03": True})
    outcome = led.step(accused("n03", again=2))
    assert acts(outcome) == [(Act.ISOLATE, "n03"), (Act.KEEP_OUT, "n03")]
    assert led.step(after_s=1e5).probe == frozenset()
    assert led.step(wishes={"n03": Wish.RELEASE}).out == frozenset()
    assert led.state.nodes["n03"].isolated_s == ()  # forgiven


def test_a_verdict_that_a_node_came_back_from_does_not_take_it_out_again() -> None:
    """The bundle that it went for is still believed: nobody has looked at the node since."""
    led = isolated()
    led.step(accused("n03"), after_s=600.0)
    outcome = led.step(accused("n03"), probed={"n03": True})
    assert acts(outcome) == [(Act.RELEASE, "n03"), (Act.REFUSE, "n03")]
    assert "has come back since" in reasons(outcome)
    assert led.step(accused("n03"), after_s=900.0).out == frozenset()
    assert led.step(accused("n03", again=1)).out == {"n03"}  # what is said anew counts


def test_a_probe_counts_once() -> None:
    led = isolated(rules=APPLY.model_copy(update={"probes": 2}))
    led.step(after_s=600.0)
    first = {"n03": ProbeResult(led.now_s + 1.0, passed=True)}
    assert all(led.step(results=first).out == {"n03"} for _ in range(5))
    assert led.step(probed={"n03": True}).out == frozenset()


def test_old_strikes_are_forgotten() -> None:
    led = Led()
    for _ in range(4):
        led.step(accused("n03"))
        led.step(after_s=600.0)
        led.step(probed={"n03": True})
        led.step(after_s=4 * 86_400.0)
    assert led.standing("n03") is Standing.SERVING


def test_many_accused_together_open_the_breaker_and_releases_go_on() -> None:
    led = isolated("n35")
    led.step(after_s=600.0)
    many = tuple(accused(f"n{at:02}") for at in (1, 4, 12, 17, 23))
    outcome = led.step(*many)
    assert acts(outcome)[0] == (Act.OPEN_BREAKER, None)
    assert outcome.out == {"n35"}
    assert "releases go on" in reasons(outcome)
    assert led.step(*many, probed={"n35": True}).out == frozenset()
    # It stays open while anybody is accused, and closes by itself.
    assert led.step(many[0], after_s=599.0).out == frozenset()
    assert (Act.CLOSE_BREAKER, None) in acts(led.step(after_s=600.0))
    assert led.step(many[0]).out == {"n01"}


def test_an_operator_can_close_the_breaker() -> None:
    led = Led()
    led.step(*(accused(f"n{at:02}") for at in (1, 4, 12, 17, 23)))
    outcome = led.step(accused("n01"), close_breaker=True)
    assert outcome.out == {"n01"}


def test_weak_accusations_do_not_open_the_breaker() -> None:
    led = Led()
    outcome = led.step(*(accused(f"n{at:02}", confidence=0.5) for at in range(20)))
    assert not led.state.breaker.open
    assert (Act.OPEN_BREAKER, None) not in acts(outcome)


def test_a_dry_run_says_everything_and_wants_nothing() -> None:
    led = Led(rules=IsolationRules())
    outcome = led.step(accused("n03"))
    assert outcome.out == frozenset()
    assert [(d.act, d.dry_run) for d in outcome.decisions] == [(Act.ISOLATE, True)]
    assert led.step(after_s=600.0).probe == frozenset()
    assert led.standing("n03") is Standing.WATCHED


def test_what_was_a_dry_run_is_not_done_when_the_mode_is_raised() -> None:
    led = Led(rules=IsolationRules())
    led.step(accused("n03"))
    led.rules = APPLY
    assert led.step().out == frozenset()
    assert led.state.nodes == {}


def test_a_lowered_mode_does_not_release_what_is_out() -> None:
    led = isolated()
    led.rules = IsolationRules()
    assert led.step().out == {"n03"}


def test_a_proposal_waits_for_a_person() -> None:
    led = Led(rules=IsolationRules(mode=Mode.RECOMMEND))
    assert acts(led.step(accused("n03"))) == [(Act.PROPOSE, "n03")]
    assert led.step(accused("n03"), after_s=100.0) == (frozenset(), frozenset(), ())
    assert led.step(accused("n03"), wishes={"n03": Wish.APPROVE}).out == {"n03"}


def test_an_approval_does_not_overrule_the_rules() -> None:
    led = Led(rules=IsolationRules(mode=Mode.RECOMMEND))
    led.step(accused("n03"))
    led.spares = 0
    outcome = led.step(accused("n03"), wishes={"n03": Wish.APPROVE})
    assert outcome.out == frozenset()
    assert "spare" in reasons(outcome)


def test_what_was_declined_is_not_proposed_again() -> None:
    led = Led(rules=IsolationRules(mode=Mode.RECOMMEND))
    led.step(accused("n03"))
    led.step(accused("n03"), wishes={"n03": Wish.DECLINE})
    assert led.step(accused("n03"), after_s=100.0).decisions == ()
    led.step()
    assert acts(led.step(accused("n03"))) == [(Act.PROPOSE, "n03")]


def test_a_proposal_falls_with_its_accusation() -> None:
    led = Led(rules=IsolationRules(mode=Mode.RECOMMEND))
    led.step(accused("n03"))
    assert acts(led.step()) == [(Act.CLEAR, "n03")]
    assert led.step(wishes={"n03": Wish.APPROVE}).out == frozenset()


def test_an_operator_keeps_a_node_out_whatever_the_budget() -> None:
    led = Led(spares=0)
    assert led.step(wishes={"n03": Wish.KEEP_OUT}).out == {"n03"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"longest_wait_s": 10.0}, "longest_wait_s: is below probation_s, allowed: 600 and more"),
        ({"strike_window_s": 10.0}, "strike_window_s: is below watch_s"),
    ],
)
def test_rules_that_do_not_fit_are_refused_by_name(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match="below") as error:
        IsolationRules.model_validate(fields)
    cause = error.value.errors()[0]["ctx"]["error"]  # type: ignore[attr-defined]
    assert isinstance(cause, RuleError)
    assert message in str(cause)
