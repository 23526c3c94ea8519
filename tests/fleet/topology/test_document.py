"""Topology documents: accepted forms, and errors within one element."""

from pathlib import Path

import pytest
from hypothesis import given

from fleet.documents import write_model
from fleet.topology import Node, PowerDomain, PowerKind, Redundancy, Switch, Tier, Topology
from fleet.topology.hostlist import MAX_RANGE
from tests.fleet.topology.sample_topologies import HALL, gpu_counts, problems, read, site, topologies


class TestForm:
    @pytest.mark.parametrize("text", ["sites: []", "{}", "sites:\n  - name: north\n"])
    def test_an_empty_or_sparse_document_is_valid(self, text: str) -> None:
        assert read(text).index.nodes == {}

    def test_elements_keep_the_written_values(self) -> None:
        hall = read(HALL).sites[0]
        assert hall.power[0] == PowerDomain(
            name="ups-1", kind=PowerKind.UPS, limit_w=100_000.0, redundancy=Redundancy.TWO_SIDES
        )
        assert hall.network[0] == Switch(name="leaf-[0-1]", tier=Tier.LEAF, uplinks=("spine-[1-2]",))
        assert hall.nodes[2] == Node(name="n-4", power_domain="row-b", nominal_w=500.0)

    def test_the_documented_example_is_valid(self) -> None:
        page = (Path(__file__).parents[3] / "docs" / "reference" / "topology.md").read_text(encoding="utf-8")
        topology = read(page.split("```yaml\n")[1].split("```")[0])
        assert gpu_counts(topology) == {"H100-SXM": 64, "H200-SXM": 64}

    def test_gpu_mentions_have_their_path(self) -> None:
        assert list(read(HALL).gpu_mentions())[1] == (("sites", 0, "nodes", 1, "gpu"), "L40S")

    @pytest.mark.parametrize(
        ("part", "problem"),
        [
            ("power: [{name: r, kind: shelf}]", "kind: input should be 'ups', 'pdu', 'row' or 'rack', got 'shelf'"),
            ("power: [{name: r, kind: rack, limit_w: 0}]", "limit_w: input should be greater than 0, got 0"),
            ("power: [{name: r, kind: rack, limit_w: .nan}]", "limit_w: expected a finite number, got nan"),
            (
                "power: [{name: r, kind: rack, oversubscription: 0.9}]",
                "oversubscription: input should be greater than or equal to 1, got 0.9",
            ),
            ("power: [{name: r, kind: rack, redundancy: 3N}]", "redundancy: input should be 'N' or '2N', got '3N'"),
            ("nodes: [{name: n, gpus: -1}]", "gpus: input should be greater than or equal to 0, got -1"),
            ("nodes: [{name: n, gpu: L4}]", "gpus: must be 1 to 128 on a node with L4 GPUs"),
            ('nodes: [{name: n, leaves: ["l[00-64]"]}]', "leaves: allowed: at most 64 leaves, one per rail"),
            ("network: [{name: s, tier: spine, rail: 1}]", "rail: only a leaf serves a rail, this is a spine"),
            ("network: [{name: c, tier: core, uplinks: [d]}]", "uplinks: a core switch has no uplinks"),
        ],
    )
    def test_an_element_with_an_invalid_field_is_refused(self, part: str, problem: str) -> None:
        kind = part.partition(":")[0]
        assert problems(f"sites:\n  - name: north\n    {part}\n") == [f"line 3: sites[0].{kind}[0].{problem}"]

    @pytest.mark.parametrize("name", ["", "-a", "a b", "a[1-2", "a[1-2][3-4]", "a[1-]", "a" * 300])
    def test_an_invalid_name_is_refused(self, name: str) -> None:
        (problem,) = problems(site(nodes=[f'name: "{name}"']))
        assert problem.startswith("line 5: sites[0].nodes[0].name: ")

    @pytest.mark.parametrize("name", ["a[2-1]", "a[0-4096]"])
    def test_a_falling_or_too_long_range_is_refused(self, name: str) -> None:
        (problem,) = problems(site(nodes=[f'name: "{name}"']))
        assert f"must rise and have at most {MAX_RANGE} names" in problem

    def test_the_total_number_of_names_is_bounded(self) -> None:
        many = [f'name: "n{position}-[0001-4096]"' for position in range(49)]
        assert problems(site(nodes=many)) == [
            "line 1: sites: has 200,704 domains, switches and nodes, allowed: at most 200,000"
        ]

    @given(topologies())
    def test_writing_and_reading_gives_the_same(self, topology: Topology) -> None:
        assert read(write_model(topology)) == topology
        assert read(topology.model_dump_json()) == topology
