"""The additional servers that a feed can carry, against the same formula and against sampling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from power.caps import Terms, feed_headroom, with_risk
from power.caps.headroom import Running, chance_above, sampled_w
from power.caps.power_model import busy_in, peak_w, working
from power.tree import PowerTree
from tests.power.trees import group, row, two_rows

LOAD = {"p50": 0.6, "p99": 0.75, "prompt_share": 0.15}
CHECKED = 40_000


def fifty(limit_w: float, **fields: object) -> PowerTree:
    groups = [
        group("batch", "row", count=20, load=LOAD),
        group("chat", "row", count=30, priority="high", load=LOAD),
    ]
    return row(limit_w, groups, **fields)


def peak_of(tree: PowerTree, count: int) -> float:
    """The peak of the tree's classes, scaled to `count` servers in all."""
    total = sum(one.group.count for one in tree.hierarchy.classes)
    terms, draws = Terms(), []
    for one in tree.hierarchy.classes:
        at = working(one, busy_in(one.group, 0), sigmas=terms.sigmas)
        share = count / total
        grown = at._replace(mean_w=at.mean_w * share, noise_w=at.noise_w * share**0.5, error_w=at.error_w * share)
        draws.append(grown.draw(tree.correlation.mid))
    return peak_w(draws, sigmas=terms.sigmas)


@given(st.integers(20, 100))
def test_headroom_is_the_largest_server_count_that_fits(servers: int) -> None:
    tree = fifty(peak_of(fifty(1e6), servers) + 1.0)
    growth = feed_headroom(tree)[0].uncapped
    assert 50 + growth.servers.mid == servers
    assert growth.limited_by == "row"


def test_caps_add_headroom_and_the_interval_contains_the_middle_value() -> None:
    (found,) = feed_headroom(fifty(240_000.0))
    assert found.servers == 50
    for growth in (found.uncapped, found.capped):
        assert growth.servers.low <= growth.servers.mid <= growth.servers.high
        assert growth.stranded_w.low <= growth.stranded_w.mid <= growth.stranded_w.high
    assert found.capped.servers.mid > found.uncapped.servers.mid
    assert found.capped.stranded_w.mid > found.uncapped.stranded_w.mid


def test_a_full_feed_limits_the_feeds_below_it() -> None:
    tree = two_rows(pdu_w=70_000.0, row_w=60_000.0)
    by_name = {found.feed: found.uncapped for found in feed_headroom(tree)}
    assert by_name["row-1"].limited_by == by_name["pdu"].limited_by == "pdu"
    assert by_name["row-1"].servers.mid <= by_name["pdu"].servers.mid


def test_a_feed_with_too_many_servers_has_negative_headroom() -> None:
    (found,) = feed_headroom(fifty(150_000.0))
    assert found.uncapped.servers.mid < 0
    assert found.uncapped.stranded_w.mid < 0


def test_a_lower_risk_allows_fewer_servers() -> None:
    held = [
        feed_headroom(fifty(240_000.0), terms=Terms(risk=risk))[0].uncapped.servers.mid for risk in (1e-1, 1e-2, 1e-4)
    ]
    assert held == sorted(held, reverse=True)
    assert held[0] > held[-1]


@pytest.mark.parametrize("capped", [False, True])
def test_sampling_confirms_the_requested_risk(*, capped: bool) -> None:
    tree, terms = fifty(240_000.0), Terms(risk=1e-2)
    (found,) = feed_headroom(tree, terms=terms)
    checked = with_risk(tree, found, samples=CHECKED, rng=np.random.default_rng(7), terms=terms)
    risk = (checked.capped if capped else checked.uncapped).risk
    assert risk is not None
    assert risk.low <= risk.mid <= risk.high
    assert 0.3e-2 < risk.mid < 1.3e-2  # whole servers leave a margin; the formula uses a normal distribution


def test_the_formula_has_the_mean_and_spread_of_the_samples() -> None:
    tree = fifty(240_000.0)
    sigmas = Terms().sigmas
    classes = [Running(one, busy_in(one.group, 0), 0.8, 0.9, one.group.count) for one in tree.hierarchy.classes]
    watts = sampled_w(classes, correlation=0.5, samples=CHECKED, rng=np.random.default_rng(1))
    draws = [
        working(one, busy_in(one.group, 0), token_clock=0.8, prompt_clock=0.9, sigmas=sigmas).draw(0.5)
        for one in tree.hierarchy.classes
    ]
    assert watts.mean() == pytest.approx(peak_w(draws, sigmas=0), rel=2e-3)
    spread_w = peak_w(draws, sigmas=1) - peak_w(draws, sigmas=0)
    assert watts.std() == pytest.approx(spread_w, rel=0.03)
    at = chance_above(float(np.quantile(watts, 0.99)), watts)
    assert at.low < 0.01 < at.high
