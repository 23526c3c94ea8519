"""The Serve actuator: observed counts, scaling requests, and errors."""

import json

import httpx
import pytest

from api.schemas.applications import RayServeApplication
from deploy.actuators.base import Step
from deploy.actuators.ray_serve.actuator import RayServeActuator
from deploy.actuators.ray_serve.client import ATTEMPTS
from deploy.common.errors import ActuationError, UnreachableError
from tests.deploy.actuators.serve_double import DASHBOARD_URL, Deployment, Interruption, ServeDouble, answering, raising

pytestmark = pytest.mark.anyio

TRACEBACK = "Traceback (most recent call last):\n  File x, line 1\nValueError: GCS is not ready"
UP = Step(part="H100", replicas_before=1, replicas_after=3)


def actuator(serve: ServeDouble, *, application: str = "chat", **deployments: str) -> RayServeActuator:
    described = RayServeApplication.model_validate(
        {"dashboard_url": DASHBOARD_URL, "application": application, "deployments": deployments or {"H100": "on_h100"}}
    )
    return RayServeActuator(httpx.AsyncClient(transport=serve.transport), described)


async def test_observes_requested_and_running_replicas_by_gpu() -> None:
    serve = ServeDouble({"on_h100": Deployment(requested=4, running=1), "on_l4": Deployment(requested=0, running=2)})
    observation = await actuator(serve, H100="on_h100", L4="on_l4").observe()
    assert observation.requested == {"H100": 4, "L4": 0}
    assert observation.running == {"H100": 1, "L4": 0}, "stopping replicas are not capacity"
    assert observation.note is None


async def test_only_running_replicas_count() -> None:
    """A replica on a draining node still serves, but it does not count as capacity for a removal."""
    serve = ServeDouble.running(on_h100=1)
    states = ["RUNNING", "STARTING", "UPDATING", "RECOVERING", "PENDING_MIGRATION", "STOPPING", "RUNNING"]
    details = {"target_num_replicas": 6, "replicas": [{"state": state} for state in states]}
    body = {"applications": {"chat": {"status": "DEPLOYING", "deployments": {"on_h100": details}}}}
    serve.interruptions = [answering(200, json.dumps(body))]
    assert (await actuator(serve).observe()).running == {"H100": 2}


async def test_apply_requests_an_absolute_replica_count() -> None:
    serve = ServeDouble.running(on_h100=1)
    await actuator(serve).apply(UP)
    assert serve.writes == [("on_h100", 3)]


async def test_names_are_quoted_into_one_path_segment() -> None:
    serve = ServeDouble(application="chat?v=2 #1", deployments={"50% off": Deployment(requested=1, running=1)})
    await actuator(serve, application="chat?v=2 #1", H100="50% off").apply(UP)
    assert serve.writes == [("50% off", 3)]


@pytest.mark.parametrize(
    "interruption",
    [answering(500, TRACEBACK), answering(503), raising(httpx.ConnectError), raising(httpx.ReadTimeout)],
    ids=["500", "503", "refused", "timeout"],
)
async def test_transient_failures_are_retried(interruption: Interruption) -> None:
    serve = ServeDouble.running(on_h100=1)
    for call in (actuator(serve).observe, lambda: actuator(serve).apply(UP)):
        serve.interruptions = [interruption] * (ATTEMPTS - 1)
        await call()
    assert serve.writes == [("on_h100", 3)]


async def test_a_persistent_failure_is_reported_with_its_cause() -> None:
    serve = ServeDouble.running(on_h100=1)
    serve.interruptions = [answering(500, TRACEBACK)] * ATTEMPTS
    with pytest.raises(UnreachableError, match=r"ray-head:8265/ returned 500$"):
        await actuator(serve).observe()
    assert len(serve.requests) == ATTEMPTS


async def test_a_connection_error_is_reported() -> None:
    serve = ServeDouble.running(on_h100=1)
    serve.interruptions = [raising(httpx.ConnectError)] * ATTEMPTS
    with pytest.raises(UnreachableError, match=r"ray-head:8265/ does not respond: broken on purpose"):
        await actuator(serve).apply(UP)
    assert serve.writes == []


@pytest.mark.parametrize("body", ["<html>a login page</html>", '{"applications": {"chat": {}}}', "[]"])
async def test_an_invalid_serve_response_is_reported(body: str) -> None:
    serve = ServeDouble.running(on_h100=1)
    serve.interruptions = [answering(200, body)]
    with pytest.raises(ActuationError, match="does not respond as Ray Serve does"):
        await actuator(serve).observe()


