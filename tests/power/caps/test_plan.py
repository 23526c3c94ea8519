"""Whole plans of a tree, period by period and with a side lost."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.solvers import Limits, SolveStatus
from power.caps import CapPlan, Terms, domain_budgets, plan_caps
from power.caps.budgets import Needs, split
from power.tree import PowerTree
from tests.power.trees import group, row, two_rows

EXACT = Limits(time_limit_s=60.0)
HOUR_S = 3600.0


def planned(tree: PowerTree, **terms: Any) -> CapPlan:
    return plan_caps(tree, terms=Terms.model_validate(terms), limits=EXACT)


def test_spare_power_caps_no_group() -> None:
    plan = planned(two_rows(pdu_w=100_000.0, row_w=50_000.0))
    assert (plan.status, plan.loss, plan.binding) == (SolveStatus.OPTIMAL, 0.0, None)
    assert {(c.token_clock, c.prompt_clock) for c in plan.periods[0].classes} == {(1.0, 1.0)}


def test_low_priority_is_capped_first() -> None:
    plan = planned(row(36_500.0, [group("batch", "row"), group("chat", "row", priority="high")]))
    batch, chat = plan.periods[0].classes
    feed = plan.feed("row", 0)
    assert feed.uncapped_peak_w > 36_500.0 >= feed.peak_w / (1 + 1e-6)
    assert batch.token_clock < 1
    assert (chat.token_clock, chat.prompt_clock) == (1.0, 1.0)
    assert plan.binding == "row"
    assert feed.loss_per_kw > 0


def test_weights_can_reverse_the_order_of_caps() -> None:
    groups = [group("batch", "row", weight=1000.0), group("chat", "row", priority="high", weight=0.001)]
    batch, chat = planned(row(36_500.0, groups)).periods[0].classes
    assert (batch.token_clock, batch.prompt_clock) == (1.0, 1.0)
    assert chat.token_clock < 1


def test_the_feed_that_binds_is_named() -> None:
    assert planned(two_rows(pdu_w=67_500.0, row_w=60_000.0)).binding == "pdu"
    assert planned(two_rows(pdu_w=100_000.0, row_w=36_500.0)).binding in {"row-1", "row-2"}


def test_an_infeasible_feed_is_named_with_its_missing_power() -> None:
    plan = planned(two_rows(pdu_w=30_000.0, row_w=60_000.0))
    assert plan.status is SolveStatus.INFEASIBLE
    assert plan.loss is None
    assert [conflict.feed for conflict in plan.conflicts] == ["pdu"]
    assert f"{plan.conflicts[0].missing_w:,.0f} W are missing" in plan.conflicts[0].reason
    enough_w = 30_000.0 + plan.conflicts[0].missing_w * 1.001
    assert planned(two_rows(pdu_w=enough_w, row_w=60_000.0)).status is SolveStatus.OPTIMAL
    assert domain_budgets(two_rows(pdu_w=30_000.0), plan, starts_at_s=0) == ()


def test_periods_are_held_to_their_own_budgets() -> None:
    tree = two_rows(pdu_w=90_000.0, row_w=60_000.0, periods=3, budget_w=[90_000.0, 67_500.0, 90_000.0])
    losses = [period.loss for period in planned(tree).periods]
    assert losses[0] == losses[2] == 0
    assert losses[1] is not None
    assert losses[1] > 0


def test_the_loss_of_a_side_requires_deeper_caps() -> None:
    sides: dict[str, Any] = {"kind": "ups", "redundancy": "2N", "ride_through_share": 1.5}
    plan = planned(two_rows(pdu_w=55_000.0, row_w=60_000.0, **sides))
    feed = plan.feed("pdu", 0)
    assert plan.status is SolveStatus.OPTIMAL
    assert plan.periods[0].loss == 0
    assert feed.limit_w == 82_500.0
    assert feed.lost_limit_w == 55_000.0
    assert feed.peak_w > 55_000.0 >= (feed.lost_peak_w or inf) / (1 + 1e-6)
    for one in plan.periods[0].classes:
        assert (one.lost_token_clock or inf) <= one.token_clock
    assert (plan.periods[0].lost_loss or 0) > 0
    assert feed.lost_loss_per_kw > 0


def test_without_ride_through_the_loss_of_a_side_changes_nothing() -> None:
    plan = planned(two_rows(pdu_w=67_500.0, row_w=60_000.0, redundancy="2N"))
    assert plan.periods[0].loss == plan.periods[0].lost_loss
    assert (plan.periods[0].loss or 0) > 0
    for one in plan.periods[0].classes:
        assert (one.lost_token_clock, one.lost_prompt_clock) == (one.token_clock, one.prompt_clock)


def test_training_is_capped_where_that_costs_least() -> None:
    job = {"compute_w": 6_000.0, "trough_w": 2_500.0, "compute_share": 0.6}
    groups = [group("job", "row", load=None, training=job, slo_slack=0.5), group("chat", "row", priority="high")]
    trainer, chat = planned(row(43_000.0, groups)).periods[0].classes
    assert trainer.token_clock < 1
    assert chat.token_clock == 1


def test_a_plan_within_the_slo_is_infeasible_if_the_caps_break_it() -> None:
    tree = row(36_000.0, [group("batch", "row"), group("chat", "row", priority="high")])
    assert planned(tree).status is SolveStatus.OPTIMAL
    assert planned(tree, within_slo=True).status is SolveStatus.INFEASIBLE


def test_budgets_below_a_feed_add_up_and_expire() -> None:
    tree = two_rows(pdu_w=67_500.0, row_w=60_000.0, periods=2)
    budgets = domain_budgets(tree, planned(tree), starts_at_s=1000.0, grace_s=10.0)
    first = {budget.domain: budget for budget in budgets if budget.valid_from_s == 1000.0}
    assert first["pdu"].limit_w == pytest.approx(67_500.0)
    assert first["row-1"].limit_w + first["row-2"].limit_w == pytest.approx(67_500.0)
    assert first["row-1"].expires_at_s == 1000.0 + HOUR_S + 10.0
    assert max(budget.valid_from_s for budget in budgets) == 1000.0 + HOUR_S


needs = st.builds(Needs, st.floats(0, 1e4), st.floats(0, 1e3), st.floats(1, 2e4) | st.just(inf))


@given(st.lists(needs, min_size=1, max_size=6), st.floats(0, 1e5))
def test_a_split_never_exceeds_the_budget(children: list[Needs], extra_w: float) -> None:
    budget_w = sum(min(child.mean_w, child.limit_w) for child in children) + extra_w
    shares = split(budget_w, children)
    assert sum(shares) <= budget_w * (1 + 1e-9) or all(
        share == child.limit_w for share, child in zip(shares, children, strict=True)
    )
    for share, child in zip(shares, children, strict=True):
        assert share <= child.limit_w


@given(st.floats(0.02, 0.98), st.floats(0, 0.3), st.integers(60, 100))
@hypothesis_settings(max_examples=10)
def test_every_feed_stays_within_its_limit_and_more_power_loses_no_more(busy: float, more: float, kw: int) -> None:
    load = {"p50": busy, "p99": min(1.0, busy + more), "prompt_share": 0.2}
    groups = [group("batch", "row", load=load), group("chat", "row", priority="high", load=load)]
    plans = [planned(row(limit_w, groups)) for limit_w in (kw * 400.0, kw * 410.0)]
    for plan in plans:
        if plan.loss is not None:
            feed = plan.feed("row", 0)
            assert feed.peak_w <= (feed.limit_w or 0) * (1 + 2e-6)
            assert plan.bound is not None
            assert plan.bound <= plan.loss + 1e-9
    if plans[0].loss is not None:
        assert plans[1].loss is not None
        assert plans[1].loss <= plans[0].loss + 1e-6


def test_invalid_terms_are_refused() -> None:
    with pytest.raises(ValueError, match="must start at 1 and fall"):
        Terms(token_clocks=(0.9, 1.0))
    with pytest.raises(ValueError, match=r"less than or equal to 0\.5"):
        Terms(risk=0.7)
    assert issubclass(RuleError, ValueError)
