"""Rolls a harmful plan back on a running Serve application, by metrics that a real Prometheus scrapes from it.

Every pool has its own caller, which waits while no replica runs.  The replicas on L4 fail every request, so the error
rate rises as soon as a plan starts one.
"""

import threading
from collections.abc import Iterator

import httpx
import pytest

from api.client import Client
from api.schemas.probes import HealthProbe
from api.schemas.target_state import ApprovalRequest
from api.schemas.targets import Phase, TargetSpec, TargetStatus
from api.schemas.tokens import TokenRequest, TokenScope
from tests.deploy.controller.harness import request_for
from tests.testbed.controllers import Stage
from tests.testbed.prometheus import Prometheus
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.ray_serve import ServeApp, running_serve_app
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.prometheus]

H100, L4 = "H100-SXM", "L4"  # names of the catalogue
DEPLOYMENTS = {H100: "on-h100", L4: "on-l4"}
POOLS = {"on-h100": "H100", "on-l4": "L4"}  # labels of Ray
GOOD, BAD = {H100: 1, L4: 0}, {H100: 0, L4: 1}
OBSERVATIONS = 20  # of the controller, during which it must write nothing
ERROR_RATE = 'sum(increase(app_requests_total{status="500"}[5s])) / sum(increase(app_requests_total[5s]))'
MAX_ERRORS = 0.1


@pytest.fixture
def chat(ray_cluster: RayCluster) -> Iterator[ServeApp]:
    """Run the application with the good plan, and its callers."""
    with running_serve_app(ray_cluster, pools=POOLS, name="chat", failing=["on-l4"]) as app:
        app.scale("on-l4", replicas=0)
        app.wait_replicas("on-l4", 0)
        over = threading.Event()
        callers = [threading.Thread(target=call, args=(app.url, pool, over)) for pool in POOLS]
        for caller in callers:
            caller.start()
        try:
            yield app
        finally:
            over.set()
            for caller in callers:
                caller.join()


@pytest.fixture
def health(prometheus: Prometheus, chat: ServeApp) -> Iterator[HealthProbe]:
    """Provide the probe of metrics that Prometheus scrapes twice a second."""
    url = httpx.URL(chat.url)
    scrape = {"job_name": "chat", "scrape_interval": "500ms", "scrape_timeout": "500ms"}
    targets = [{"targets": [f"{url.host}:{url.port}"]}]
    prometheus.configure({"scrape_configs": [scrape | {"static_configs": targets}]})
    prometheus.wait_until_up("chat")
    described = {"prometheus_url": prometheus.url, "error_rate_query": ERROR_RATE, "max_error_rate": MAX_ERRORS}
    yield HealthProbe.model_validate(described | {"judge_after_s": 4.0, "max_age_s": 5.0})
    prometheus.configure({"scrape_configs": []})  # the next application on this port must not receive the scrapes


def call(url: str, pool: str, over: threading.Event) -> None:
    """Send one request after another; repeat those without a response."""
    with httpx.Client(base_url=url, params={"pool": pool}, trust_env=False, timeout=2.0) as http:
        while not over.wait(0.02):
            try:
                http.get("/")
            except httpx.TransportError:
                continue


def test_failed_health_checks_roll_back_until_an_operator_approves_the_plan(
    stage: Stage, chat: ServeApp, health: HealthProbe, prometheus: Prometheus, ray_cluster: RayCluster
) -> None:
    name, _controller = stage.start(lease_s=15.0)
    stage.open(name)

    def written() -> list[str]:
        """Return the scaled deployments in order."""
        paths = [each.path for each in stage.gate.passed if each.method == "POST"]
        return [path.split("/")[-2] for path in paths if path.startswith("/serve-chat/")]

    def observations() -> int:
        return sum(each.path == "/serve-chat/api/serve/applications/" for each in stage.gate.passed)

    def verified(status: TargetStatus) -> bool:
        return status.state is not None and status.state.verified_plan_id == good_id

    good_id = stage.register(
        "chat", behind=ray_cluster.dashboard_url, deployments=DEPLOYMENTS, plan=GOOD, health=health
    )
    stage.wait("chat", verified, what="verified plan")
    assert written() == []

    bad_id = follow(stage, BAD)
    back = stage.wait("chat", lambda report: report.phase is Phase.ROLLED_BACK, what="rollback")
    assert back.state is not None
    assert back.state.refused is not None
    assert (back.state.verified_plan_id, back.state.refused.plan_id) == (good_id, bad_id)
    assert back.state.refused.reason.startswith(f"health worsened after plan {bad_id}: error rate is ")
    assert (back.plan_id, back.applied) == (good_id, GOOD)
    assert [len(chat.wait_replicas(DEPLOYMENTS[gpu], count)) for gpu, count in GOOD.items()] == [1, 0]
    tried, before = written(), observations()
    assert tried[0] == "on-l4", "the other plan was never started"

    wait_for(lambda: prometheus.query(f"{ERROR_RATE} == 0"), what="health as before")
    wait_for(observations, lambda now: now >= before + OBSERVATIONS, what="more observations")
    still = stage.wait("chat", lambda report: report.observed_at > back.observed_at, what="newer report")
    assert (still.phase, written()) == (Phase.ROLLED_BACK, tried), "the plan was applied again without a request"

    assert still.digest is not None
    request = TokenRequest(name="approver", scopes=frozenset({TokenScope.APPROVE}))
    with Client(stage.server.url, token=stage.client.create_token(request).secret) as approver:
        approver.approve_target("chat", ApprovalRequest(plan_id=bad_id, digest=still.digest))
    wait_for(written, lambda now: now[len(tried) :][:1] == ["on-l4"], what="another attempt")


def follow(stage: Stage, plan: dict[str, int]) -> str:
    """Assign another plan to the target; return its id."""
    plan_id = stage.client.create_plan(request_for(plan)).id
    before = stage.client.get_target("chat")
    after = TargetSpec.model_validate(before.document.spec.model_dump(mode="json") | {"plan_id": plan_id})
    stage.client.replace_target("chat", after, if_match=before.etag)
    return plan_id
