"""Runs the real KubeRay operator on the test control plane: it creates the pods of a RayCluster, and kwok runs them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.testbed import binaries
from tests.testbed.go_tools import KUBERAY
from tests.testbed.kube_api import ADMINS, KubeApi
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.requirements import skipping_where_unavailable


@dataclass(frozen=True, kw_only=True)
class KubeRay:
    version: str
    log_path: Path


@contextmanager
def kuberay_operator(api: KubeApi) -> Iterator[KubeRay]:
    """Install the resource definitions in `api` and run the operator for all namespaces."""
    files = binaries.find(KUBERAY)
    api.install_crds(files["kuberay-crds"])
    metrics, health = (f"{LOOPBACK}:{port}" for port in free_ports(2))
    argv: list[str | Path] = [
        files["ray-operator"],
        f"--kubeconfig={api.certificate_kubeconfig('kuberay-operator', groups=[ADMINS])}",
        "--enable-leader-election=false",
        f"--metrics-addr={metrics}",
        f"--health-probe-bind-address={health}",
    ]
    with Process.start(argv, name="kuberay-operator", log_dir=api.log_dir) as process:
        process.wait_ready(partial(answers_ok, f"http://{health}/readyz"))
        yield KubeRay(version=KUBERAY.version, log_path=process.log_path)


@pytest.fixture(scope="session")
def kuberay(kube_api: KubeApi) -> Iterator[KubeRay]:
    """Share one KubeRay operator among all tests of the session."""
    with skipping_where_unavailable("kubernetes", what="KubeRay"), kuberay_operator(kube_api) as operator:
        yield operator
