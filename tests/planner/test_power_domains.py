"""Feeds of a power tree as power domains, and shadow prices of power."""

import pytest

from fleet.documents import RuleError
from planner import Plan
from planner.power_domains import power_domains
from power.caps import effective_limits, feed_headroom
from power.server_model import BLOOM_A100
from power.tree import Feed, PowerTree
from tests.planner.requests import given, solved
from tests.power.trees import group, row, two_rows

HOT = {"name": "hot", "gpu": "H100", "price_usd_per_h": 1, "max_rps": [[9, 9], [9, 9]]}
COOL = {"name": "cool", "gpu": "L4", "price_usd_per_h": 9, "max_rps": [[9, 9], [9, 9]]}


def test_feeds_become_power_domains_with_their_members() -> None:
    tree = two_rows(pdu_w=110_000.0, row_w=60_000.0)
    by_name = effective_limits(tree, feed_headroom(tree))
    names = [name for name in tree.hierarchy.feeds if name != "pdu"]
    domains = power_domains(tree, members={names[0]: ["chat/hot"], names[1]: ["chat/cool", "chat/hot"]})
    assert {one.name: one.limit_w for one in domains} == by_name
    members = {one.name: one.members for one in domains}
    assert members == {"pdu": ("chat/hot", "chat/cool"), names[0]: ("chat/hot",), names[1]: ("chat/cool", "chat/hot")}
    (alone, above) = sorted(power_domains(tree, members={names[0]: ["chat/hot"]}), key=lambda one: one.name != names[0])
    assert (alone.members, above.name, above.members) == (("chat/hot",), "pdu", ("chat/hot",))


def test_a_chain_of_feeds_without_servers_is_limited_by_its_lowest_budget() -> None:
    feeds = [
        Feed(name="ups", kind="ups", limit_w=9000.0),
        Feed(name="row", kind="row", parent="ups"),
    ]
    limited = feeds[0].model_copy(update={"budget_w": (8000.0, 7000.0)})
    tree = PowerTree(periods=2, feeds=(limited, feeds[1]))
    (domain,) = power_domains(tree)  # a chain: every server is below every feed
    assert (domain.name, domain.limit_w, domain.members) == ("ups", 7000.0, None)


def test_parallel_feeds_require_members() -> None:
    tree = two_rows(pdu_w=110_000.0, row_w=60_000.0)
    with pytest.raises(RuleError, match=r"members: must name the offers of each feed"):
        power_domains(tree)
    with pytest.raises(RuleError, match=r"members\.bdu: unknown feed of tree 'hall'; nearest: pdu"):
        power_domains(tree, members={"bdu": ["chat/hot"]})
    with pytest.raises(RuleError, match=r"members\.pdu: must name at least one offer"):
        power_domains(tree, members={"pdu": []})


def test_a_plan_respects_a_feed_and_prices_a_kilowatt() -> None:
    tree = PowerTree(periods=1, feeds=(Feed(name="row-1", kind="row", limit_w=2500.0),))
    domains = [domain.model_dump() for domain in power_domains(tree)]
    plan = solved(given(options=[HOT, COOL]), power_domains=domains)
    assert {entry.option for entry in plan.allocation} == {"hot", "cool"}
    (row_1,) = plan.power_domains
    assert (row_1.name, row_1.limit_w) == ("row-1", 2500.0)
    assert 0 < row_1.planned_w <= 2500.0
    assert row_1.usd_per_kw_h is not None
    assert row_1.usd_per_kw_h > 0
    (saving,) = solved(given(options=[HOT, COOL]), power_domains=domains, policy={"goal": "energy"}).power_domains
    assert saving.usd_per_kw_h is None


def test_an_effective_limit_admits_the_servers_that_fit() -> None:
    tree = row(60_000.0, [group("batch", "row"), group("chat", "row", priority="high")])
    (found,) = feed_headroom(tree)
    servers = 8 + found.capped.servers.low
    assert effective_limits(tree, [found]) == {"row": pytest.approx(servers * BLOOM_A100.prompt_w())}
    assert servers * BLOOM_A100.prompt_w() > 60_000.0  # not all servers peak at the same time


def test_the_price_of_a_kilowatt_matches_the_saving_of_more_power() -> None:
    def planned(limit_w: float) -> Plan:
        return solved(given(options=[HOT, COOL]), power_domains=[{"name": "row-1", "limit_w": limit_w}])

    def cost(limit_w: float) -> float:
        return planned(limit_w).cost_usd_per_h or 0.0

    price = planned(2500.0).power_domains[0].usd_per_kw_h
    assert price == pytest.approx(
        (cost(1200.0) - cost(3600.0)) / 2.4, rel=0.35
    )  # replicas are whole, so the price is coarse
    assert planned(1e6).power_domains[0].usd_per_kw_h == 0.0
