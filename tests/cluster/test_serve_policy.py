"""A real Ray Serve application follows the counts that a real service and its controller publish, by our example."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.client import Client
from api.schemas.applications import RayServeApplication
from api.schemas.targets import Mode, Phase, TargetSpec
from tests.deploy.controller.harness import request_for
from tests.testbed.processes import LOOPBACK
from tests.testbed.published import EXAMPLES, documents
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.ray_serve import ServeApp, declared_applications
from tests.testbed.server import ADMIN_TOKEN, Server, StartServer
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.ray

H100, L4 = "H100-SXM", "L4"
DEPLOYMENTS = {H100: "on-h100", L4: "on-l4"}
POOLS = {"on-h100": "H100", "on-l4": "L4"}  # labels of Ray


@pytest.fixture
def server(start_server: StartServer, sqlite_url: str) -> Server:
    return start_server(sqlite_url)  # with its controller


@pytest.fixture
def chat(ray_cluster: RayCluster, server: Server, tmp_path: Path) -> Iterator[ServeApp]:
    """Run the application of the test bed with the policies of the example."""
    token = tmp_path / "serve-token"
    token.write_text(ADMIN_TOKEN)
    (config,) = documents(EXAMPLES / "ray-serve.yaml")
    (declared,) = config["applications"]
    for each in declared["deployments"]:
        options = each["autoscaling_config"]["policy"]["policy_kwargs"]
        options |= {"url": server.url, "token_file": str(token), "interval_s": 0.2}
    application: dict[str, Any] = declared | {"import_path": "tests.testbed.serve_apps:build", "args": {"pools": POOLS}}
    with (
        declared_applications(ray_cluster, [application]),
        httpx.Client(base_url=ray_cluster.dashboard_url, timeout=PATIENCE_S, trust_env=False) as dashboard,
    ):
        url = f"http://{LOOPBACK}:{ray_cluster.serve_port}/"
        yield ServeApp(name="chat", url=url, pools=POOLS, dashboard=dashboard)


def register(client: Client, ray_cluster: RayCluster, plan: dict[str, int]) -> None:
    described = {"dashboard_url": ray_cluster.dashboard_url, "application": "chat", "deployments": DEPLOYMENTS}
    spec = TargetSpec(
        workload="chat",
        application=RayServeApplication.model_validate(described),
        mode=Mode.RECOMMEND,
        plan_id=client.create_plan(request_for(plan)).id,
    )
    client.create_target("chat", spec)


def assign(client: Client, plan: dict[str, int]) -> None:
    before = client.get_target("chat")
    after = before.document.spec.model_copy(update={"plan_id": client.create_plan(request_for(plan)).id})
    client.replace_target("chat", after, if_match=before.etag)


def test_serve_follows_the_plans_and_keeps_the_last_count_without_the_service(
    server: Server, chat: ServeApp, ray_cluster: RayCluster
) -> None:
    with server.client() as client:
        register(client, ray_cluster, {H100: 3, L4: 1})
        chat.wait_replicas("on-h100", 3)
        chat.wait_replicas("on-l4", 1)

        assign(client, {H100: 1, L4: 2})
        chat.wait_replicas("on-h100", 1)
        chat.wait_replicas("on-l4", 2)
        wait_for(
            lambda: client.get_target_status("chat"),
            lambda report: report.phase is Phase.OBSERVED and report.applied == {H100: 1, L4: 2},
            what="a report on the application as planned",
        )

        assign(client, {H100: 1, L4: 0})  # Serve keeps its own minimum
        chat.wait_replicas("on-l4", 1)
        server.kill()
    logs = ray_cluster.temp_dir / "session_latest" / "logs" / "serve"
    wait_for(
        lambda: any("the last counts stay" in path.read_text() for path in logs.glob("controller*.log")),
        what="a line of the policy about the service that is gone",
    )
    assert [len(chat.replicas(name)) for name in DEPLOYMENTS.values()] == [1, 1]
