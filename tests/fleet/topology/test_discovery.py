"""A topology from the labels of a running cluster: elements, missing labels and contradictions."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import DocumentError, UnknownNameError
from fleet.topology import (
    Discovery,
    Distance,
    LabelNames,
    PowerKind,
    Topology,
    topology_from_kubernetes_nodes,
    topology_from_ray_nodes,
)
from tests.fleet.topology.sample_topologies import gpu_counts

NODE_ID = "3f1c9a"


def ray_node(
    node_id: str = NODE_ID,
    *,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, float] | None = None,
    alive: bool = True,
) -> dict[str, Any]:
    """A shortened record of `ray.nodes()`."""
    return {
        "NodeID": node_id,
        "Alive": alive,
        "NodeManagerAddress": "127.0.0.1",
        "NodeManagerHostname": "host",
        "Resources": {"CPU": 4.0, "memory": 1e9, **(resources or {})},
        "Labels": {"ray.io/node-id": node_id, **(labels or {})},
    }


def kube_node(
    name: str, *, labels: Mapping[str, str] | None = None, capacity: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A shortened node object of the Kubernetes API."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"unschedulable": True},
        "status": {"capacity": {"cpu": "8", **(capacity or {})}},
    }


def place(**levels: str) -> dict[str, str]:
    """Our own labels: `place(rack="r1", leaf_rail_0="l0")`."""
    return {f"fleetwright.io/{level.replace('_', '-')}": name for level, name in levels.items()}


def unknown(found: Discovery) -> dict[str, tuple[str, ...]]:
    return {each.subject: each.nodes for each in found.unknown}


@pytest.mark.parametrize("name", ["fleetwright.io/pdu", "fleetwright.io/power-domain", "cluster/power-domain"])
def test_any_power_domain_label_names_a_pdu(name: str) -> None:
    node = ray_node(labels={name: "north", "fleetwright.io/rack": "r1"})
    index = topology_from_ray_nodes([node]).topology.index
    assert [(domain.name, domain.kind) for domain in index.power_path(NODE_ID)] == [("north", "pdu"), ("r1", "rack")]


class TestRay:
    def test_labels_of_ray_and_of_the_cluster_are_read(self) -> None:
        labels = {
            "ray.io/accelerator-type": "NVIDIA_H100",
            "cluster/rack": "r1",
            "cluster/power-domain": "pd-r1",
            "ray.io/availability-zone": "eu-1a",
            "ray.io/availability-region": "eu-1",
        }
        found = topology_from_ray_nodes([ray_node(labels=labels, resources={"GPU": 8.0})])
        (site,) = found.topology.sites
        assert (site.name, site.zone, site.region) == ("eu-1a", "eu-1a", "eu-1")
        node = found.topology.index.node(NODE_ID)
        assert (node.gpu, node.gpus, node.power_domain) == ("NVIDIA_H100", 8, "r1")
        path = found.topology.index.power_path(NODE_ID)
        assert [(domain.name, domain.kind) for domain in path] == [("pd-r1", PowerKind.PDU), ("r1", PowerKind.RACK)]
        assert set(unknown(found)) == {"ups", "row", "leaf"}

    def test_without_a_label_the_accelerator_resource_names_the_gpu(self) -> None:
        found = topology_from_ray_nodes([ray_node(resources={"GPU": 4.0, "accelerator_type:A10G": 1.0})])
        assert gpu_counts(found.topology) == {"A10G": 4}

    def test_dead_nodes_are_left_out(self) -> None:
        found = topology_from_ray_nodes([ray_node("a", alive=False), ray_node("b")])
        assert list(found.topology.index.nodes) == ["b"]

    def test_a_label_may_name_a_node(self) -> None:
        found = topology_from_ray_nodes([ray_node(labels=place(node="n-1"))])
        assert list(found.topology.index.nodes) == ["n-1"]

    def test_no_nodes_are_an_empty_topology(self) -> None:
        assert topology_from_ray_nodes([]) == Discovery(topology=Topology(), unknown=())


class TestKubernetes:
    def test_standard_and_vendor_labels_are_read(self) -> None:
        labels = {
            "topology.kubernetes.io/region": "eu-1",
            "topology.kubernetes.io/zone": "eu-1a",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "fabric.topograph.run/tier-0": "leaf-1",
            "network.topology.nvidia.com/spine": "spine-1",
            "nvidia.com/gpu.clique": "c0ffee.1",
            **place(rack="r1", row="a"),
        }
        nodes = [kube_node(name, labels=labels, capacity={"nvidia.com/gpu": "8"}) for name in ("n1", "n2")]
        topology = topology_from_kubernetes_nodes(nodes).topology
        index = topology.index
        assert gpu_counts(topology) == {"NVIDIA-H100-80GB-HBM3": 16}
        assert [domain.name for domain in index.power_path("n2")] == ["a", "r1"]
        assert index.switch("leaf-1").uplinks == ("spine-1",)
        assert index.distance("n1", "n2") is Distance.SAME_SCALE_UP

    def test_amd_gpus_are_counted(self) -> None:
        node = kube_node(
            "n", labels={"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, capacity={"amd.com/gpu": "8"}
        )
        assert gpu_counts(topology_from_kubernetes_nodes([node]).topology) == {"AMD_Instinct_MI300X_OAM": 8}

    def test_gpus_get_their_catalogue_names(self) -> None:
        def namer(label: str) -> str:
            if label == "NVIDIA-L40S":
                return "L40S"
            raise UnknownNameError(kind="GPU", name=label, known=["NVIDIA-L40S"])

        nodes = [
            kube_node(name, labels={"nvidia.com/gpu.product": product}, capacity={"nvidia.com/gpu": "1"})
            for name, product in (("n1", "NVIDIA-L40S"), ("n2", "NVIDIA-L40"))
        ]
        found = topology_from_kubernetes_nodes(nodes, gpu_namer=namer)
        assert found.topology.index.node("n1").gpu == "L40S"
        assert found.topology.index.node("n2").gpu is None
        (warning,) = (each for each in found.unknown if each.subject == "gpu")
        assert str(warning) == "gpu unknown for n2: unknown GPU 'NVIDIA-L40'; nearest: NVIDIA-L40S"

    def test_a_node_without_labels_or_gpus_is_included(self) -> None:
        found = topology_from_kubernetes_nodes([{"metadata": {"name": "n"}, "status": None}])
        assert found.topology.index.node("n").gpus == 0
        assert found.topology.sites[0].name == "unknown"
        assert set(unknown(found)) == {"site", "ups", "pdu", "row", "rack", "leaf"}


class TestUnknown:
    def test_missing_labels_are_listed_by_name_and_node(self) -> None:
        nodes = [
            kube_node("n1", labels=place(rack="r1")),
            kube_node("n2", capacity={"nvidia.com/gpu": "1"}),
            kube_node("n3"),
        ]
        found = topology_from_kubernetes_nodes(nodes)
        assert unknown(found)["rack"] == ("n2", "n3")
        assert unknown(found)["gpu"] == ("n2",)
        assert "rack unknown for n2, n3: none of the labels fleetwright.io/rack, cluster/rack is set" in map(
            str, found.unknown
        )

    def test_a_long_list_is_shortened_in_the_message_only(self) -> None:
        found = topology_from_kubernetes_nodes([kube_node(f"n{number}") for number in range(9)])
        assert len(unknown(found)["rack"]) == 9
        assert any(str(each).startswith("rack unknown for n0, n1, n2, n3, n4 and 4 more: ") for each in found.unknown)

    def test_an_empty_label_counts_as_missing(self) -> None:
        found = topology_from_kubernetes_nodes(
            [kube_node("n", labels={"fleetwright.io/rack": "", "cluster/rack": "r"})]
        )
        assert found.topology.index.node("n").power_domain == "r"

    def test_a_site_with_two_zones_has_no_zone(self) -> None:
        zone = "topology.kubernetes.io/zone"
        nodes = [kube_node(name, labels={**place(site="s"), zone: name}) for name in ("z1", "z2")]
        found = topology_from_kubernetes_nodes(nodes)
        assert found.topology.sites[0].zone is None
        assert "zone unknown for z1, z2: the nodes of the site name several: z1, z2" in map(str, found.unknown)


class TestNetwork:
    def test_leaves_per_rail_are_in_the_order_of_rails(self) -> None:
        nodes = [kube_node("n", labels=place(leaf_rail_1="l1", leaf_rail_0="l0", spine="s", core="c"))]
        index = topology_from_kubernetes_nodes(nodes).topology.index
        assert index.node("n").leaves == ("l0", "l1")
        assert {name: switch.uplinks for name, switch in index.switches.items()} == {
            "l0": ("s",),
            "l1": ("s",),
            "s": ("c",),
            "c": (),
        }

    def test_rails_with_a_gap_are_unknown(self) -> None:
        found = topology_from_kubernetes_nodes([kube_node("n", labels=place(leaf_rail_0="l0", leaf_rail_2="l2"))])
        assert found.topology.index.node("n").leaves == ()
        assert unknown(found)["leaf"] == ("n",)

    def test_a_leaf_may_have_several_spines(self) -> None:
        nodes = [kube_node(f"n{spine}", labels=place(leaf="l", spine=spine)) for spine in ("s1", "s2")]
        assert topology_from_kubernetes_nodes(nodes).topology.index.switch("l").uplinks == ("s1", "s2")


class TestContradictions:
    @pytest.mark.parametrize(
        ("first", "second", "message"),
        [
            (
                place(rack="r1", row="a"),
                place(rack="r1", row="b"),
                "nodes[1].metadata.labels: node n2: rack 'r1' is in row 'b' here and in row 'a' on n1",
            ),
            (
                place(row="a", site="x"),
                place(row="a", site="y"),
                "nodes[1].metadata.labels: node n2: row 'a' is in site 'y' here and in site 'x' on n1",
            ),
            (
                place(rack="r", pdu="p", row="a"),
                place(row="a", pdu="q"),
                "nodes[1].metadata.labels: node n2: row 'a' is in pdu 'q' here and in pdu 'p' on n1",
            ),
            (
                place(row="a"),
                place(rack="a"),
                "nodes[1].metadata.labels: node n2: 'a' is a rack here and a row on n1",
            ),
            (
                place(leaf="l", site="x"),
                place(leaf="l", site="y"),
                "nodes[1].metadata.labels: node n2: leaf 'l' is in site 'y' here and in site 'x' on n1",
            ),
        ],
    )
    def test_labels_that_contradict_each_other_are_refused(
        self, first: dict[str, str], second: dict[str, str], message: str
    ) -> None:
        with pytest.raises(DocumentError) as caught:
            topology_from_kubernetes_nodes([kube_node("n1", labels=first), kube_node("n2", labels=second)])
        assert str(caught.value) == f"labels of the Kubernetes cluster: {message}"

    def test_a_missing_label_contradicts_nothing(self) -> None:
        nodes = [
            kube_node("n1", labels=place(rack="r1", pdu="p")),
            kube_node("n2", labels=place(rack="r1", row="a", pdu="p")),
        ]
        index = topology_from_kubernetes_nodes(nodes).topology.index
        assert [domain.name for domain in index.power_path("n1")] == ["p", "a", "r1"]

    def test_a_contradiction_across_three_nodes_is_found(self) -> None:
        labels = [place(rack="r", pdu="p"), place(rack="r", row="a"), place(row="a", pdu="q")]
        nodes = [kube_node(f"n{number}", labels=each) for number, each in enumerate(labels)]
        with pytest.raises(DocumentError, match="node n0: row 'a' is in pdu 'p' here and in pdu 'q' on n2"):
            topology_from_kubernetes_nodes(nodes)

    def test_two_nodes_with_the_same_name_are_refused(self) -> None:
        with pytest.raises(DocumentError, match=r"labels of the Ray cluster: .*node 'n' is in site"):
            topology_from_ray_nodes([ray_node(name, labels=place(node="n")) for name in ("a", "b")])

    def test_an_invalid_name_in_a_label_is_refused(self) -> None:
        with pytest.raises(DocumentError) as caught:
            topology_from_ray_nodes([ray_node("a"), ray_node("b", labels=place(rack="rack 1"))])
        (problem,) = caught.value.problems
        assert problem.path == "nodes[1].Labels"
        assert problem.message.startswith("node b: power_domain: string should match pattern")
        assert problem.message.endswith("got 'rack 1'")


def test_label_names_can_be_configured() -> None:
    names = LabelNames(rack=("example.com/rack",), gpu=("example.com/gpu",))
    labels = {"example.com/rack": "r", "example.com/gpu": "L4", "fleetwright.io/rack": "other"}
    node = topology_from_ray_nodes([ray_node(labels=labels, resources={"GPU": 1.0})], labels=names).topology.index.node(
        NODE_ID
    )
    assert (node.power_domain, node.gpu) == ("r", "L4")


halls = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "ups": st.just("u"),
            "pdu": st.sampled_from(["p1", "p2"]),
            "row": st.sampled_from(["a", "b", "c"]),
            "rack": st.sampled_from(["r1", "r2", "r3", "r4"]),
        },
    ),
    max_size=12,
)


@given(halls)
def test_discovery_either_refuses_the_labels_or_reproduces_them(hall: list[dict[str, str]]) -> None:
    nodes = [kube_node(f"n{number}", labels=place(**levels)) for number, levels in enumerate(hall)]
    try:
        found = topology_from_kubernetes_nodes(nodes)
    except DocumentError as error:
        assert "is in" in str(error)  # noqa: PT017 - only some random halls contradict themselves
        return
    missing = unknown(found)
    for number, levels in enumerate(hall):
        name = f"n{number}"
        path = {domain.kind.value: domain.name for domain in found.topology.index.power_path(name)}
        deepest = max(levels, key=lambda level: PowerKind(level).level, default=None)
        assert found.topology.index.node(name).power_domain == (levels[deepest] if deepest else None)
        assert levels.items() <= path.items()
        assert {level for level in PowerKind if name in missing.get(level, ())} == set(PowerKind) - set(levels)