async def test_an_unauthorized_response_is_not_retried() -> None:
    serve = ServeDouble.running(on_h100=1)
    serve.interruptions = [answering(401, "Unauthorized")]
    with pytest.raises(ActuationError, match=r"returned 401$"):
        await actuator(serve).observe()
    assert len(serve.requests) == 1


async def test_the_error_for_a_missing_application_lists_the_existing_ones() -> None:
    with pytest.raises(ActuationError, match=r"no application 'caht'; it has: chat$"):
        await actuator(ServeDouble.running(on_h100=1), application="caht").observe()


async def test_the_error_for_a_missing_deployment_lists_the_existing_ones() -> None:
    serve = ServeDouble.running(on_h100=1, on_l4=1)
    with pytest.raises(ActuationError, match=r"\(RUNNING\) has no deployment 'h100'; it has: on_h100, on_l4$"):
        await actuator(serve, H100="h100").observe()


async def test_a_deployment_deleted_since_it_was_read_is_reported() -> None:
    with pytest.raises(ActuationError, match="no deployment 'h100' in application 'chat'"):
        await actuator(ServeDouble.running(on_h100=1), H100="h100").apply(UP)


async def test_without_the_external_scaler_the_count_is_declared_in_the_config() -> None:
    serve = ServeDouble(
        {"on_h100": Deployment(requested=1, running=1), "on_l4": Deployment(requested=2, running=2, declared=2)}
    )
    serve.external_scaler_enabled = False
    assert "counts are declared there" in ((await actuator(serve).observe()).note or "")
    await actuator(serve).apply(UP)
    assert serve.writes == [("on_h100", 3)]
    assert serve.config["deployments"] == [
        {"name": "on_h100", "num_replicas": 3},
        {"name": "on_l4", "num_replicas": 2},
    ]


async def test_a_count_that_was_declared_before_a_scaling_is_declared_again() -> None:
    """Serve ignores a declaration that is equal to the last one."""
    serve = ServeDouble({"on_h100": Deployment(requested=1, running=1, declared=3)})
    serve.external_scaler_enabled = False
    await actuator(serve).apply(UP)
    assert serve.deployments["on_h100"].requested == 3
    assert serve.writes == [("on_h100", 1), ("on_h100", 3)], "the first declaration repeats the running count"


async def test_a_retried_declaration_is_built_from_a_fresh_read() -> None:
    """The actuator does not repeat a failed PUT unchanged, since the config may have changed in between."""
    serve = ServeDouble(
        {"on_h100": Deployment(requested=1, running=1), "on_l4": Deployment(requested=2, running=2, declared=2)}
    )
    serve.external_scaler_enabled = False

    async def change_and_fail(_request: httpx.Request) -> httpx.Response:
        serve.deployments["on_l4"] = Deployment(requested=5, running=5, declared=5)
        return httpx.Response(503)

    async def pass_on(_request: httpx.Request) -> None:
        return None

    serve.interruptions = [pass_on, pass_on, pass_on, change_and_fail]  # the refused scaling, two reads, the PUT
    await actuator(serve).apply(UP)
    assert serve.deployments["on_l4"].requested == 5
    assert serve.writes == [("on_h100", 3)]


@pytest.mark.parametrize(
    ("deployment", "after", "advice"),
    [
        (Deployment(requested=1, running=1, autoscaled=True), 3, "num_replicas in place of autoscaling_config"),
        (Deployment(requested=1, running=1), 0, "cannot be declared with 0 replicas; allowed: 1 or more"),
        (Deployment(requested=2, running=2), 3, "was scaled to 2 meanwhile"),
    ],
)
async def test_a_count_that_a_declaration_cannot_produce_is_refused(
    deployment: Deployment, after: int, advice: str
) -> None:
    serve = ServeDouble({"on_h100": deployment})
    serve.external_scaler_enabled = False
    with pytest.raises(ActuationError, match=advice):
        await actuator(serve).apply(Step(part="H100", replicas_before=1, replicas_after=after))
    assert serve.writes == []


async def test_a_failure_reported_by_serve_is_noted() -> None:
    serve = ServeDouble.running(on_h100=1)
    serve.status, serve.message = "DEPLOY_FAILED", "The deployment on_h100 failed to start 3 times."
    note = (await actuator(serve).observe()).note
    assert note == "Serve reports DEPLOY_FAILED: The deployment on_h100 failed to start 3 times."
