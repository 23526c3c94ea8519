"""Tokens of service accounts of a real API server: who is accepted with which rights, and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client

from api.client.transport import InProcessTransport
from api.schemas.tokens import TokenScope
from api.server.token_review import KEPT_S
from tests.helm.chart import one, render
from tests.testbed.helm import Helm
from tests.testbed.kube_api import KubeApi
from tests.testbed.service import RunningService, StartService
from tests.testbed.waiting import PATIENCE_S

pytestmark = [pytest.mark.kubernetes, pytest.mark.anyio]

REVIEWER = "reviewer"


def issue(core: client.CoreV1Api, namespace: str, account: str, *audiences: str) -> str:
    """Request a token as the kubelet does for a projected volume."""
    request = {"spec": {"audiences": list(audiences), "expirationSeconds": 600}}
    token: str = core.create_namespaced_service_account_token(account, namespace, request).status.token
    return token


@pytest.fixture
def core(kube_client: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(kube_client)


@pytest.fixture
def account_dir(kube_api: KubeApi, kube_namespace: str, core: client.CoreV1Api, helm3: Helm, tmp_path: Path) -> Path:
    """The mounted folder of a service account that has the rights which the chart grants to the API."""
    for name in (REVIEWER, "planner", "reader"):
        core.create_namespaced_service_account(kube_namespace, {"metadata": {"name": name}})
    values = ("--set", "auth.kubernetes.enabled=true", "--set", f"api.serviceAccount.name={REVIEWER}")
    objects = render(helm3, *values, "--namespace", kube_namespace)
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        kube_api.apply(one(objects, kind))
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text(issue(core, kube_namespace, REVIEWER))
    (folder / "ca.crt").write_bytes(kube_api.authority.cert_path.read_bytes())
    return folder


def settings(kube_api: KubeApi, account_dir: Path, namespace: str) -> dict[str, Any]:
    return {
        "kubernetes_tokens": True,
        "kubernetes_api_url": kube_api.url,
        "kubernetes_account_dir": account_dir,
        "kubernetes_grants": {
            f"system:serviceaccount:{namespace}:planner": {"scopes": ["read", "plan"], "project": "team-a"},
            f"system:serviceaccounts:{namespace}": {"scopes": ["read"], "project": "team-b"},
        },
    }


@pytest.fixture
async def service(
    start_service: StartService, sqlite_url: str, kube_api: KubeApi, account_dir: Path, kube_namespace: str
) -> AsyncIterator[RunningService]:
    async with start_service(sqlite_url, **settings(kube_api, account_dir, kube_namespace)) as running:
        async with running.client(TokenScope.ADMIN) as admin:
            for name in ("team-a", "team-b"):
                await admin.put(f"/v1/projects/{name}", json={}, headers={"If-None-Match": "*"})
        yield running


async def call(service: RunningService, token: str, path: str = "/v1/session", **headers: str) -> httpx.Response:
    transport = InProcessTransport(service.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as caller:
        return await caller.get(path, headers={"Authorization": f"Bearer {token}", **headers})


async def test_an_account_has_the_scopes_and_the_project_of_its_grant(
    service: RunningService, core: client.CoreV1Api, kube_namespace: str
) -> None:
    token = issue(core, kube_namespace, "planner", "fleetwright")
    found = (await call(service, token)).json()
    assert found["actor"] == f"kubernetes:system:serviceaccount:{kube_namespace}:planner"
    assert (found["scopes"], found["project"]) == (["plan", "read"], "team-a")
    other = (await call(service, token, **{"Fleetwright-Project": "team-b"})).json()
    assert (other["scopes"], other["project"]) == (["read"], "team-b"), "of its group"
    assert (await call(service, token, "/v1/tokens")).status_code == 403


async def test_an_account_without_a_grant_of_its_own_has_that_of_its_namespace(
    service: RunningService, core: client.CoreV1Api, kube_namespace: str
) -> None:
    found = (await call(service, issue(core, kube_namespace, "reader", "fleetwright"))).json()
    assert (found["scopes"], found["project"]) == (["read"], "team-b")


@pytest.mark.parametrize("audiences", [(), ("another-service",)])
async def test_a_token_for_another_audience_is_refused(
    service: RunningService, core: client.CoreV1Api, kube_namespace: str, audiences: tuple[str, ...]
) -> None:
    assert (await call(service, issue(core, kube_namespace, "planner", *audiences))).status_code == 401


async def test_a_changed_token_is_refused(service: RunningService, core: client.CoreV1Api, kube_namespace: str) -> None:
    head, body, signature = issue(core, kube_namespace, "planner", "fleetwright").split(".")
    changed = signature[:20] + ("A" if signature[20] != "A" else "B") + signature[21:]
    assert (await call(service, f"{head}.{body}.{changed}")).status_code == 401


async def test_a_deleted_account_loses_its_rights_within_seconds(
    service: RunningService, core: client.CoreV1Api, kube_namespace: str
) -> None:
    token = issue(core, kube_namespace, "planner", "fleetwright")
    assert (await call(service, token)).status_code == 200
    core.delete_namespaced_service_account("planner", kube_namespace)
    assert (await call(service, token)).status_code == 200, "the review is kept"
    async with asyncio.timeout(PATIENCE_S):  # the API server keeps its own result for ten seconds
        while (await call(service, token)).status_code != 401:
            service.clock.advance(KEPT_S + 1.0)
            await asyncio.sleep(0.5)


async def test_without_the_right_to_review_callers_get_503(
    *,
    start_service: StartService,
    sqlite_url: str,
    kube_api: KubeApi,
    account_dir: Path,
    core: client.CoreV1Api,
    kube_namespace: str,
) -> None:
    (account_dir / "token").write_text(issue(core, kube_namespace, "reader"))
    async with start_service(sqlite_url, **settings(kube_api, account_dir, kube_namespace)) as running:
        answer = await call(running, issue(core, kube_namespace, "planner", "fleetwright"))
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:fleetwright:problem:identity-provider-unavailable"
