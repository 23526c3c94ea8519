"""Queries on a topology."""

from typing import Any

import pytest
from hypothesis import given

from fleet.errors import UnknownNameError
from fleet.topology import Distance, Topology
from tests.fleet.topology.sample_topologies import HALL, read, site, topologies


class TestIndex:
    index = read(HALL).index

    def test_elements_are_found_by_name(self) -> None:
        assert self.index.node("n-2").leaves == ("leaf-0", "leaf-1")
        assert self.index.switch("leaf-1").uplinks == ("spine-1", "spine-2")
        assert self.index.domains["row-a"].limit_w == 50_000
        assert self.index.sites["cloud"].zone == "eu-1a"
        assert self.index.site_of("c-1").name == "cloud"
        assert list(self.index.nodes) == ["n-1", "n-2", "n-3", "n-4", "c-1"]

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            (lambda index: index.node("n-9"), "unknown node 'n-9'; nearest: n-"),
            (lambda index: index.switch("leaf-9"), "unknown switch 'leaf-9'; nearest: leaf-"),
        ],
    )
    def test_an_unknown_name_is_reported_with_the_nearest_names(self, query: Any, message: str) -> None:
        with pytest.raises(UnknownNameError, match=message.replace("(", r"\(")):
            query(self.index)

    def test_the_power_path_runs_from_the_feed_to_the_node(self) -> None:
        assert [domain.name for domain in self.index.power_path("n-1")] == ["ups-1", "row-a", "rack-a1"]
        assert [domain.name for domain in self.index.power_path("n-4")] == ["ups-1", "row-b"]
        assert self.index.power_path("c-1") == ()

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

    def test_two_groups_of_one_rail_meet_at_its_spine(self) -> None:
        network = ['name: "a[0-1]", tier: leaf, uplinks: [s]', 'name: "b[0-1]", tier: leaf, uplinks: [s]']
        nodes = ['name: n, leaves: ["a[0-1]"]', 'name: m, leaves: ["b[0-1]"]']
        index = read(site(network=[*network, "name: s, tier: spine"], nodes=nodes)).index
        assert index.distance("n", "m") is Distance.SAME_RAIL

    def test_one_scale_up_fabric_is_nearer_than_any_switch(self) -> None:
        nodes = ['name: "n[1-2]", leaves: [l], scale_up_domain: nvl-1', "name: m, leaves: [l], scale_up_domain: nvl-2"]
        index = read(site(network=["name: l, tier: leaf"], nodes=nodes)).index
        assert index.distance("n1", "n2") is Distance.SAME_SCALE_UP
        assert index.distance("n1", "m") is Distance.SAME_LEAF


class TestInvariants:
    @given(topologies())
    def test_a_power_path_starts_at_a_feed_and_each_domain_is_the_parent_of_the_next(self, topology: Topology) -> None:
        for node in topology.index.nodes:
            path = topology.index.power_path(node)
            assert [domain.parent for domain in path] == [None, *(domain.name for domain in path[:-1])][: len(path)]
            assert [domain.kind.level for domain in path] == sorted(domain.kind.level for domain in path)

    @given(topologies())
    def test_distance_is_symmetric_and_same_node_only_for_one_node(self, topology: Topology) -> None:
        index = topology.index
        for node in index.nodes:
            for other in index.nodes:
                assert index.distance(node, other) is index.distance(other, node)
                assert (index.distance(node, other) is Distance.SAME_NODE) == (node == other)
