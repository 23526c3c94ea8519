"""Node discovery in a cluster: requests, and errors for incomplete responses.

tests/cluster/test_topology_discovery.py covers real clusters.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes.config import incluster_config

from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.topology_discovery import UnusableSourceError, discover_kubernetes, discover_ray
from fleet.errors import FleetwrightError
from fleet.topology import Discovery
from tests.testbed.certificates import Authority
from tests.testbed.processes import LOOPBACK, free_ports

DASHBOARD = "http://dashboard.invalid:8265"
NODES = f"{DASHBOARD}/api/v0/nodes"

Handler = Callable[[httpx.Request], httpx.Response]


def ray_row(node_id: str, **changes: Any) -> dict[str, Any]:
    """A node as Ray 2.60 lists it, shortened."""
    row = {
        "node_id": node_id,
        "node_ip": "127.0.0.1",
        "state": "ALIVE",
        "node_name": "worker",
        "resources_total": {"CPU": 4.0, "GPU": 8.0, "accelerator_type:H100": 1.0},
        "labels": {"ray.io/node-id": node_id, "fleetwright.io/rack": "r1"},
    }
    return row | changes


def listing(*rows: dict[str, Any], **changes: Any) -> httpx.Response:
    """The response of the dashboard with these rows."""
    counts = dict.fromkeys(("total", "num_after_truncation", "num_filtered"), len(rows))
    result = counts | {"result": list(rows), "partial_failure_warning": "", "warnings": None} | changes
    return httpx.Response(200, json={"result": True, "msg": "", "data": {"result": result}})


def nodes_of(answer: httpx.Response | Handler, url: str = DASHBOARD) -> Discovery:
    handler = answer if callable(answer) else lambda _request: answer
    with httpx.Client(transport=httpx.MockTransport(handler)) as http:
        return discover_ray(url, http=http)


class TestRay:
    def test_requests_all_alive_nodes(self) -> None:
        urls: list[httpx.URL] = []

        def handler(request: httpx.Request) -> httpx.Response:
            urls.append(request.url)
            return listing()

        nodes_of(handler, url=f"{DASHBOARD}/")
        (url,) = urls
        assert (url.host, url.path) == ("dashboard.invalid", "/api/v0/nodes")
        assert url.params["limit"] == "10000"  # without this parameter Ray returns at most 100 nodes
        assert [url.params[f"filter_{part}"] for part in ("keys", "predicates", "values")] == ["state", "=", "ALIVE"]

    def test_nodes_have_their_labels_and_gpus(self) -> None:
        found = nodes_of(listing(ray_row("a"), ray_row("b", labels={}, resources_total={"CPU": 4.0})))
        nodes = found.topology.index.nodes
        assert [(node.name, node.power_domain, node.gpu, node.gpus) for node in nodes.values()] == [
            ("a", "r1", "H100", 8),
            ("b", None, None, 0),
        ]

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(listing(ray_row("a"), num_filtered=2), id="truncated by the limit"),
            pytest.param(listing(ray_row("a"), total=2), id="truncated at the source"),
        ],
    )
    def test_a_truncated_node_list_is_refused(self, answer: httpx.Response) -> None:
        with pytest.raises(ActuationError, match="lists 1 nodes, and there are more"):
            nodes_of(answer)

    def test_a_partial_failure_of_ray_is_reported(self) -> None:
        with pytest.raises(ActuationError, match="could not list all nodes: 1 raylet did not respond"):
            nodes_of(listing(ray_row("a"), partial_failure_warning="1 raylet did not respond"))

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (
                httpx.Response(500, json={"result": False, "msg": "Failed to query GCS", "data": {}}),
                f"{NODES} returned 500: Failed to query GCS",
            ),
            (httpx.Response(404, text="404: Not Found"), f"{NODES} returned 404: 404: Not Found"),
            (httpx.Response(502), f"{NODES} returned 502: nothing"),
            (httpx.Response(200, text="<html>"), f"{NODES} is not Ray's State API: Invalid JSON"),
            (
                httpx.Response(200, json={"data": {}}),
                f"{NODES} is not Ray's State API: Field required",
            ),
        ],
    )
    def test_an_unexpected_response_is_reported_in_one_line(self, answer: httpx.Response, message: str) -> None:
        with pytest.raises(ActuationError) as caught:
            nodes_of(answer)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)

    def test_an_unreachable_dashboard_is_reported(self) -> None:
        (port,) = free_ports(1)
        url = f"http://{LOOPBACK}:{port}"
        with (
            httpx.Client(trust_env=False) as http,
            pytest.raises(UnreachableError, match=f"no response from {url}/api/"),
        ):
            discover_ray(url, http=http)

    @pytest.mark.parametrize("url", ["", "dashboard:8265", "ftp://dashboard", "http://", "http://user:word@dashboard"])
    def test_an_invalid_url_is_refused_without_a_request(self, url: str) -> None:
        with pytest.raises(UnusableSourceError, match=r"must be http://HOST\[:PORT\]") as caught:
            nodes_of(lambda _request: pytest.fail("requested"), url=url)
        assert "word" not in str(caught.value)


def kubeconfig(path: Path, **changes: Any) -> Path:
    """A kubeconfig for a server that does not run."""
    (port,) = free_ports(1)
    cluster = {"server": f"https://{LOOPBACK}:{port}"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": "not-to-be-seen"}}],
        "contexts": [{"name": "main", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "main",
    }
    path.write_text(json.dumps(document | changes))
    return path


class TestKubernetes:
    def test_an_unreachable_server_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(UnreachableError, match=r"no response from https://127\.0\.0\.1:\d+: .*refused") as caught:
            discover_kubernetes(kubeconfig=kubeconfig(tmp_path / "config"))
        assert "\n" not in str(caught.value)

    def test_an_unknown_context_is_reported(self, tmp_path: Path) -> None:
        path = kubeconfig(tmp_path / "config")
        with pytest.raises(UnusableSourceError, match=rf"kubeconfig {path}: .*other"):
            discover_kubernetes(kubeconfig=path, context="other")

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"contexts: [", id="not YAML"),
            pytest.param(b"- 1", id="a list"),
            pytest.param(b"\xbe\xef" * 50, id="binary"),
            pytest.param(b"apiVersion: v1\nkind: Config", id="no contexts"),
            pytest.param(b"current-context: a\ncontexts: 3", id="invalid contexts"),
        ],
    )
    def test_an_invalid_kubeconfig_is_reported_in_one_line(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "config"
        path.write_bytes(content)
        with pytest.raises(UnusableSourceError, match=f"kubeconfig {path}: ") as caught:
            discover_kubernetes(kubeconfig=path)
        assert "\n" not in str(caught.value)

    def test_a_missing_kubeconfig_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(UnusableSourceError, match=r"kubeconfig .*/none: "):
            discover_kubernetes(kubeconfig=tmp_path / "none")

    def test_the_environment_variable_selects_the_kubeconfig(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = kubeconfig(tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{path}")
        with pytest.raises(UnreachableError):  # the kubeconfig was read
            discover_kubernetes()

    def test_a_missing_kubeconfig_outside_a_pod_is_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        with pytest.raises(UnusableSourceError, match=r"no kubeconfig at .*/none, and this process runs in no cluster"):
            discover_kubernetes()

    def test_in_a_pod_the_service_account_is_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (port,) = free_ports(1)
        (tmp_path / "token").write_text("not-to-be-seen")
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(Authority.create(tmp_path).cert_path))
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", LOOPBACK)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        with pytest.raises(UnreachableError, match=f"no response from https://{LOOPBACK}:{port}: "):
            discover_kubernetes()

    def test_a_missing_kubernetes_client_names_the_extra_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "kubernetes.client", None)
        with pytest.raises(UnusableSourceError, match=r"pip install 'fleetwright\[kubernetes\]'"):
            discover_kubernetes()

    def test_errors_contain_no_secret(self, tmp_path: Path) -> None:
        users = [{"name": "me", "user": {"token": ["not-to-be-seen"]}}]
        with pytest.raises(FleetwrightError) as caught:
            discover_kubernetes(kubeconfig=kubeconfig(tmp_path / "config", users=users))
        assert "not-to-be-seen" not in str(caught.value)
