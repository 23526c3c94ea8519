"""Groups of nodes: slots, speeds, and the cost of a byte between nodes."""

import numpy as np
import pytest

from fleet.documents import RuleError, parse_document, read_model
from fleet.errors import UnknownNameError
from fleet.gpus import builtin_gpus
from fleet.topology import Topology, TopologyIndex
from placement.expert_group import ExpertMemory, Figure, expert_group, near_together

GIB = 2**30
MEMORY = ExpertMemory(experts=256, layers=58, expert_bytes=44_040_192, memory_share=0.6)  # DeepSeek-V3 in FP8

# Two leaves of four nodes each, 2:1 oversubscribed, below two spines; a third leaf behind a core; one rack of NVLink.
SITE = """
sites:
  - name: north
    network:
      - {name: "leaf-[1-2]", tier: leaf, uplinks: ["spine-[1-2]"], links_per_uplink: 2, link_gb_per_s: 25}
      - {name: leaf-3, tier: leaf, uplinks: [spine-3], links_per_uplink: 4, link_gb_per_s: 50}
      - {name: "spine-[1-2]", tier: spine, uplinks: [core-1], link_gb_per_s: 20}
      - {name: spine-3, tier: spine, uplinks: [core-1], link_gb_per_s: 400}
      - {name: core-1, tier: core}
    nodes:
      - {name: "a[1-4]", gpu: H100-SXM, gpus: 8, nic_gb_per_s: 50, leaves: [leaf-1]}
      - {name: "b[1-4]", gpu: H100-SXM, gpus: 8, nic_gb_per_s: 50, leaves: [leaf-2]}
      - {name: c1, gpu: A100-40GB-SXM, gpus: 8, nic_gb_per_s: 50, leaves: [leaf-3]}
      - {name: "n[1-2]", gpu: GB200, gpus: 4, nic_gb_per_s: 50, leaves: [leaf-3], scale_up_domain: rack-1}
      - {name: alone, gpu: H100-SXM, gpus: 8}
      - {name: cpu, gpus: 0}
      - {name: unnamed, gpus: 8}
"""


@pytest.fixture(scope="module")
def index() -> TopologyIndex:
    return read_model(parse_document(SITE, name="site"), Topology).index


def test_nodes_under_one_leaf_are_numbered_consecutively(index: TopologyIndex) -> None:
    assert near_together(index, ["a1", "b1", "a2", "b2", "a3"]) == ("a1", "a2", "a3", "b1", "b2")
    group = expert_group(index, ["b2", "a1", "b1", "a2"], catalogue=builtin_gpus(), memory=MEMORY)
    assert group.nodes == ("b2", "b1", "a1", "a2")
    assert group.layout.node_of_gpu.tolist() == [0] * 8 + [1] * 8 + [2] * 8 + [3] * 8


def test_costs_follow_the_narrowest_link(index: TopologyIndex) -> None:
    """NIC 50; leaf uplinks 2 x 2 x 25 = 100 for as many nodes as the group has there; spines 20 each, shared by all."""
    costs = expert_group(index, ["a1", "a2", "a3", "a4", "b1"], catalogue=builtin_gpus(), memory=MEMORY).node_costs
    assert costs[0, 1] == 1  # 50 GB/s of the NIC
    assert costs[0, 4] == pytest.approx(50 / 25)  # four of them share leaf-1's 100
    assert costs == pytest.approx(costs.T)
    assert np.diag(costs).tolist() == [0] * 5


def test_fewer_nodes_on_a_leaf_share_its_uplinks(index: TopologyIndex) -> None:
    costs = expert_group(index, ["a1", "a2", "b1"], catalogue=builtin_gpus(), memory=MEMORY).node_costs
    assert costs[0, 2] == 1  # 100 / 2 is no narrower than the NIC


def test_the_core_is_reached_through_spines(index: TopologyIndex) -> None:
    costs = expert_group(index, ["a1", "a2", "c1"], catalogue=builtin_gpus(), memory=MEMORY).node_costs
    assert costs[0, 2] == pytest.approx(50 / (2 * 20 / 2))  # both spines' 20 GB/s, shared by a1 and a2


def test_a_scale_up_domain_bypasses_the_nics(index: TopologyIndex) -> None:
    small = ExpertMemory(experts=64, layers=10, expert_bytes=44_040_192, memory_share=0.6)
    costs = expert_group(index, ["n1", "n2", "c1"], catalogue=builtin_gpus(), memory=small).node_costs
    link_gb_per_s = builtin_gpus().get("GB200").link_gb_per_s
    assert costs[0, 1] == 1
    assert costs[0, 2] == pytest.approx(4 * link_gb_per_s / 50)


def test_an_unknown_pair_costs_as_much_as_the_most_expensive_pair(index: TopologyIndex) -> None:
    costs = expert_group(
        index, ["a1", "a2", "a3", "a4", "b1", "alone"], catalogue=builtin_gpus(), memory=MEMORY
    ).node_costs
    assert costs[0, 5] == costs.max() == costs[0, 4]


