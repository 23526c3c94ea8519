"""Whether a migration pays, and that the decision never oscillates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.migration.cost_benefit import CostBenefit, Decision, Levels, Window, decide, evaluate_migration

LEVELS = Levels(act_above=1.10, settle_at=1.05)
WINDOW = Window(window_s=600, moe_share=0.5, slowdown=0.1, stall_s=0.01, margin=1.5)
PAYS, DOES_NOT = CostBenefit(10, 1, 1.5), CostBenefit(1, 1, 1.5)


def test_gain_and_cost_match_hand_computed_values() -> None:
    benefit = evaluate_migration(now=1.2, after=1.05, moving_s=20, batches=50, window=WINDOW)
    assert benefit.gain_s == pytest.approx(600 * 0.5 * 0.125)
    assert benefit.cost_s == pytest.approx(20 * 0.1 + 50 * 0.01)
    assert benefit.pays


def test_a_migration_for_a_short_window_does_not_pay() -> None:
    short = Window(window_s=20, moe_share=0.5, slowdown=0.1)
    assert not evaluate_migration(now=1.2, after=1.05, moving_s=20, batches=1, window=short).pays


def test_migration_starts_above_one_level_and_ends_below_the_other() -> None:
    state = Decision()
    acts = []
    for now in (1.04, 1.08, 1.101, 1.07, 1.05, 1.08, 1.10, 1.2):
        state = decide(state, now=now, levels=LEVELS, benefit=PAYS)
        acts.append(state.act)
    assert acts == [False, False, True, True, False, False, False, True]


def test_a_migration_that_does_not_pay_is_not_started() -> None:
    assert not decide(Decision(), now=1.3, levels=LEVELS, benefit=DOES_NOT).act
    assert not decide(Decision(), now=1.3, levels=LEVELS).act


def test_a_level_that_no_migration_improves_counts_as_settled() -> None:
    stuck = decide(Decision(act=True), now=1.2, levels=LEVELS, benefit=DOES_NOT)
    assert stuck == Decision(settled_at=1.2)
    assert not decide(stuck, now=1.24, levels=LEVELS, benefit=PAYS).act
    assert decide(stuck, now=1.26, levels=LEVELS, benefit=PAYS).act
    assert decide(stuck, now=1.04, levels=LEVELS, benefit=PAYS) == Decision()


@given(st.floats(1, 3), st.floats(1, 3), st.lists(st.sampled_from([PAYS, DOES_NOT, None]), min_size=8, max_size=8))
def test_constant_loads_cause_at_most_one_migration(
    now: float, reachable: float, worths: list[CostBenefit | None]
) -> None:
    """Each migration reaches the best level; afterwards no further one improves."""
    state, level, acts = Decision(), now, 0
    for benefit in worths:
        best = benefit if level > max(reachable, LEVELS.settle_at) else None
        state = decide(state, now=level, levels=LEVELS, benefit=best)
        if state.act:
            acts += 1
            level = min(level, max(reachable, LEVELS.settle_at))
            state = decide(state, now=level, levels=LEVELS)
            assert not state.act
    assert acts <= 1


@given(st.lists(st.floats(1.051, 1.099), min_size=1, max_size=20))
def test_within_the_band_the_decision_does_not_change(series: list[float]) -> None:
    for start in (Decision(), Decision(settled_at=1.09)):
        state = start
        for now in series:
            state = decide(state, now=now, levels=LEVELS, benefit=PAYS)
        assert state == start


@pytest.mark.parametrize(("act_above", "settle_at"), [(1.05, 1.1), (1.1, 0.9), (0.9, 0.9)])
def test_levels_in_the_wrong_order_are_refused(act_above: float, settle_at: float) -> None:
    with pytest.raises(RuleError, match="settle_at"):
        Levels(act_above=act_above, settle_at=settle_at)


@pytest.mark.parametrize(
    "wrong", [{"window_s": 0}, {"moe_share": 1.1}, {"slowdown": -0.1}, {"stall_s": -1}, {"margin": 0}]
)
def test_an_invalid_window_field_is_named(wrong: dict[str, float]) -> None:
    with pytest.raises(RuleError, match=next(iter(wrong))):
        Window(**{"window_s": 1, "moe_share": 0.5, "slowdown": 0.1, **wrong})
