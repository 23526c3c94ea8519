"""Tests the user's command that reads the topology of real clusters from their labels.

The Ray cluster has four racks on two power domains; each test places its own Kubernetes nodes.
"""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from deploy.common.topology_discovery import discover_kubernetes
from fleet.documents import parse_document, read_model
from fleet.topology import Topology, TopologyIndex
from tests.testbed.certificates import Authority
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.ray_cluster import GPU_NODES, HEAD, RayCluster

LABELS = "pdu: [example.com/pdu, example.com/feed]\n"  # instead of the default labels of a PDU


def discover(*options: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "api.cli", "topology", "discover", *map(str, options)]
    bare = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "NO_PROXY": "*"}
    return subprocess.run(argv, env=bare | environment, capture_output=True, text=True, check=False, timeout=120)


def read(done: subprocess.CompletedProcess[str]) -> Topology:
    assert done.returncode == 0, done.stderr
    return read_model(parse_document(done.stdout, name="stdout"), Topology)


def unknown(done: subprocess.CompletedProcess[str]) -> Mapping[str, str]:
    """Return the unknown items of stderr, each with the rest of its line."""
    return dict(line.split(" unknown for ", 1) for line in done.stderr.splitlines())


def under(index: TopologyIndex, domain: str) -> set[str]:
    """Return the nodes that a power domain feeds."""
    return {name for name in index.nodes if domain in {each.name for each in index.power_path(name)}}


@pytest.mark.ray
class TestRay:
    def test_racks_power_domains_and_gpus_of_a_ray_cluster_are_discovered(self, ray_cluster: RayCluster) -> None:
        done = discover("--ray", ray_cluster.dashboard_url)

        index = read(done).index
        assert set(index.nodes) == set(ray_cluster.node_ids.values())
        for placed in (HEAD, *GPU_NODES):
            node = index.node(ray_cluster.node_ids[placed.name])
            assert [domain.name for domain in index.power_path(node.name)] == [placed.power_domain, placed.rack]
            assert node.gpus == placed.gpus
        names = {"h100": "H100-SXM", "a100": "A100-40GB-SXM", "l4": "L4"}  # the catalogue's
        found = {name: index.node(node_id).gpu for name, node_id in ray_cluster.node_ids.items()}
        assert found == names | {"head": None}
        assert set(unknown(done)) == {"site", "ups", "row", "leaf"}

    def test_missing_labels_are_reported_for_each_node(self, ray_cluster: RayCluster, tmp_path: Path) -> None:
        labels = tmp_path / "labels.yaml"
        labels.write_text(LABELS)

        done = discover("--ray", ray_cluster.dashboard_url, "--labels", labels, "--format", "json")

        racks = {domain["name"] for domain in json.loads(done.stdout)["sites"][0]["power"]}
        assert racks == {node.rack for node in (HEAD, *GPU_NODES)}
        of_pdu = unknown(done)["pdu"]
        assert all(node_id in of_pdu for node_id in ray_cluster.node_ids.values())
        assert of_pdu.endswith("none of the labels example.com/pdu, example.com/feed is set")

    def test_a_server_that_is_not_a_ray_dashboard_is_reported(self, ray_cluster: RayCluster) -> None:
        done = discover("--ray", f"{ray_cluster.dashboard_url}/api")

        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"fleetwright: {ray_cluster.dashboard_url}/api/api/v0/nodes returned 404: ")


