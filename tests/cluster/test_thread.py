"""Tests the whole product with real parts only, from a request over HTTP to replicas on Ray.

POST /v1/plans (one model, three offers) -> ILP -> stored and audited -> the controller inside `fleetwright serve`
scales a Ray Serve application with one deployment per GPU type -> /metrics shows planned and applied.
"""

import re
from typing import Any

import pytest

from api.client import Client, NotFoundError
from api.schemas.applications import RayServeApplication
from api.schemas.targets import Mode, Phase, TargetSpec, TargetStatus
from planner.request import PlanRequest
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.ray_serve import ServeApp
from tests.testbed.server import Server, StartServer
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.ray
DEPLOYMENTS = {"H100-SXM": "h100", "A100-80GB-SXM": "a100", "L4": "l4"}
PROVENANCE = {"as_of": "2026-11-01", "source": "made for this test"}


def offer(gpu: str, price_usd_per_h: float, available: int) -> dict[str, Any]:
    name = f"test/{DEPLOYMENTS[gpu]}"
    place = {"provider": "test", "region": "r1", "market": "on-demand"}
    return {"id": name, "gpu": gpu, "price_usd_per_h": price_usd_per_h, "available": available} | place | PROVENANCE


def plan_request(rate_rps: float) -> PlanRequest:
    """Return a plan request; at 40 requests a second every GPU type is in the cheapest mix."""
    return PlanRequest.model_validate(
        {
            "workloads": [
                {
                    "name": "chat",
                    "model": "Llama-3.1-8B",
                    "rate_rps": rate_rps,
                    "buckets": {"input_tokens": [1000], "output_tokens": [200], "share": [[1.0]]},
                    "slo": {"tpot_ms": {"mean": 100}, "ttft_ms": {"mean": 2000}},
                }
            ],
            "offers": [offer("L4", 0.05, 3), offer("A100-80GB-SXM", 1.0, 2), offer("H100-SXM", 4.0, 8)],
        }
    )


def planned_by(api: Client, request: PlanRequest) -> tuple[str, dict[str, int]]:
    record = api.create_plan(request)
    assert record.plan.status == "optimal", record.plan
    return record.id, {entry.gpu: entry.count for entry in record.plan.allocation}


def running(app: ServeApp) -> dict[str, int]:
    return {gpu: len(app.replicas(deployment)) for gpu, deployment in DEPLOYMENTS.items()}


def metric(server: Server, name: str) -> dict[str, float]:
    with server.client() as api:
        text = api.get_metrics()
    rows = re.findall(rf'^{name}{{gpu="([^"]+)",target="chat"}} (\S+)$', text, flags=re.MULTILINE)
    return {gpu: float(value) for gpu, value in rows}


def status_when(server: Server, phase: Phase, plan_id: str | None = None) -> TargetStatus:
    with server.client() as api:
        return wait_for(
            lambda: api.get_target_status("chat"),
            lambda status: status.phase is phase and plan_id in {None, status.plan_id},
            what=f"phase {phase}",
        )


def put(server: Server, **changes: Any) -> None:
    with server.client() as api:
        found = api.get_target("chat")
        api.replace_target("chat", found.document.spec.model_copy(update=changes), if_match=found.etag)


def test_a_request_over_http_becomes_running_replicas_on_ray(
    start_server: StartServer, sqlite_url: str, ray_cluster: RayCluster, serve_app: ServeApp
) -> None:
    server = start_server(sqlite_url)
    application = RayServeApplication.model_validate(
        {"dashboard_url": ray_cluster.dashboard_url, "application": serve_app.name, "deployments": DEPLOYMENTS}
    )
    before = running(serve_app)
    with server.client() as api:
        plan_id, planned = planned_by(api, plan_request(rate_rps=40.0))
        assert set(planned) == set(DEPLOYMENTS), f"the test needs every GPU type in the plan: {planned}"
        assert planned != before
        api.create_target("chat", TargetSpec(workload="chat", application=application, plan_id=plan_id))

    # Observe, the default: the controller reads and reports, and writes nothing.
    observed = wait_for(lambda: _status_or_none(server), what="first report")
    assert observed is not None
    assert (observed.phase, observed.planned, running(serve_app)) == (Phase.OBSERVED, planned, before)

    # Apply: start before stop, verified by reading back.
    put(server, mode=Mode.APPLY)
    applied = status_when(server, Phase.APPLIED)
    assert running(serve_app) == planned == applied.applied
    assert metric(server, "fleetwright_target_replicas_planned") == planned
    assert metric(server, "fleetwright_target_replicas_applied") == planned

    # Frozen: a new plan is held back, then applied after the freeze ends.
    with server.client() as api:
        smaller_id, smaller = planned_by(api, plan_request(rate_rps=5.0))
        api.replace_freeze(api.get_freeze().document.model_copy(update={"frozen": True}), if_match="*")
    put(server, plan_id=smaller_id)
    status_when(server, Phase.FROZEN, smaller_id)
    assert running(serve_app) == planned
    with server.client() as api:
        api.replace_freeze(api.get_freeze().document.model_copy(update={"frozen": False}), if_match="*")
    status_when(server, Phase.APPLIED, smaller_id)
    assert running(serve_app) == {gpu: smaller.get(gpu, 0) for gpu in DEPLOYMENTS}

    with server.client() as api:
        actions = [entry.action for entry in api.iter_audit()]
        assert api.check_audit().intact
    for action in ("plan.created", "target.created", "target.replaced", "target.reported", "fleet.frozen"):
        assert action in actions


def _status_or_none(server: Server) -> TargetStatus | None:
    with server.client() as api:
        try:
            return api.get_target_status("chat")
        except NotFoundError:
            return None
