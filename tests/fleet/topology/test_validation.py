"""The rules between elements of a topology, and their error messages."""

import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import DocumentError
from tests.fleet.topology.sample_topologies import problems, read, site


class TestUniqueNames:
    def test_a_node_in_two_rows_is_reported_at_both_places(self) -> None:
        rows = ["name: row-a, kind: row", "name: row-b, kind: row"]
        nodes = ["name: n1, power_domain: row-a", "name: n2, power_domain: row-a", "name: n1, power_domain: row-b"]
        in_a, in_b = "is in row row-a", "is in row row-b"
        assert problems(site(power=rows, nodes=nodes)) == [
            f"line 8: sites[0].nodes[0]: node 'n1' {in_a} here, but {in_b} at sites[0].nodes[2]",
            f"line 10: sites[0].nodes[2]: node 'n1' {in_b} here, but {in_a} at sites[0].nodes[0]",
        ]

    def test_a_rack_in_two_rows_is_reported_at_both_places(self) -> None:
        text = site(power=["name: r, kind: rack, parent: a", "name: a, kind: row", "name: r, kind: rack, parent: b"])
        first, second = problems(text)
        assert first == "line 5: sites[0].power[0]: power domain 'r' is on a here, but is on b at sites[0].power[2]"
        assert second.startswith("line 7: sites[0].power[2]: power domain 'r' is on b here")

    def test_overlapping_ranges_are_refused(self) -> None:
        found = problems(site(nodes=['name: "n-[1-3]"', 'name: "n-[3-4]"']))
        assert len(found) == 2
        assert all("node 'n-3' is in site north here" in problem for problem in found)

    def test_names_are_unique_across_sites(self) -> None:
        (first, _) = problems("sites:\n  - {name: a, nodes: [{name: n}]}\n  - {name: b, nodes: [{name: n}]}\n")
        assert first == ("line 2: sites[0].nodes[0]: node 'n' is in site a here, but is in site b at sites[1].nodes[0]")

    def test_a_site_listed_twice_is_refused(self) -> None:
        assert problems("sites:\n  - name: a\n  - name: a\n") == ["line 3: sites[1].name: site 'a' is already sites[0]"]

    def test_the_number_of_reported_errors_is_bounded(self) -> None:
        assert len(problems(site(nodes=['name: "n-[1-500]"'] * 2))) == 100


class TestReferences:
    @pytest.mark.parametrize(
        ("parts", "problem"),
        [
            (
                {"power": ["name: row-a, kind: row"], "nodes": ["name: n, power_domain: row-1"]},
                "line 7: sites[0].nodes[0].power_domain: no power domain 'row-1' in site 'north'; nearest: row-a",
            ),
            (
                {"power": ["name: r, kind: rack, parent: row-9"]},
                "line 5: sites[0].power[0].parent: no power domain 'row-9' in site 'north'",
            ),
            (
                {"power": ["name: r, kind: rack", "name: p, kind: pdu, parent: r"]},
                "line 6: sites[0].power[1].parent: a pdu cannot be on a rack ('r'), allowed: ups, pdu",
            ),
            (
                {"network": ["name: s, tier: spine"], "nodes": ["name: n, leaves: [s]"]},
                "line 7: sites[0].nodes[0].leaves: 's' is a spine, expected a leaf",
            ),
            (
                {"network": ["name: l, tier: leaf, rail: 1"], "nodes": ["name: n, leaves: [l]"]},
                "line 7: sites[0].nodes[0].leaves: NIC 0 of 'n' cannot plug into 'l', which serves rail 1",
            ),
            (
                {"network": ["name: leaf-1, tier: leaf"], "nodes": ["name: n, leaves: [leaf-2]"]},
                "line 7: sites[0].nodes[0].leaves: no switch 'leaf-2' in site 'north'; nearest: leaf-1",
            ),
            (
                {"network": ["name: l, tier: leaf, uplinks: [c]", "name: c, tier: core"]},
                "line 5: sites[0].network[0].uplinks: 'c' is a core, expected a spine above a leaf",
            ),
            (
                {"network": ["name: l, tier: leaf, uplinks: [s, s]", "name: s, tier: spine"]},
                "line 5: sites[0].network[0].uplinks: names a switch twice, parallel links are links_per_uplink",
            ),
        ],
    )
    def test_a_reference_to_a_missing_or_wrong_element_is_refused(
        self, parts: dict[str, list[str]], problem: str
    ) -> None:
        assert problems(site(**parts)) == [problem]

    def test_a_reference_to_another_site_is_refused(self) -> None:
        first, second = "{name: a, power: [{name: r, kind: rack}]}", "{name: b, nodes: [{name: n, power_domain: r}]}"
        assert problems(f"sites:\n  - {first}\n  - {second}\n") == [
            "line 3: sites[1].nodes[0].power_domain: power domain 'r' is in site 'a', expected one of site 'b'"
        ]