@pytest.mark.kubernetes
class TestKubernetes:
    def test_racks_power_domains_and_gpus_of_kubernetes_nodes_are_discovered(
        self, kube_api: KubeApi, gpu_nodes: GpuNodes
    ) -> None:
        left, right = f"left-{gpu_nodes.pool}", f"right-{gpu_nodes.pool}"
        first = gpu_nodes.add(2, rack=f"{left}-1", power_domain=left, accelerator="NVIDIA_H100")
        second = gpu_nodes.add(3, rack=f"{right}-1", power_domain=right, accelerator="NVIDIA-L40S", gpus=4)

        index = read(discover("--kubernetes", KUBECONFIG=str(kube_api.kubeconfig_path))).index

        assert {name: (index.node(name).gpu, index.node(name).gpus) for name in (*first, *second)} == {
            **dict.fromkeys(first, ("H100-SXM", 8)),
            **dict.fromkeys(second, ("L40S", 4)),
        }
        for name in first:
            assert [domain.name for domain in index.power_path(name)] == [left, f"{left}-1"]
        assert under(index, right) == set(second)

    def test_a_paginated_node_list_is_read_completely(self, kube_api: KubeApi, gpu_nodes: GpuNodes) -> None:
        added = gpu_nodes.add(5, rack=gpu_nodes.pool, power_domain=f"of-{gpu_nodes.pool}")

        found = discover_kubernetes(kubeconfig=kube_api.kubeconfig_path, page_size=2)

        assert under(found.topology.index, gpu_nodes.pool) == set(added)

    def test_an_unknown_gpu_is_reported_with_its_nodes(self, kube_api: KubeApi, gpu_nodes: GpuNodes) -> None:
        (name,) = gpu_nodes.add(1, rack=gpu_nodes.pool, power_domain=f"of-{gpu_nodes.pool}", accelerator="NVIDIA-X9")

        done = discover(
            "--kubernetes", "--kubeconfig", kube_api.kubeconfig_path, "--context", kube_api.kubeconfig_path.stem
        )

        node = read(done).index.node(name)
        assert (node.gpu, node.gpus) == (None, 8)
        assert unknown(done)["gpu"].startswith(f"{name}: unknown GPU 'NVIDIA-X9'; nearest: ")

    def test_contradicting_labels_are_refused(self, kube_api: KubeApi, gpu_nodes: GpuNodes) -> None:
        rack = f"rack-{gpu_nodes.pool}"
        gpu_nodes.add(1, rack=rack, power_domain="one")
        (second,) = gpu_nodes.add(1, rack=rack, power_domain="other")

        done = discover("--kubernetes", "--kubeconfig", kube_api.kubeconfig_path)

        assert (done.returncode, done.stdout) == (2, "")
        assert all(
            line.startswith("fleetwright: labels of the Kubernetes cluster: ") for line in done.stderr.splitlines()
        )
        assert rack in done.stderr
        assert second in done.stderr

    def test_a_missing_permission_to_list_nodes_is_reported(self, kube_api: KubeApi, kube_namespace: str) -> None:
        account = kube_api.service_account_kubeconfig(namespace=kube_namespace, name="default")

        done = discover("--kubernetes", "--kubeconfig", account)

        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"fleetwright: {kube_api.url} returned 403: nodes is forbidden: ")
        assert f"system:serviceaccount:{kube_namespace}:default" in line

    def test_an_unauthenticated_user_is_reported(self, kube_api: KubeApi, tmp_path: Path) -> None:
        stranger = yaml.safe_load(kube_api.kubeconfig_path.read_text())
        stranger["users"][0]["user"] = {"token": "not-to-be-seen"}
        (tmp_path / "config").write_text(yaml.safe_dump(stranger))

        done = discover("--kubernetes", "--kubeconfig", tmp_path / "config")

        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"fleetwright: {kube_api.url} returned 401: Unauthorized\n"

    def test_an_untrusted_server_certificate_is_reported(self, kube_api: KubeApi, tmp_path: Path) -> None:
        mistaken = yaml.safe_load(kube_api.kubeconfig_path.read_text())
        other = Authority.create(tmp_path).cert_path.read_bytes()
        mistaken["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(other).decode()
        (tmp_path / "config").write_text(yaml.safe_dump(mistaken))

        done = discover("--kubernetes", "--kubeconfig", tmp_path / "config")

        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"fleetwright: no response from {kube_api.url}: ")
        assert "certificate verify failed" in line
