"""Replicas of a route as pods: which get requests, and what happens when the API server does not respond."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.common.errors import UnreachableError
from deploy.common.kubernetes_client import Patch
from deploy.common.kubernetes_objects import DRAIN_BEGAN, Pod
from deploy.router.pods import PodEngines, PodReplicas, receiving, url_of
from tests.deploy.router.engine import Engine
from tests.deploy.router.sockets import listening
from tests.deploy.router.waiting import until

pytest.importorskip("aiohttp", reason="the extra `ray` brings aiohttp")

from tests.deploy.router.test_over_http import request, upstream, whole

pytestmark = pytest.mark.anyio

ENGINES = PodEngines(namespace="ml", selector="app=chat", port=8000)


def pod(ip: str, *, ready: bool = True, marked: bool = False, **metadata: str) -> dict[str, Any]:
    annotations = {DRAIN_BEGAN: "2026-11-02T00:00:00+00:00"} if marked else {}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": f"chat-{ip}", "annotations": annotations} | metadata,
        "status": {"podIP": ip, "phase": "Running", "conditions": conditions},
    }


class Pods:
    """The API server with the pods of one selector."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods, self.responds = list(pods), True

    async def get(self, path: str, **query: str) -> Any:
        if not self.responds:
            raise UnreachableError("the API server does not respond")
        assert (path, query) == ("/api/v1/namespaces/ml/pods", {"labelSelector": "app=chat"})
        return {"items": self.pods}

    async def patch(self, path: str, patch: Patch) -> None:
        raise AssertionError(f"a router writes nothing: {path}, {patch}")


class Upstream:
    def __init__(self) -> None:
        self.urls: list[str] = []

    def set_urls(self, urls: Iterable[str]) -> None:
        self.urls = list(urls)


async def test_ready_pods_without_a_mark_get_the_requests() -> None:
    kube, found = Pods(pod("10.0.0.1"), pod("10.0.0.2", marked=True), pod("10.0.0.3", ready=False)), Upstream()
    kube.pods.append(pod("10.0.0.4", deletionTimestamp="2026-11-02T00:00:00Z"))
    counts = await PodReplicas(kube, {"a": ENGINES}, {"a": found}, 2)()
    assert found.urls == ["http://10.0.0.1:8000"]
    assert (counts.replicas, counts.routers) == ({"a": 1}, 2)


async def test_the_last_addresses_stay_while_the_api_server_does_not_respond() -> None:
    kube, found = Pods(pod("10.0.0.1")), Upstream()
    replicas = PodReplicas(kube, {"a": ENGINES}, {"a": found}, 1)
    await replicas()
    kube.responds = False
    assert (await replicas()).replicas == {"a": 1}
    assert found.urls == ["http://10.0.0.1:8000"]


async def test_a_route_has_no_replica_before_its_pods_were_read() -> None:
    kube, found = Pods(), Upstream()
    kube.responds = False
    assert (await PodReplicas(kube, {"a": ENGINES}, {"a": found}, 1)()).replicas == {"a": 0}


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6))
def test_requests_go_to_a_ready_pod_while_there_is_one_and_to_a_marked_one_only_if_all_are(
    states: list[tuple[bool, bool]],
) -> None:
    pods = [
        Pod.model_validate(pod(f"10.0.0.{at}", ready=ready, marked=marked)) for at, (ready, marked) in enumerate(states)
    ]
    chosen = receiving(pods)
    assert all(each.ready for each in chosen)
    assert bool(chosen) == any(each.ready for each in pods)
    if any(each.ready and not each.drains for each in pods):
        assert not any(each.drains for each in chosen)


def test_an_address_of_version_6_stands_in_brackets() -> None:
    assert url_of(Pod.model_validate(pod("fd00::7")), port=8000) == "http://[fd00::7]:8000"


async def test_a_request_in_flight_ends_on_a_pod_that_gets_no_new_one() -> None:
    leaving, staying = Engine("a"), Engine("b")
    async with listening(leaving) as old, listening(staying) as new:
        client = upstream(old, new)
        first = await client.send(request())
        client.set_urls([new])
        others = [await client.send(request()) for _ in range(3)]
        assert (len(leaving.bodies), len(staying.bodies)) == (1, 3)
        for found in (first, *others):
            assert await whole(found)
        client.set_urls([new, old])
        await whole(await client.send(request()))
        await until(lambda: len(leaving.bodies) + len(staying.bodies) == 5)
        await client.close()