class TestCycles:
    def test_a_domain_cannot_feed_itself(self) -> None:
        assert problems(site(power=["name: p, kind: pdu, parent: p"])) == [
            "line 5: sites[0].power[0].parent: is a cycle: p > p"
        ]

    def test_each_cycle_is_reported_once(self) -> None:
        power = ["name: x, kind: pdu, parent: a", "name: a, kind: pdu, parent: b", "name: b, kind: pdu, parent: c"]
        assert problems(site(power=[*power, "name: c, kind: pdu, parent: a", "name: y, kind: rack, parent: c"])) == [
            "line 6: sites[0].power[1].parent: is a cycle: a > b > c > a"
        ]

    def test_many_cycles_are_refused_quickly(self) -> None:
        text = site(power=[f"name: p{number}, kind: pdu, parent: p{number}" for number in range(5000)])
        before_s = time.process_time()
        assert len(problems(text)) == 100
        assert time.process_time() - before_s < 3


class TestSums:
    def test_child_domains_may_not_exceed_the_limit_of_their_parent(self) -> None:
        power = ["name: a, kind: row, limit_w: 1000", 'name: "r[1-3]", kind: rack, parent: a, limit_w: 400']
        (problem,) = problems(site(power=power))
        assert problem == (
            "line 5: sites[0].power[0].limit_w: row 'a' may carry 1,000 W (limit 1,000 W x oversubscription 1), "
            "but 1,200 W are on it (domains 1,200 W, nodes 0 W); "
            "allowed: a limit of at least 1,200 W, or an oversubscription of at least 1.2"
        )

    def test_nodes_may_not_exceed_the_limit_of_their_rack(self) -> None:
        power, nodes = ["name: r, kind: rack, limit_w: 20000"], ['name: "n[1-2]", power_domain: r, nominal_w: 10200']
        (problem,) = problems(site(power=power, nodes=nodes))
        assert "20,400 W are on it (domains 0 W, nodes 20,400 W)" in problem

    def test_load_up_to_the_oversubscribed_limit_is_allowed(self) -> None:
        power = ["name: r, kind: rack, limit_w: 20000, oversubscription: 1.02"]
        read(site(power=power, nodes=['name: "n[1-2]", power_domain: r, nominal_w: 10200']))
        with pytest.raises(DocumentError):
            read(site(power=power, nodes=['name: "n[1-2]", power_domain: r, nominal_w: 10200.01']))

    def test_2n_redundancy_adds_no_capacity(self) -> None:
        power = ["name: u, kind: ups, limit_w: 100, redundancy: 2N", "name: r, kind: row, parent: u, limit_w: 150"]
        assert len(problems(site(power=power))) == 1

    def test_a_domain_of_unknown_limit_counts_as_the_sum_below_it(self) -> None:
        power = ["name: a, kind: row, limit_w: 900", "name: r, kind: rack, parent: a", "name: s, kind: rack, parent: a"]
        nodes = ["name: n1, power_domain: r, nominal_w: 500", "name: n2, power_domain: s, nominal_w: 500"]
        (problem,) = problems(site(power=power, nodes=nodes))
        assert "1,000 W are on it (domains 1,000 W, nodes 0 W)" in problem

    def test_nodes_without_a_nameplate_add_no_load(self) -> None:
        read(site(power=["name: r, kind: rack, limit_w: 1"], nodes=["name: n, power_domain: r"]))

    @pytest.mark.parametrize(
        ("total", "problem"),
        [
            ("total_nodes: 3", "line 2: sites[0].total_nodes: is 3, but 2 nodes are listed"),
            ("total_gpus: 15", "line 2: sites[0].total_gpus: is 15, but the nodes listed hold 16"),
        ],
    )
    def test_declared_totals_must_match_the_listed_nodes(self, total: str, problem: str) -> None:
        text = "sites:\n  - {{name: a, nodes: [{{name: 'n[1-2]', gpu: L4, gpus: 8}}], {total}}}\n"
        read(text.format(total="total_nodes: 2, total_gpus: 16"))
        assert problems(text.format(total=total)) == [problem]

    @given(
        st.lists(st.integers(min_value=1, max_value=10_000), min_size=1, max_size=8),
        st.integers(min_value=1, max_value=40_000),
        st.sampled_from([1.0, 1.25, 2.0]),
    )
    def test_a_power_tree_is_valid_exactly_when_its_sums_fit(
        self, loads_w: list[int], limit_w: int, ratio: float
    ) -> None:
        power: list[dict[str, Any]] = [
            {"name": "top", "kind": "pdu", "limit_w": limit_w, "oversubscription": ratio},
            *(
                {"name": f"r{i}", "kind": "rack", "parent": "top", "limit_w": load}
                for i, load in enumerate(loads_w[1:])
            ),
        ]
        nodes = [{"name": "n", "power_domain": "top", "nominal_w": loads_w[0]}]
        text = yaml.safe_dump({"sites": [{"name": "s", "power": power, "nodes": nodes}]})
        if sum(loads_w) <= limit_w * ratio:
            read(text)
        else:
            assert f"{sum(loads_w):,} W are on it" in problems(text)[0]
