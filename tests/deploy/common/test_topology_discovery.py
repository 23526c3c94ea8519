"""Asking a cluster for its nodes: what is asked, and what is said when no whole answer comes.

That real clusters are understood is shown in tests/cluster/test_topology_discovery.py.
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
    """What the dashboard answers with these rows."""
    counts = dict.fromkeys(("total", "num_after_truncation", "num_filtered"), len(rows))
    result = counts | {"result": list(rows), "partial_failure_warning": "", "warnings": None} | changes
    return httpx.Response(200, json={"result": True, "msg": "", "data": {"result": result}})


def ask_ray(answer: httpx.Response | Handler, url: str = DASHBOARD) -> Discovery:
    handler = answer if callable(answer) else lambda _request: answer
    with httpx.Client(transport=httpx.MockTransport(handler)) as http:
        return discover_ray(url, http=http)


class TestRay:
    def test_asks_for_all_living_nodes(self) -> None:
        asked: list[httpx.URL] = []

        def handler(request: httpx.Request) -> httpx.Response:
            asked.append(request.url)
            return listing()

        ask_ray(handler, url=f"{DASHBOARD}/")
        (url,) = asked
        assert (url.host, url.path) == ("dashboard.invalid", "/api/v0/nodes")
        assert url.params["limit"] == "10000"  # without it Ray stops at a hundred
        assert [url.params[f"filter_{part}"] for part in ("keys", "predicates", "values")] == ["state", "=", "ALIVE"]

    def test_nodes_carry_their_labels_and_gpus(self) -> None:
        found = ask_ray(listing(ray_row("a"), ray_row("b", labels={}, resources_total={"CPU": 4.0})))
        nodes = found.topology.index.nodes
        assert [(node.name, node.power_domain, node.gpu, node.gpus) for node in nodes.values()] == [
            ("a", "r1", "H100", 8),
            ("b", None, None, 0),
        ]

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(listing(ray_row("a"), num_filtered=2), id="the limit cut it off"),
            pytest.param(listing(ray_row("a"), total=2), id="the source was cut off"),
        ],
    )
    def test_half_a_cluster_is_refused(self, answer: httpx.Response) -> None:
        with pytest.raises(ActuationError, match="lists 1 nodes, and there are more"):
            ask_ray(answer)

    def test_what_ray_could_not_collect_is_said(self) -> None:
        with pytest.raises(ActuationError, match="could not list all nodes: 1 raylet did not answer"):
            ask_ray(listing(ray_row("a"), partial_failure_warning="1 raylet did not answer"))

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (
                httpx.Response(500, json={"result": False, "msg": "Failed to query GCS", "data": {}}),
                f"{NODES} answered 500: Failed to query GCS",
            ),
            (httpx.Response(404, text="404: Not Found"), f"{NODES} answered 404: 404: Not Found"),
            (httpx.Response(502), f"{NODES} answered 502: nothing"),
            (httpx.Response(200, text="<html>"), f"{NODES} is not Ray's State API: Invalid JSON"),
            (
                httpx.Response(200, json={"data": {}}),
                f"{NODES} is not Ray's State API: Field required",
            ),
        ],
    )
    def test_another_answer_is_told_in_one_line(self, answer: httpx.Response, said: str) -> None:
        with pytest.raises(ActuationError) as caught:
            ask_ray(answer)
        assert str(caught.value).startswith(said)
        assert "\n" not in str(caught.value)

    def test_a_dashboard_that_is_not_there(self) -> None:
        (port,) = free_ports(1)
        url = f"http://{LOOPBACK}:{port}"
        with httpx.Client(trust_env=False) as http, pytest.raises(UnreachableError, match=f"no answer from {url}/api/"):
            discover_ray(url, http=http)

    @pytest.mark.parametrize("url", ["", "dashboard:8265", "ftp://dashboard", "http://", "http://user:word@dashboard"])
    def test_what_is_no_url_is_not_asked(self, url: str) -> None:
        with pytest.raises(UnusableSourceError, match=r"must be http://HOST\[:PORT\]") as caught:
            ask_ray(lambda _request: pytest.fail("asked"), url=url)
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
    def test_a_server_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UnreachableError, match=r"no answer from https://127\.0\.0\.1:\d+: .*refused") as caught:
            discover_kubernetes(kubeconfig=kubeconfig(tmp_path / "config"))
        assert "\n" not in str(caught.value)

    def test_an_unknown_context(self, tmp_path: Path) -> None:
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
            pytest.param(b"apiVersion: v1\nkind: Config", id="nothing in it"),
            pytest.param(b"current-context: a\ncontexts: 3", id="contexts that are none"),
        ],
    )
    def test_what_is_no_kubeconfig(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "config"
        path.write_bytes(content)
        with pytest.raises(UnusableSourceError, match=f"kubeconfig {path}: ") as caught:
            discover_kubernetes(kubeconfig=path)
        assert "\n" not in str(caught.value)

    def test_a_kubeconfig_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UnusableSourceError, match=r"kubeconfig .*/none: "):
            discover_kubernetes(kubeconfig=tmp_path / "none")

    def test_the_environment_names_the_kubeconfig(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = kubeconfig(tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{path}")
        with pytest.raises(UnreachableError):  # so it was read
            discover_kubernetes()

    def test_neither_a_kubeconfig_nor_a_pod(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        with pytest.raises(UnusableSourceError, match=r"no kubeconfig at .*/none, and this process runs in no cluster"):
            discover_kubernetes()

    def test_in_a_pod_its_service_account_is_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (port,) = free_ports(1)
        (tmp_path / "token").write_text("not-to-be-seen")
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(Authority.create(tmp_path).cert_path))
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", LOOPBACK)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        with pytest.raises(UnreachableError, match=f"no answer from https://{LOOPBACK}:{port}: "):
            discover_kubernetes()

    def test_without_the_client_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "kubernetes.client", None)
        with pytest.raises(UnusableSourceError, match=r"pip install 'fleetwright\[kubernetes\]'"):
            discover_kubernetes()

    def test_no_secret_is_shown(self, tmp_path: Path) -> None:
        users = [{"name": "me", "user": {"token": ["not-to-be-seen"]}}]
        with pytest.raises(FleetwrightError) as caught:
            discover_kubernetes(kubeconfig=kubeconfig(tmp_path / "config", users=users))
        assert "not-to-be-seen" not in str(caught.value)
