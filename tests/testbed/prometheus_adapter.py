"""Runs the real prometheus-adapter as the aggregated API `external.metrics.k8s.io`, and KEDA's GJSON library.

The API server reaches the adapter through a Service of type ExternalName, because the test bed routes no Services.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubernetes import client

from tests.testbed import binaries
from tests.testbed.go_tools import AUTOSCALERS
from tests.testbed.kube_api import ADMINS, KubeApi
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.requirements import skipping_where_unavailable
from tests.testbed.waiting import wait_for

GROUP: Final = "external.metrics.k8s.io"
VERSION: Final = "v1beta1"
NAMESPACE: Final = "default"


@dataclass(frozen=True, kw_only=True)
class PrometheusAdapter:
    """Starts an adapter with a test's rules."""

    program: Path
    api: KubeApi

    @contextmanager
    def serving(self, external_rules: Sequence[Mapping[str, Any]], *, prometheus_url: str) -> Iterator[None]:
        """Serve external metrics by these rules, until the exit."""
        directory = self.api.work_dir / "prometheus-adapter"
        directory.mkdir(exist_ok=True)
        config = directory / "config.yaml"
        config.write_text(yaml.safe_dump({"externalRules": list(external_rules)}))
        (port,) = free_ports(1)
        serving = self.api.authority.issue("prometheus-adapter", common_name="adapter", hosts=[LOOPBACK, "localhost"])
        kubeconfig = self.api.certificate_kubeconfig("prometheus-adapter", groups=[ADMINS])
        flags = {
            "config": config,
            "prometheus-url": prometheus_url,
            "metrics-relist-interval": "1s",
            "metrics-max-age": "1m",
            "bind-address": LOOPBACK,
            "secure-port": port,
            "tls-cert-file": serving.cert_path,
            "tls-private-key-file": serving.key_path,
            "lister-kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
        }
        argv: list[str | Path] = [self.program, *(f"--{flag}={value}" for flag, value in flags.items())]
        with Process.start(argv, name="prometheus-adapter", log_dir=self.api.log_dir) as process:
            url = f"https://{LOOPBACK}:{port}/livez"
            process.wait_ready(lambda: answers_ok(url, ca_path=self.api.authority.cert_path))
            with self._registered(port):
                yield

    @contextmanager
    def _registered(self, port: int) -> Iterator[None]:
        name = f"{VERSION}.{GROUP}"
        self.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "prometheus-adapter", "namespace": NAMESPACE},
                "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
            }
        )
        for manifest in _rights():
            self.api.apply(manifest)
        with self.api.connect() as connection:
            registration = client.ApiregistrationV1Api(connection)
            registration.create_api_service(
                {
                    "metadata": {"name": name},
                    "spec": {
                        "group": GROUP,
                        "version": VERSION,
                        "groupPriorityMinimum": 100,
                        "versionPriority": 100,
                        "insecureSkipTLSVerify": True,
                        "service": {"name": "prometheus-adapter", "namespace": NAMESPACE, "port": port},
                    },
                }
            )
            try:
                wait_for(
                    lambda: [
                        (each.type, each.status, each.message)
                        for each in registration.read_api_service(name).status.conditions or ()
                    ],
                    lambda found: any(each[:2] == ("Available", "True") for each in found),
                    what=f"available API {name}",
                )
                yield
            finally:
                registration.delete_api_service(name)


def _rights() -> Iterator[dict[str, Any]]:
    """Let the controller of HPAs read external metrics, as an installation of the adapter does."""
    metadata = {"name": "hpa-external-metrics"}
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "list"]}
    yield {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}
    yield {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": metadata["name"]},
        "subjects": [
            {"kind": "ServiceAccount", "name": "horizontal-pod-autoscaler", "namespace": "kube-system"},
        ],
    }


@dataclass(frozen=True, kw_only=True)
class Gjson:
    """Evaluates paths by the library that KEDA uses."""

    program: Path

    def get(self, body: str, path: str) -> str | None:
        """Return the raw JSON that a path selects; None where it selects nothing."""
        done = subprocess.run([self.program, path], input=body, capture_output=True, text=True, check=False)
        if done.returncode not in {0, 1}:
            raise RuntimeError(done.stderr)
        return done.stdout.strip() if done.returncode == 0 else None


@pytest.fixture(scope="session")
def prometheus_adapter(kube_api: KubeApi) -> PrometheusAdapter:
    with skipping_where_unavailable("kubernetes", what="prometheus-adapter"):
        return PrometheusAdapter(program=binaries.find(AUTOSCALERS)["prometheus-adapter"], api=kube_api)


@pytest.fixture(scope="session")
def gjson() -> Gjson:
    with skipping_where_unavailable("kubernetes", what="GJSON"):
        return Gjson(program=binaries.find(AUTOSCALERS)["gjson"])
