"""Feeds of a power tree as power domains, and shadow prices of power."""

from typing import Any

import pytest

from fleet.documents import RuleError
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner import PlanRequest
from planner.power_domains import power_domains, usd_per_kw_h
from power.caps import Terms, effective_limits, feed_headroom, plan_caps
from power.caps.effective_limits import reweighted
from power.tree import Feed, PowerTree
from tests.planner.requests import given, solved
from tests.power.trees import group, row, two_rows

HOT = {"name": "hot", "gpu": "H100", "price_usd_per_h": 1, "max_rps": [[9, 9], [9, 9]]}
COOL = {"name": "cool", "gpu": "L4", "price_usd_per_h": 9, "max_rps": [[9, 9], [9, 9]]}


def priced(**changes: Any) -> dict[str, float]:
    request = PlanRequest.model_validate({**given(options=[HOT, COOL]), **changes})
    return usd_per_kw_h(request, gpus=builtin_gpus(), models=builtin_models(), offers=())


def test_feeds_become_power_domains_with_the_members_below_them() -> None:
    tree = two_rows(pdu_w=110_000.0, row_w=60_000.0)
    by_name = {limit.feed: limit.limit_w for limit in effective_limits(tree, feed_headroom(tree))}
    names = [name for name in tree.hierarchy.feeds if name != "pdu"]
    domains = power_domains(tree, members={names[0]: ["chat/hot"], names[1]: ["chat/cool", "chat/hot"]})
    assert {one.name: one.limit_w for one in domains} == by_name
    members = {one.name: one.members for one in domains}
    assert members == {"pdu": ("chat/hot", "chat/cool"), names[0]: ("chat/hot",), names[1]: ("chat/cool", "chat/hot")}
    (alone, above) = sorted(power_domains(tree, members={names[0]: ["chat/hot"]}), key=lambda one: one.name != names[0])
    assert (alone.members, above.name, above.members) == (("chat/hot",), "pdu", ("chat/hot",))


def test_a_feed_without_servers_has_what_it_may_draw() -> None:
    feeds = [
        Feed(name="ups", kind="ups", limit_w=9000.0),
        Feed(name="row", kind="row", parent="ups"),
    ]
    limited = feeds[0].model_copy(update={"budget_w": (8000.0, 7000.0)})
    tree = PowerTree(periods=2, feeds=(limited, feeds[1]))
    (domain,) = power_domains(tree)  # a chain: all stands on all of it
    assert (domain.name, domain.limit_w, domain.members) == ("ups", 7000.0, None)


def test_members_of_parallel_feeds_must_be_given() -> None:
    tree = two_rows(pdu_w=110_000.0, row_w=60_000.0)
    with pytest.raises(RuleError, match=r"members: must name the offers of each feed"):
        power_domains(tree)
    with pytest.raises(RuleError, match=r"members\.bdu: unknown feed of tree 'hall'; nearest: pdu"):
        power_domains(tree, members={"bdu": ["chat/hot"]})
    with pytest.raises(RuleError, match=r"members\.pdu: must name at least one offer"):
        power_domains(tree, members={"pdu": []})


def test_a_plan_keeps_to_a_feed_and_prices_a_kilowatt() -> None:
    tree = PowerTree(periods=1, feeds=(Feed(name="row-1", kind="row", limit_w=2500.0),))
    domains = [domain.model_dump() for domain in power_domains(tree)]
    plan = solved(given(options=[HOT, COOL]), power_domains=domains)
    assert {entry.option for entry in plan.allocation} == {"hot", "cool"}
    (row_1,) = plan.power_domains
    assert (row_1.name, row_1.limit_w) == ("row-1", 2500.0)
    assert 0 < row_1.planned_w <= 2500.0
    assert row_1.usd_per_kw_h == priced(power_domains=domains)["row-1"] > 0
    (saving,) = solved(given(options=[HOT, COOL]), power_domains=domains, policy={"goal": "energy"}).power_domains
    assert saving.usd_per_kw_h is None


def test_a_watt_is_worth_what_more_of_them_would_save() -> None:
    def cost(limit_w: float) -> float:
        request = given(options=[HOT, COOL])
        plan = solved(request, power_domains=[{"name": "row-1", "limit_w": limit_w}])
        assert plan.cost_usd_per_h is not None
        return plan.cost_usd_per_h

    price = priced(power_domains=[{"name": "row-1", "limit_w": 2500.0}])["row-1"]
    assert price == pytest.approx((cost(1200.0) - cost(3600.0)) / 2.4, rel=0.35)  # whole replicas: no finer
    assert priced(power_domains=[{"name": "row-1", "limit_w": 1e6}]) == {"row-1": 0.0}
    assert priced() == {}


def test_other_goals_price_no_watts() -> None:
    with pytest.raises(RuleError, match=r"policy\.goal: must be cost or"):
        priced(policy={"goal": "energy"})


def test_an_effective_limit_holds_the_servers_that_fit() -> None:
    tree = row(60_000.0, [group("batch", "row"), group("chat", "row", priority="high")])
    (limit,) = effective_limits(tree, feed_headroom(tree), conservative=False)
    assert limit.servers == 8 + feed_headroom(tree)[0].capped.servers.mid
    assert limit.carried_w == 60_000.0
    assert limit.limit_w > 60_000.0  # they do not all peak at once


def test_dear_watts_weigh_more() -> None:
    tree = two_rows(pdu_w=67_500.0, row_w=60_000.0)
    plan = plan_caps(tree, terms=Terms())
    weighted = reweighted(tree, plan, {"pdu": 12.0})
    again = plan_caps(weighted, terms=Terms())
    assert plan.binding == again.binding == "pdu"
    assert again.periods[0].loss_per_kw("pdu") == pytest.approx(12.0, rel=1e-3)  # now in $/h per kW
    assert [one.token_clock for one in again.periods[0].classes] == [one.token_clock for one in plan.periods[0].classes]
    assert reweighted(tree, plan, {"elsewhere": 5.0}) is tree
