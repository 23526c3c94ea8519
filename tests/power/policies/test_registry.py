"""Policies by name."""

import pytest

from fleet.documents import RuleError
from power.policies import POLICY_NAMES, policy_named
from power.policies.ladder import CONSOLIDATE, Ladder
from power.server_model import BLOOM_A100
from power.telemetry import Reading, RowObservation
from tests.power.policies.rows import busy, observed


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_every_name_makes_a_policy_of_that_name(name: str) -> None:
    policy = policy_named(name)
    state, setting = policy.decide(policy.start(), observed(used=0.3, counts=busy()))
    assert policy.name == name
    assert set(setting.clocks) == {1.0}
    assert policy.calm_below_w(state, 100.0) > 0


def test_command_delays_default_to_those_of_the_control_path() -> None:
    assert [policy_named(name).command_delay_s for name in ("threshold-low", "threshold-all", "polca")] == [40.0] * 3
    assert policy_named("ladder").command_delay_s == 1.0
    assert policy_named("polca", command_delay_s=2).command_delay_s == 2


def test_the_ladder_consolidates_only_servers_that_batch_requests() -> None:
    one, eight = (BLOOM_A100.model_copy(update={"most_together": most}) for most in (1, 8))
    for kinds, steps in (((eight,), CONSOLIDATE), ((one,), ()), ((eight, one), ())):
        ladder = policy_named("ladder", kinds=kinds)
        assert isinstance(ladder, Ladder)
        assert ladder.routing == steps


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_a_budget_of_zero_is_no_error(name: str) -> None:
    policy = policy_named(name)
    empty = RowObservation(2.0, Reading(2.0, 0.0), busy(), 0.0)
    policy.decide(policy.start(), empty)


def test_threshold_low_spares_high_priority_and_threshold_all_does_not() -> None:
    low, all_priorities = (
        policy.decide(policy.start(), observed(used=0.95))[1].clocks
        for policy in (policy_named("threshold-low"), policy_named("threshold-all"))
    )
    assert low.low_token < 1 == low.high_token
    assert all_priorities.high_token == all_priorities.low_token < 1


def test_an_unknown_name_and_an_invalid_delay_are_refused() -> None:
    with pytest.raises(RuleError, match="none, threshold-low, threshold-all, polca, ladder"):
        policy_named("thermal")
    with pytest.raises(RuleError, match="from 0 to 3600"):
        policy_named("polca", command_delay_s=-1)
