"""The RayService actuator: the worker groups of whichever RayCluster is active."""

from typing import Any

import pytest

from api.schemas.applications import RayServiceGroups
from deploy.actuators.base import Step
from deploy.actuators.ray_cluster.service import RayServiceActuator, clusters_of_service
from deploy.common.errors import ActuationError, OvertakenError, UnreachableError
from deploy.common.kubernetes_client import Patch, RefusedError
from tests.deploy.actuators.kube_double import CLUSTER, NAMESPACE, KubeDouble, group

pytestmark = pytest.mark.anyio
UP = Step(part="H100", replicas_before=2, replicas_after=4)


class ServiceDouble:
    """The API server with a RayService before the RayCluster of the double."""

    def __init__(self, cluster: KubeDouble, *, active: str = CLUSTER, pending: str = "") -> None:
        self.cluster, self.active, self.pending = cluster, active, pending
        owner = {"kind": "RayService", "name": "chat", "controller": True}
        cluster.cluster["metadata"]["ownerReferences"] = [owner]

    async def get(self, path: str, **query: str) -> Any:
        if not path.endswith("/rayservices/chat"):
            if path.endswith("/rayservices/other"):
                raise RefusedError("https://kube returned 404: not found", status=404)
            return await self.cluster.get(path, **query)
        names = {"activeServiceStatus": self.active, "pendingServiceStatus": self.pending}
        return {"status": {key: {"rayClusterName": name} for key, name in names.items() if name}}

    async def patch(self, path: str, patch: Patch) -> None:
        await self.cluster.patch(path, patch)


def actuator(kube: ServiceDouble, service: str = "chat") -> RayServiceActuator:
    groups = RayServiceGroups(namespace=NAMESPACE, service=service, groups={"H100": "h100"})
    return RayServiceActuator(kube, groups)


async def test_the_active_cluster_is_read_and_scaled() -> None:
    kube = ServiceDouble(KubeDouble.of(group("h100", 2)))
    driver = actuator(kube)
    observation = await driver.observe()
    assert (observation.requested, observation.note, observation.warning) == ({"H100": 2}, None, None)
    await driver.apply(UP)
    assert (await driver.observe()).requested == {"H100": 4}


async def test_an_upgrade_is_reported_and_its_cluster_is_left_alone() -> None:
    kube = ServiceDouble(KubeDouble.of(group("h100", 2)), pending="chat-new")
    observation = await actuator(kube).observe()
    assert observation.note is None
    assert "RayService ml/chat prepares RayCluster chat-new, which starts with its own counts" in (
        observation.warning or ""
    )
    assert await clusters_of_service(kube, namespace=NAMESPACE, service="chat") == (CLUSTER, "chat-new")


async def test_a_change_for_the_cluster_before_a_switch_is_refused() -> None:
    kube = ServiceDouble(KubeDouble.of(group("h100", 2)))
    driver = actuator(kube)
    await driver.observe()
    kube.active = "chat-new"
    with pytest.raises(OvertakenError, match=f"switched from RayCluster {CLUSTER} to chat-new"):
        await driver.apply(UP)
    assert kube.cluster.patches == []


async def test_a_service_that_is_missing_or_not_active_yet_is_named() -> None:
    kube = ServiceDouble(KubeDouble.of(group("h100", 2)), active="")
    with pytest.raises(UnreachableError, match="RayService ml/chat has no active RayCluster yet"):
        await actuator(kube).observe()
    with pytest.raises(ActuationError, match="there is no RayService ml/other"):
        await actuator(kube, "other").observe()
