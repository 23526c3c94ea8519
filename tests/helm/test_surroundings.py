"""Tests network policies, monitors, alert rules, dashboards and the readiness test of the chart."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml

from tests.helm.chart import ALERTS, CHART, POSTGRES, Object, container, kinds, one, render
from tests.testbed.helm import Helm

MONITORING = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}


class TestNetworkPolicies:
    def test_pods_of_the_namespace_and_named_peers_may_connect(self, helm3: Helm) -> None:
        objects = render(helm3, profile=POSTGRES)
        here: Object = {"podSelector": {}}
        ingress, monitoring = (
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
            for name in ("ingress", "monitoring")
        )
        assert _ingress(objects, "-api") == ([here, ingress, monitoring], 8400)
        assert _ingress(objects, "-controller") == ([here, monitoring], 9401)
        assert _ingress(objects, "-worker") == ([here, monitoring], 9408)

    def test_the_migration_job_accepts_no_connections(self, helm3: Helm) -> None:
        policy = one(render(helm3, profile=POSTGRES), "NetworkPolicy", "-migrate")
        assert policy["spec"]["ingress"] == []
        assert "Ingress" in policy["spec"]["policyTypes"]

    @pytest.mark.parametrize(
        ("name", "ports"),
        [
            ("-api", {53, 5432}),
            ("-worker", {53, 5432}),
            ("-migrate", {53, 5432}),
            ("-controller", {53, 8265, 8400}),
        ],
    )
    def test_egress_is_limited_to_the_required_ports(self, helm3: Helm, name: str, ports: set[int]) -> None:
        policy = one(render(helm3, profile=POSTGRES), "NetworkPolicy", name)
        assert "Egress" in policy["spec"]["policyTypes"]
        assert {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]} == ports

    def test_network_policies_can_be_disabled(self, helm3: Helm) -> None:
        assert "NetworkPolicy" not in kinds(render(helm3, "--set", "networkPolicy.enabled=false", profile=POSTGRES))


class TestMonitoring:
    def test_the_default_needs_no_prometheus_operator(self, helm3: Helm) -> None:
        assert not MONITORING & kinds(render(helm3))

    def test_monitors_follow_their_switches_without_cluster_access(self, helm3: Helm) -> None:
        assert kinds(render(helm3, profile=POSTGRES)) >= MONITORING

    def test_monitors_scrape_the_ports_named_in_the_pods(self, helm3: Helm) -> None:
        objects = render(helm3, profile=POSTGRES)
        service = one(objects, "Service")
        (api_endpoint,) = one(objects, "ServiceMonitor")["spec"]["endpoints"]
        assert [api_endpoint["port"]] == [port["name"] for port in service["spec"]["ports"]]
        for name in ("-controller", "-worker"):
            monitor, workload = one(objects, "PodMonitor", name), one(objects, "Deployment", name)
            (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
            assert [endpoint["port"]] == [port["name"] for port in container(workload)["ports"]]
            assert monitor["spec"]["selector"] == workload["spec"]["selector"]

    def test_monitors_have_the_labels_that_prometheus_selects(self, helm3: Helm) -> None:
        monitors = [item for item in render(helm3, profile=POSTGRES) if item["kind"] in MONITORING]
        assert all(item["metadata"]["labels"]["release"] == "prometheus" for item in monitors)

    def test_the_rules_match_the_alerts_file(self, helm3: Helm) -> None:
        rule = one(render(helm3, profile=POSTGRES), "PrometheusRule")
        assert rule["spec"] == yaml.safe_load(ALERTS.read_text())

    def test_the_dashboards_match_the_dashboard_files(self, helm3: Helm) -> None:
        found = one(render(helm3), "ConfigMap", "-dashboards")
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        files = {path.name: json.loads(path.read_text()) for path in (CHART / "files" / "dashboards").iterdir()}
        assert {name: json.loads(text) for name, text in found["data"].items()} == files

    def test_dashboards_can_be_disabled(self, helm3: Helm) -> None:
        assert "ConfigMap" not in kinds(render(helm3, "--set", "monitoring.dashboards.enabled=false"))


class TestReadinessTest:
    @pytest.mark.parametrize(("status", "passes"), [(200, True), (503, False)])
    def test_passes_when_the_api_is_ready(self, helm3: Helm, status: int, *, passes: bool) -> None:
        with _answering(status) as (url, paths):
            assert (_run(helm3, url) == 0) is passes
        assert paths == ["/readyz"]

    def test_fails_without_a_response(self, helm3: Helm) -> None:
        with _answering(200) as (url, _):
            pass
        assert _run(helm3, url) != 0

    def test_requests_the_readiness_of_the_service(self, helm3: Helm) -> None:
        objects = render(helm3)
        service = one(objects, "Service")["metadata"]["name"]
        assert container(_test_job(objects))["args"][-1] == f"http://{service}:8400/readyz"

    def test_is_run_by_helm_test_only(self, helm3: Helm) -> None:
        assert _test_job(render(helm3))["metadata"]["annotations"]["helm.sh/hook"] == "test"


def _ingress(objects: list[Object], name: str) -> tuple[list[Object], int]:
    (rule,) = one(objects, "NetworkPolicy", name)["spec"]["ingress"]
    (port,) = rule["ports"]
    return rule["from"], port["port"]


def _test_job(objects: list[Object]) -> Object:
    return one(objects, "Job", "-test-readiness")


def _run(helm: Helm, url: str) -> int:
    """Run the container's command here, against another address."""
    test = container(_test_job(render(helm)))
    python, *options = test["command"]
    assert python == "python"
    *script, _ = test["args"]
    argv = [sys.executable, *options, *script, f"{url}/readyz"]
    return subprocess.run(argv, capture_output=True, check=False, env={"no_proxy": "127.0.0.1"}, timeout=30).returncode


@contextmanager
def _answering(status: int) -> Iterator[tuple[str, list[str]]]:
    """Serve one status for every GET, and record the requested paths."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing to the tests' output."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", paths
        finally:
            server.shutdown()
