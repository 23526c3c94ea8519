"""Each kind of target goes to its own maker, and a kind that cannot be reached fails with its reason."""

import httpx
import pytest

from api.schemas.targets import Phase, RayClusterGroups, RayServeApplication, RayTrainRun
from deploy.actuators.ray_serve.actuator import RayServeActuator, ray_serve_actuators
from deploy.actuators.registry import Actuators
from deploy.common.errors import ActuationError
from tests.deploy.controller.harness import Harness, app

GROUPS = RayClusterGroups(namespace="ml", cluster="chat", groups={"B200": "b200-workers"})
RUN = RayTrainRun(run="tune-7", gpu="H100", workers_per_replica=4)


@pytest.mark.anyio
async def test_a_maker_is_asked_for_its_own_kind() -> None:
    application = RayServeApplication.model_validate(
        {"dashboard_url": "http://ray:8265", "application": "chat", "deployments": {"H100": "on-h100"}}
    )
    async with httpx.AsyncClient() as http:
        made = Actuators(ray_serve=ray_serve_actuators(http))(application)
    assert isinstance(made, RayServeActuator)
    assert made.application is application


def test_a_kind_out_of_reach_says_what_is_missing() -> None:
    with pytest.raises(ActuationError, match=r"^this controller has no access to Kubernetes$"):
        Actuators()(GROUPS)
    with pytest.raises(ActuationError, match=r"^this controller has no access to the run's Ray cluster$"):
        Actuators()(RUN)


@pytest.mark.anyio
async def test_a_target_out_of_reach_fails_and_the_others_go_on(harness: Harness) -> None:
    await harness.register_real("groups", GROUPS)
    await harness.register("chat", app(B200=1))
    assert await harness.round(harness.controller())
    status = await harness.status("groups")
    assert (status.phase, status.message) == (Phase.FAILED, "this controller has no access to Kubernetes")
    assert (await harness.status("chat")).phase is Phase.OBSERVED
