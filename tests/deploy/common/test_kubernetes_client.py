"""The Kubernetes API over HTTP: requests, retries, and errors."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.kubernetes_client import (
    ATTEMPTS,
    KubernetesAccess,
    KubernetesServer,
    RefusedError,
    kubernetes_server,
)
from deploy.common.topology_discovery import UnusableSourceError
from tests.testbed.processes import LOOPBACK, free_ports

pytestmark = pytest.mark.anyio

PATH = "/apis/ray.io/v1/namespaces/ml/rayclusters/llm"


@dataclass
class Kube:
    """A server that returns preset responses and records the requests."""

    kubeconfig: Path
    answer: Callable[[], web.Response]
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path with query, token
    bodies: list[tuple[str, str]] = field(default_factory=list)  # content type and body

    async def respond(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path_qs, request.headers.get("Authorization", "")))
        self.bodies.append((request.content_type, await request.text()))
        return self.answer()

    def write(self, url: str, *, token_file: Path) -> None:
        user = {"tokenFile": str(token_file)}
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": url}}],
                    "users": [{"name": "u", "user": user}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )


@asynccontextmanager
async def serving(tmp_path: Path, answer: Callable[[], web.Response]) -> AsyncIterator[tuple[Kube, KubernetesServer]]:
    kube = Kube(tmp_path / "kubeconfig", answer)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", kube.respond)
    (tmp_path / "token").write_text("first")
    async with TestServer(app) as server:
        kube.write(str(server.make_url("/")), token_file=tmp_path / "token")
        async with kubernetes_server(KubernetesAccess(kubeconfig=kube.kubeconfig)) as client:
            yield kube, client


def status(code: int, message: str) -> Callable[[], web.Response]:
    return lambda: web.json_response({"kind": "Status", "message": message}, status=code)


async def test_get_requests_the_path_with_its_query(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda: web.json_response({"kind": "PodList"})) as (kube, client):
        assert await client.get("/api/v1/namespaces/ml/pods", labelSelector="a=b,c") == {"kind": "PodList"}
    assert kube.requests == [("GET", "/api/v1/namespaces/ml/pods?labelSelector=a%3Db,c", "Bearer first")]


async def test_patches_name_fleetwright_as_field_manager(tmp_path: Path) -> None:
    operations = [{"op": "test", "path": "/spec/x", "value": 1}, {"op": "replace", "path": "/spec/x", "value": 2}]
    async with serving(tmp_path, lambda: web.json_response({})) as (kube, client):
        await client.patch(PATH, operations)
    assert kube.requests == [("PATCH", f"{PATH}?fieldManager=fleetwright", "Bearer first")]
    ((content_type, body),) = kube.bodies
    assert content_type == "application/json-patch+json"
    assert json.loads(body) == operations


async def test_a_refusal_is_raised_with_the_message_of_the_server_and_not_retried(tmp_path: Path) -> None:
    async with serving(tmp_path, status(403, 'rayclusters "llm" is forbidden: User "u" cannot get')) as (kube, client):
        with pytest.raises(RefusedError, match=r'returned 403: rayclusters "llm" is forbidden') as refusal:
            await client.get(PATH)
    assert refusal.value.status == 403
    assert len(kube.requests) == 1, "a retry would not help"


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_reads_are_retried_after_transient_server_errors(tmp_path: Path, code: int) -> None:
    async with serving(tmp_path, status(code, "etcd leader changed")) as (kube, client):
        with pytest.raises(UnreachableError, match=f"returned {code}: etcd leader changed"):
            await client.get(PATH)
    assert len(kube.requests) == ATTEMPTS


async def test_a_patch_is_sent_once(tmp_path: Path) -> None:
    async with serving(tmp_path, status(503, "busy")) as (kube, client):
        with pytest.raises(UnreachableError):
            await client.patch(PATH, [])
    assert len(kube.requests) == 1


async def test_an_expired_token_is_read_again(tmp_path: Path) -> None:
    async with serving(tmp_path, status(401, "Unauthorized")) as (kube, client):
        (tmp_path / "token").write_text("second")
        with pytest.raises(RefusedError, match="returned 401: Unauthorized"):
            await client.get(PATH)
    assert [token for _, _, token in kube.requests] == ["Bearer first", "Bearer second"]


async def test_credentials_that_cannot_be_read_again_are_reported(tmp_path: Path) -> None:
    async with serving(tmp_path, status(401, "Unauthorized")) as (_, client):
        (tmp_path / "token").unlink()
        with pytest.raises(UnreachableError, match="credentials cannot be read again: "):
            await client.patch(PATH, [])


async def test_a_connection_error_is_reported(tmp_path: Path) -> None:
    kube = Kube(tmp_path / "kubeconfig", web.Response)
    (tmp_path / "token").write_text("t")
    kube.write(f"http://{LOOPBACK}:{free_ports(1)[0]}", token_file=tmp_path / "token")
    async with kubernetes_server(KubernetesAccess(kubeconfig=kube.kubeconfig)) as client:
        with pytest.raises(UnreachableError, match="does not respond: "):
            await client.get(PATH)


async def test_an_invalid_kubernetes_response_is_reported(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda: web.Response(text="<html>a login page</html>")) as (_, client):
        with pytest.raises(ActuationError, match="returned no valid Kubernetes response"):
            await client.get(PATH)


@pytest.mark.parametrize("text", [None, "", "clusters: 3", "{"], ids=["missing", "empty", "wrong", "no YAML"])
async def test_the_error_for_an_unusable_kubeconfig_names_its_path(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UnusableSourceError, match=f"kubeconfig {path}: "):
        async with kubernetes_server(KubernetesAccess(kubeconfig=path)):
            pass


async def test_a_missing_kubeconfig_outside_a_cluster_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UnusableSourceError, match=r"no kubeconfig at .*none, and this process runs in no cluster"):
        async with kubernetes_server(KubernetesAccess()):
            pass
