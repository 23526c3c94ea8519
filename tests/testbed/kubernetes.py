"""Provides the Kubernetes fixtures: the control plane, a client, a namespace per test, and nodes with GPUs."""

import secrets
from collections.abc import Iterator

import pytest
from kubernetes import client

from tests.testbed.control_plane import control_plane
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.requirements import skipping_where_unavailable
from tests.testbed.waiting import wait_for


@pytest.fixture(scope="session")
def kube_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """Share one Kubernetes 1.36 control plane among all tests of the session."""
    with (
        skipping_where_unavailable("kubernetes", what="control plane"),
        control_plane(tmp_path_factory.mktemp("control-plane")) as api,
    ):
        yield api


@pytest.fixture(scope="session")
def kube_client(kube_api: KubeApi) -> Iterator[client.ApiClient]:
    """Return an administrator's client."""
    with kube_api.connect() as api:
        yield api


@pytest.fixture
def kube_namespace(kube_client: client.ApiClient) -> Iterator[str]:
    """Create a namespace for one test, and request its deletion afterwards."""
    core = client.CoreV1Api(kube_client)
    name = f"test-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": name}})
    wait_for(
        lambda: [account.metadata.name for account in core.list_namespaced_service_account(name).items],
        what=f"default service account in {name}",  # without it no pod is accepted
    )
    yield name
    core.delete_namespace(name)


@pytest.fixture
def gpu_nodes(kube_client: client.ApiClient) -> Iterator[GpuNodes]:
    """Create an empty pool of nodes for one test."""
    nodes = GpuNodes(core=client.CoreV1Api(kube_client), pool=f"pool-{secrets.token_hex(4)}")
    yield nodes
    nodes.remove_all()
