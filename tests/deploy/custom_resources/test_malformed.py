"""An object that cannot be read does not stop the others."""

from typing import Any

import pytest
import structlog

from deploy.common.clock import Clock
from deploy.common.kubernetes_client import Patch
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.custom_resources.reconciler import CustomResources
from tests.deploy.controller.harness import harness_of
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio


class Cluster:
    """An API server whose definitions do not check the form of objects."""

    def __init__(self, **items: list[dict[str, Any]]) -> None:
        self.items = items
        self.patched: list[str] = []

    async def get(self, path: str, **_query: str) -> Any:
        return {"metadata": {}, "items": self.items.get(path.rpartition("/")[2], [])}

    async def patch(self, path: str, patch: Patch) -> None:  # noqa: ARG002 - of the protocol
        self.patched.append(path.rpartition("/namespaces/")[2])


def object_of(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": name, "uid": name, "generation": 1}, "spec": spec}


async def test_the_objects_after_a_malformed_one_are_reconciled(sqlite_service: RunningService) -> None:
    cluster = Cluster(
        fleettargets=[object_of("bad", deletionPolicy="Sometimes"), object_of("good", target={})],
        planrequests=[object_of("bad", request="text"), object_of("good", request={})],
    )
    async with harness_of(sqlite_service) as harness:
        clock = Clock(now=harness.clock.now, steady_s=harness.clock.monotonic_s)
        leadership = Leadership(api=harness.api, settings=LeaseSettings(holder="test"), clock=clock)
        await leadership.renew()
        resources = CustomResources(api=harness.api, kubernetes=cluster, leadership=leadership, clock=clock)
        with structlog.testing.capture_logs() as logs:
            assert not await resources.reconcile()

    assert cluster.patched == ["team/fleettargets/good/status", "team/planrequests/good/status"]
    reasons = {each["object"]: each["reason"] for each in logs if each["event"] == "custom_resource_failed"}
    assert list(reasons) == ["team/bad"]
    assert "PlanRequestObject bad: spec.request" in reasons["team/bad"]
