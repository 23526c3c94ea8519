"""What can be asked of a topology."""

from typing import Any

import pytest
from hypothesis import given

from fleet.errors import UnknownNameError
from fleet.topology import Distance, Topology
from fleet.topology.hostlist import count
from tests.fleet.topology.halls import HALL, read, site, topologies


class TestIndex:
    index = read(HALL).index

    def test_parts_are_found_by_their_own_names(self) -> None:
        assert self.index.node("n-2").leaves == ("leaf-0", "leaf-1")
        assert self.index.switch("leaf-1").uplinks == ("spine-1", "spine-2")
        assert self.index.domain("row-a").limit_w == 50_000
        assert self.index.site("cloud").zone == "eu-1a"
        assert self.index.site_of("c-1").name == "cloud"
        assert list(self.index.nodes) == ["n-1", "n-2", "n-3", "n-4", "c-1"]

    @pytest.mark.parametrize(
        ("ask", "message"),
        [
            (lambda index: index.node("n-9"), "unknown node 'n-9'; nearest: n-"),
            (lambda index: index.domain("row-c"), "unknown power domain 'row-c'; nearest: row-"),
            (lambda index: index.switch("leaf-9"), "unknown switch 'leaf-9'; nearest: leaf-"),
            (lambda index: index.site("nrth"), "unknown site 'nrth'; nearest: north"),
            (lambda index: index.rail_distance("n-1", "n-2", rail=2, other_rail=0), "unknown rail of n-1 '2'"),
        ],
    )
    def test_what_is_not_there_is_named(self, ask: Any, message: str) -> None:
        with pytest.raises(UnknownNameError, match=message.replace("(", r"\(")):
            ask(self.index)

    def test_the_power_path_runs_from_the_feed_to_the_node(self) -> None:
        assert [domain.name for domain in self.index.power_path("n-1")] == ["ups-1", "row-a", "rack-a1"]
        assert [domain.name for domain in self.index.power_path("n-4")] == ["ups-1", "row-b"]
        assert self.index.power_path("c-1") == ()

    def test_what_hangs_on_a_domain(self) -> None:
        assert [domain.name for domain in self.index.domains_on("row-a")] == ["rack-a1", "rack-a2"]
        assert [node.name for node in self.index.nodes_under("row-b")] == ["n-4", "n-3"]
        assert [node.name for node in self.index.nodes_under("rack-a2")] == []

    def test_rails_and_leaves(self) -> None:
        assert [leaf.name for leaf in self.index.leaves_of("n-1")] == ["leaf-0", "leaf-1"]
        assert [node.name for node in self.index.nodes_on("leaf-1")] == ["n-1", "n-2"]

    def test_gpus_are_counted_by_type(self) -> None:
        assert self.index.gpu_counts() == {"H100-SXM": 16, "L40S": 5}

    @pytest.mark.parametrize(
        ("node", "other", "distance"),
        [
            ("n-1", "n-1", Distance.SAME_NODE),
            ("n-1", "n-2", Distance.SAME_LEAF),
            ("n-1", "n-3", Distance.VIA_CORE),
            ("n-1", "n-4", Distance.UNKNOWN),
            ("n-1", "c-1", Distance.UNKNOWN),
        ],
    )
    def test_distance_is_that_of_the_nearest_nics(self, node: str, other: str, distance: Distance) -> None:
        assert self.index.distance(node, other) is distance
        assert self.index.distance(other, node) is distance

    @pytest.mark.parametrize(
        ("rail", "other_rail", "distance"),
        [(0, 0, Distance.SAME_LEAF), (0, 1, Distance.VIA_SPINE), (1, 1, Distance.SAME_LEAF)],
    )
    def test_distance_between_rails(self, rail: int, other_rail: int, distance: Distance) -> None:
        assert self.index.rail_distance("n-1", "n-2", rail=rail, other_rail=other_rail) is distance

    def test_a_nic_is_next_to_itself(self) -> None:
        assert self.index.rail_distance("n-1", "n-1", rail=1, other_rail=1) is Distance.SAME_NODE

    def test_two_groups_of_one_rail_meet_at_its_spine(self) -> None:
        network = ['name: "a[0-1]", tier: leaf, uplinks: [s]', 'name: "b[0-1]", tier: leaf, uplinks: [s]']
        nodes = ['name: n, leaves: ["a[0-1]"]', 'name: m, leaves: ["b[0-1]"]']
        index = read(site(network=[*network, "name: s, tier: spine"], nodes=nodes)).index
        assert index.distance("n", "m") is Distance.SAME_RAIL
        assert index.rail_distance("n", "m", rail=0, other_rail=1) is Distance.VIA_SPINE

    def test_one_scale_up_fabric_is_nearer_than_any_switch(self) -> None:
        nodes = ['name: "n[1-2]", leaves: [l], scale_up_domain: nvl-1', "name: m, leaves: [l], scale_up_domain: nvl-2"]
        index = read(site(network=["name: l, tier: leaf"], nodes=nodes)).index
        assert index.distance("n1", "n2") is Distance.SAME_SCALE_UP
        assert index.distance("n1", "m") is Distance.SAME_LEAF


class TestInvariants:
    @given(topologies())
    def test_a_node_is_under_exactly_the_domains_on_its_path(self, topology: Topology) -> None:
        index = topology.index
        for node in index.nodes:
            path = {domain.name for domain in index.power_path(node)}
            under = {name for name in index.domains if node in {each.name for each in index.nodes_under(name)}}
            assert path == under

    @given(topologies())
    def test_a_path_descends_from_a_feed_and_each_step_hangs_on_the_one_before(self, topology: Topology) -> None:
        for node in topology.index.nodes:
            path = topology.index.power_path(node)
            assert [domain.parent for domain in path] == [None, *(domain.name for domain in path[:-1])][: len(path)]
            assert [domain.kind.level for domain in path] == sorted(domain.kind.level for domain in path)

    @given(topologies())
    def test_distance_is_symmetric_and_zero_only_at_home(self, topology: Topology) -> None:
        index = topology.index
        for node in index.nodes:
            for other in index.nodes:
                assert index.distance(node, other) is index.distance(other, node)
                assert (index.distance(node, other) is Distance.SAME_NODE) == (node == other)

    @given(topologies())
    def test_every_gpu_is_counted_once(self, topology: Topology) -> None:
        listed = sum(count(node.name) * node.gpus for site in topology.sites for node in site.nodes)
        assert sum(topology.index.gpu_counts().values()) == listed
