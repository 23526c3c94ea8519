"""A power tree is read from a file; violations name their place and the allowed range."""

from typing import Any

import pytest
from pydantic import ValidationError

from fleet.documents import parse_document, read_model
from fleet.errors import DocumentError, UnknownNameError
from fleet.topology import Topology
from power.tree import PowerTree, feeds_of

TREE = """
name: hall
periods: 3
feeds:
- {name: ups, kind: ups, limit_w: 500000, redundancy: 2N, ride_through_share: 1.2}
- {name: "row-[1-2]", kind: row, parent: ups, oversubscription: 1.4, limit_w: 232000,
   budget_w: [232000, 220000, 200000]}
groups:
- name: chat
  power_domain: row-[1-2]
  server: 8xA100-80GB BLOOM-176B
  count: 52
  priority: high
  load: {p50: [0.5, 0.6, 0.7], p95: [0.6, 0.7, 0.75], p99: [0.6, 0.8, 0.8]}
"""


def read(text: str) -> PowerTree:
    return read_model(parse_document(text, name="tree.yaml"), PowerTree)


def test_name_ranges_are_expanded() -> None:
    hierarchy = read(TREE).hierarchy
    assert [one.name for one in hierarchy.classes] == ["chat/row-1", "chat/row-2"]
    assert hierarchy.classes[1].feeds == ("row-2", "ups")
    assert list(hierarchy.top_down()) == ["ups", "row-1", "row-2"]
    assert hierarchy.below["ups"] == [0, 1]
    assert hierarchy.children["ups"] == ["row-1", "row-2"]


def test_one_side_carries_the_limit_and_two_sides_the_ride_through_share() -> None:
    hierarchy = read(TREE).hierarchy
    ups, row = hierarchy.feeds["ups"], hierarchy.feeds["row-1"]
    assert (ups.may_draw_w(0), ups.may_draw_on_one_side_w(0)) == (600_000, 500_000)
    assert [row.may_draw_w(period) for period in range(3)] == [232_000, 220_000, 200_000]
    assert hierarchy.on_one_side("row-1")


def test_the_spread_comes_from_the_farthest_quantile() -> None:
    load = read(TREE).groups[0].load
    assert load is not None
    assert load.spread(0) == pytest.approx(0.1 / 1.644854, rel=1e-5)
    assert load.spread(1) == pytest.approx(0.2 / 2.326348, rel=1e-5)
    assert load.expected(0) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("parent: ups", "parent: upz", "feeds[1].parent: no power domain 'upz' in site 'hall'; nearest: ups"),
        ("power_domain: row-[1-2]", "power_domain: row-[1-3]", "groups[0].power_domain: no power domain 'row-3'"),
        (
            "[232000, 220000",
            "[232000, 220000.5, 240000",
            "feeds[1].budget_w[2]: is above the rating, allowed: 0 to 232,000",
        ),
        ("[232000, 220000", "[232000, -5", "feeds[1].budget_w[1]: input should be greater than or equal to 0, got -5"),
        ("limit_w: 500000", "limit_w: -500000", "feeds[0].limit_w: input should be greater than 0"),
        ("limit_w: 500000", "limit_w: 400000", "feeds[0].limit_w: ups 'ups' may carry 400,000 W"),
        ("oversubscription: 1.4", "oversubscription: 1.2", "feeds[1].limit_w: row 'row-1' may carry 278,400 W"),
        ("kind: ups, limit_w", "kind: ups, parent: row-1, limit_w", "feeds[0].parent: a ups cannot be on a row"),
        (", 0.7], p95", "], p95", "groups[0].load: must give all quantiles for as many periods, got 2 and 3"),
        ("p99: [0.6, 0.8", "p99: [0.6, 0.65", "groups[0].load.p99: must be at least p95 in every period"),
        ("periods: 3", "periods: 4", "feeds[1].budget_w: must be one figure or one for each of 4 periods, got 3"),
        ("BLOOM-176B", "BLOOM-177B", "groups[0].server: no server '8xA100-80GB BLOOM-177B' is described"),
        ("count: 52", "count: 0", "groups[0].count: input should be greater than or equal to 1, got 0"),
        ("redundancy: 2N, ", "", "feeds[0].ride_through_share: must be 1 on a feed with redundancy N"),
        ("name: ups, kind", "name: row-2, kind", "power domain 'row-2' is already feeds[0]"),
    ],
)
def test_each_violation_names_its_field(old: str, new: str, message: str) -> None:
    assert old in TREE
    with pytest.raises(DocumentError) as caught:
        read(TREE.replace(old, new, 1))
    assert message in str(caught.value)


def test_a_cycle_is_named() -> None:
    text = TREE.replace("kind: ups,", "kind: row, parent: row-1,")
    with pytest.raises(DocumentError, match="is a cycle: ups > row-1 > ups"):
        read(text)


def test_a_group_either_serves_or_trains() -> None:
    with pytest.raises(DocumentError, match="must have either load or training"):
        read(TREE[: TREE.index("  load:")])


def test_a_topology_gives_the_feeds() -> None:
    site: dict[str, Any] = {
        "name": "west",
        "power": [
            {"name": "ups", "kind": "ups", "limit_w": 9e5, "redundancy": "2N"},
            {"name": "row-[1-2]", "kind": "row", "parent": "ups", "limit_w": 2.5e5},
        ],
    }
    topology = Topology.model_validate({"sites": [site]})
    feeds = feeds_of(topology)
    assert [feed.name for feed in feeds] == ["ups", "row-[1-2]"]
    assert feeds[1].may_draw_w(7) == 2.5e5
    assert PowerTree(feeds=feeds).hierarchy.feeds["row-2"].parent == "ups"
    with pytest.raises(UnknownNameError, match="unknown site 'east'"):
        feeds_of(topology, site="east")


def test_too_many_entries_are_reported_before_validation() -> None:
    for field, most in (("feeds", 10_000), ("servers", 1_000), ("groups", 10_000)):
        with pytest.raises(ValidationError, match=f"{field}: must have at most {most:,} entries|at most {most:,}"):
            PowerTree.model_validate({"feeds": [{"name": "ups", "kind": "ups"}], field: [{}] * (most + 1)})


def test_the_depth_of_feeds_is_limited() -> None:
    chain = [
        {"name": f"f{depth}", "kind": "row", "limit_w": 9.0} | ({"parent": f"f{depth - 1}"} if depth else {})
        for depth in range(33)
    ]
    assert len(list(PowerTree.model_validate({"feeds": chain[:32]}).hierarchy.upwards("f31"))) == 32
    with pytest.raises(
        ValidationError, match=r"feeds\[32\]\.parent: has 32 feeds or more above it, allowed: at most 31"
    ):
        PowerTree.model_validate({"feeds": chain})