def test_unknown_links_give_equal_costs(index: TopologyIndex) -> None:
    costs = expert_group(index, ["alone", "a1"], catalogue=builtin_gpus(), memory=MEMORY).node_costs
    assert costs.tolist() == [[0, 1], [1, 0]]


def test_speeds_are_relative_to_the_fastest(index: TopologyIndex) -> None:
    gpus = builtin_gpus()
    group = expert_group(index, ["a1", "a2", "c1"], catalogue=gpus, memory=MEMORY)
    ratio = gpus.get("A100-40GB-SXM").bandwidth_gb_per_s / gpus.get("H100-SXM").bandwidth_gb_per_s
    assert group.layout.speeds.tolist() == pytest.approx([1] * 16 + [ratio] * 8)
    by_compute = expert_group(index, ["a1", "a2", "c1"], catalogue=gpus, memory=MEMORY, figure="bf16").layout
    assert by_compute.speeds[-1] == pytest.approx(
        gpus.get("A100-40GB-SXM").dense_tflops["bf16"] / gpus.get("H100-SXM").dense_tflops["bf16"]
    )


def test_memory_limits_the_slots(index: TopologyIndex) -> None:
    gpus = builtin_gpus()
    group = expert_group(index, ["a1", "a2", "c1"], catalogue=gpus, memory=MEMORY)
    for kind, slots in (("H100-SXM", group.layout.slots_of_gpu[0]), ("A100-40GB-SXM", group.layout.slots_of_gpu[-1])):
        assert slots == int(gpus.get(kind).memory_bytes * 0.6 // (58 * 44_040_192))


@pytest.mark.parametrize("slots", [260, 288, 289, 359])
def test_given_slots_are_distributed_evenly_within_memory(index: TopologyIndex, slots: int) -> None:
    capacity = expert_group(index, ["a1", "a2", "c1"], catalogue=builtin_gpus(), memory=MEMORY).layout.slots_of_gpu
    got = expert_group(index, ["a1", "a2", "c1"], catalogue=builtin_gpus(), memory=MEMORY, slots=slots).layout
    assert got.slots == slots
    assert (got.slots_of_gpu <= capacity).all()
    not_full = got.slots_of_gpu[got.slots_of_gpu < capacity]
    assert not_full.size == 0 or got.slots_of_gpu.max() - not_full.min() <= 1


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "nodes: must name at least one node"),
        (["a1", "a1"], r"nodes\[1\]: is named before: 'a1'"),
        (["a1", "cpu"], r"nodes\[1\]: must have at least 1 GPU, 'cpu' has none"),
        (["a1", "unnamed"], r"nodes\[1\]: must have GPUs of a known type"),
        (["c1"], "nodes: must hold all 256 experts of a layer, there is memory for 80 slots"),
    ],
)
def test_an_invalid_group_of_nodes_is_refused(index: TopologyIndex, nodes: list[str], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        expert_group(index, nodes, catalogue=builtin_gpus(), memory=MEMORY)


def test_an_unknown_node_is_refused(index: TopologyIndex) -> None:
    with pytest.raises(UnknownNameError, match="unknown node 'a9'"):
        expert_group(index, ["a1", "a9"], catalogue=builtin_gpus(), memory=MEMORY)


@pytest.mark.parametrize("slots", [255, 10_000])
def test_slots_out_of_range_are_refused(index: TopologyIndex, slots: int) -> None:
    with pytest.raises(RuleError, match=rf"slots: must be from 256 to what memory holds \(\d+\), got {slots}"):
        expert_group(index, ["a1", "a2"], catalogue=builtin_gpus(), memory=MEMORY, slots=slots)


def test_a_missing_gpu_figure_is_refused(index: TopologyIndex) -> None:
    figure: Figure = "fp8"
    with pytest.raises(RuleError, match=r"figure: must be one that is known of A100-40GB-SXM \(bandwidth, .*got 'fp8'"):
        expert_group(index, ["a1", "a2", "c1"], catalogue=builtin_gpus(), memory=MEMORY, figure=figure)


def test_insufficient_memory_is_refused_with_the_required_share(index: TopologyIndex) -> None:
    memory = ExpertMemory(experts=256, layers=58, expert_bytes=GIB, memory_share=0.5)
    with pytest.raises(RuleError, match=r"memory_share: must be at least 0\.\d+ for one expert per layer on a H100"):
        expert_group(index, ["a1"], catalogue=builtin_gpus(), memory=memory)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("experts", 0, "experts: must be from 1 to 4096, got 0"),
        ("layers", 1001, "layers: must be from 1 to 1000, got 1001"),
        ("expert_bytes", 0, "expert_bytes: must be from 1 to 1000000000000, got 0"),
        ("memory_share", 1.5, "memory_share: must be above 0 and at most 1, got 1.5"),
    ],
)
def test_memory_out_of_range_is_refused(field: str, value: float, message: str) -> None:
    given: dict[str, float] = {"experts": 256, "layers": 58, "expert_bytes": GIB, "memory_share": 0.5}
    with pytest.raises(RuleError, match=message):
        ExpertMemory(**{**given, field: value})  # type: ignore[arg-type]
