"""Each kind of target has its own actuator factory; a kind without access fails with the reason."""

import httpx
import pytest

from api.schemas.applications import KubernetesScale, RayClusterGroups, RayServeApplication, RayTrainRun
from api.schemas.targets import Phase
from deploy.actuators.kubernetes_scale.actuator import KubernetesScaleActuator, kubernetes_scale_actuators
from deploy.actuators.ray_serve.actuator import RayServeActuator, ray_serve_actuators
from deploy.actuators.registry import Actuators
from deploy.common.errors import ActuationError
from tests.deploy.actuators.scale_double import ScaleDouble
from tests.deploy.controller.harness import Harness, app

GROUPS = RayClusterGroups(namespace="ml", cluster="chat", groups={"B200": "b200-workers"})
SCALED = KubernetesScale.model_validate({"namespace": "ml", "objects": {"B200": {"name": "chat"}}})
RUN = RayTrainRun(run="tune-7", gpu="H100", workers_per_replica=4)


@pytest.mark.anyio
async def test_a_target_is_built_by_the_factory_of_its_kind() -> None:
    application = RayServeApplication.model_validate(
        {"dashboard_url": "http://ray:8265", "application": "chat", "deployments": {"H100": "on-h100"}}
    )
    async with httpx.AsyncClient() as http:
        made = Actuators(ray_serve=ray_serve_actuators(http))(application)
    assert isinstance(made, RayServeActuator)
    assert made.application is application


@pytest.mark.anyio
async def test_a_target_of_scaled_objects_is_built_with_its_own_application() -> None:
    kube = ScaleDouble()
    made = Actuators(kubernetes_scale=kubernetes_scale_actuators(kube, kube.engines()))(SCALED)
    assert isinstance(made, KubernetesScaleActuator)
    assert made.application is SCALED


def test_the_error_for_a_kind_without_access_names_the_missing_access() -> None:
    with pytest.raises(ActuationError, match=r"^this controller has no access to Kubernetes$"):
        Actuators()(GROUPS)
    with pytest.raises(ActuationError, match=r"^this controller has no access to Kubernetes$"):
        Actuators()(SCALED)
    with pytest.raises(ActuationError, match=r"^this controller has no access to the run's Ray cluster$"):
        Actuators()(RUN)


@pytest.mark.anyio
async def test_a_target_without_access_fails_and_the_others_are_reconciled(harness: Harness) -> None:
    await harness.register_real("groups", GROUPS)
    await harness.register("chat", app(B200=1))
    assert await harness.round(harness.controller())
    status = await harness.status("groups")
    assert (status.phase, status.message) == (Phase.FAILED, "this controller has no access to Kubernetes")
    assert (await harness.status("chat")).phase is Phase.OBSERVED
