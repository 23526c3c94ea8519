"""Requests of an engine from its metrics page; an engine that does not report them is never taken for idle."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from api.schemas.target_hosts import CLUSTER_HOSTS, AllowedHosts
from deploy.actuators.kubernetes_scale import engine_load
from deploy.actuators.kubernetes_scale.engine_load import EngineLoad, read_loads, requests_in
from deploy.common.kubernetes_objects import Pod
from deploy.common.target_http import target_client
from tests.deploy.actuators.scale_double import page


@pytest.mark.parametrize(
    ("text", "requests"),
    [
        (page(3), 3.0),
        ('sglang:num_running_reqs{tp_rank="0"} 2.0\nsglang:num_queue_reqs{tp_rank="0"} 1.0\n', 3.0),
        ('vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 2\n', 3.0),
        ("trtllm_num_requests_running 3\n", 3.0),
        ("vllm:num_requests_waiting 0\n", None),
        ("vllm:num_requests_running NaN\n", None),
        ("", None),
        ("<html>", None),
    ],
)
def test_running_and_queued_requests_are_read_from_the_page_of_an_engine(text: str, requests: float | None) -> None:
    found = requests_in(text)
    assert found.requests == requests
    assert bool(found.reason) == (requests is None)


def pod(*, ready: bool = True, phase: str = "Running", ip: str = "10.0.0.1") -> Pod:
    status = {"phase": phase, "podIP": ip, "conditions": [{"type": "Ready", "status": str(ready)}]}
    return Pod.model_validate({"metadata": {"name": "chat-1"}, "status": status})


async def load_of(found: Pod, respond: Callable[[httpx.Request], httpx.Response]) -> EngineLoad:
    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
        return (await read_loads(http, [found], port=8000))["chat-1"]


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused", request=request)


@pytest.mark.anyio
async def test_the_page_of_the_pod_is_read_at_its_port() -> None:
    urls: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        urls.append(str(request.url))
        return httpx.Response(200, text=page(2))

    assert await load_of(pod(), respond) == EngineLoad(2.0)
    assert await load_of(pod(ip="fd00::7"), respond) == EngineLoad(2.0)
    assert urls == ["http://10.0.0.1:8000/metrics", "http://[fd00::7]:8000/metrics"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("found", "requests"),
    [
        (pod(), None),
        (pod(ready=False), 0.0),
        (pod(phase="Pending", ready=False), 0.0),
        (pod(ip="", ready=False), 0.0),
    ],
    ids=["ready", "its process ended", "pending", "no address"],
)
async def test_only_a_pod_that_cannot_serve_is_idle_without_a_page(found: Pod, requests: float | None) -> None:
    assert (await load_of(found, refused)).requests == requests


@pytest.mark.anyio
@pytest.mark.parametrize("status", [302, 404, 500])
async def test_a_response_without_a_page_leaves_the_load_unknown(status: int) -> None:
    found = await load_of(pod(ready=False), lambda _request: httpx.Response(status, text=page(0)))
    assert found.requests is None
    assert str(status) in found.reason


@pytest.mark.anyio
async def test_a_slow_engine_leaves_the_load_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_load, "PAGE_TIMEOUT_S", 0.01)

    async def respond(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError("the event is never set")

    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
        assert (await read_loads(http, [pod()], port=8000))["chat-1"].requests is None


@pytest.mark.anyio
async def test_a_pod_outside_the_allowed_hosts_is_not_called_and_the_reason_is_given() -> None:
    async with target_client(AllowedHosts.parse(CLUSTER_HOSTS)) as http:
        found = (await read_loads(http, [pod()], port=8000))["chat-1"]
    assert found.requests is None
    assert "10.0.0.1 (10.0.0.1) is not among the allowed hosts of targets" in found.reason
