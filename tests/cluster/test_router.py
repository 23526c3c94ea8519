"""The router on a real Ray cluster, as the ingress of a Serve application: under load, while everything changes."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import httpx
import pytest

from deploy.router.settings import SERVE_NAME, RouterConfig
from deploy.router.table import CellWeights, Route, RoutingTable
from tests.testbed.processes import LOOPBACK
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.ray_serve import APPLICATIONS
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.anyio]

APP = "routed"
ENGINES = ("on-h100", "on-a100", "on-l4")
AT_ONCE = 8  # requests that the load keeps in flight
EVEN = dict(zip(ENGINES, (0.5, 0.3, 0.2), strict=True))


def table(version: str, weights: dict[str, float], *, most_in_flight: int = 100) -> RoutingTable:
    """One bucket."""
    return RoutingTable(
        version=version,
        input_tokens=(1000,),
        output_tokens=(100,),
        share=((1.0,),),
        routes={name: Route(replicas=1, most_in_flight=most_in_flight) for name in weights},
        cells=(CellWeights(row=0, column=0, weights=weights),),
    )


@dataclass(frozen=True, kw_only=True)
class Served:
    """The application, as operator and callers see it."""

    url: str
    port: int
    dashboard: httpx.Client

    def declare(self, found: RoutingTable) -> None:
        """The whole application once more: only what differs moves."""
        config = RouterConfig(table=found).model_dump(mode="json")
        application = {
            "name": APP,
            "import_path": "tests.deploy.router.serve_engines:build",
            "args": {"engines": list(ENGINES), "settings": {"patience_s": 60.0}},
            "external_scaler_enabled": True,
            "deployments": [{"name": SERVE_NAME, "user_config": config}],
        }
        self.put([application])

    def put(self, applications: Sequence[dict[str, Any]]) -> None:
        """All that Serve runs."""
        wanted = {
            "proxy_location": "HeadOnly",
            "http_options": {"host": LOOPBACK, "port": self.port},
            "applications": list(applications),
        }
        wait_for(
            lambda: self.dashboard.put(APPLICATIONS, json=wanted),
            lambda answer: answer.is_success,
            what="acceptance by Ray Serve",
            interval_s=1.0,
        )

    def status(self) -> dict[str, Any]:
        """Of the application."""
        found: dict[str, Any] = self.dashboard.get(APPLICATIONS).raise_for_status().json()["applications"]
        status: dict[str, Any] = found.get(APP, {"status": "NOT_STARTED", "deployments": {}})
        assert status["status"] != "DEPLOY_FAILED", status["message"]
        return status

    def scale(self, name: str, replicas: int) -> None:
        """Ask for so many, and wait for them."""
        path = f"/api/v1/applications/{APP}/deployments/{name}/scale"
        self.dashboard.post(path, json={"target_num_replicas": replicas}).raise_for_status()
        wait_for(lambda: self.running(name), lambda count: count == replicas, what=f"{replicas} replicas of {name}")

    def running(self, name: str) -> int:
        """Replicas of a deployment."""
        rows = self.status()["deployments"][name]["replicas"]
        return sum(row["state"] == "RUNNING" for row in rows)


@pytest.fixture(scope="module")
def served(ray_cluster: RayCluster) -> Iterator[Served]:
    """One application for all tests here."""
    url = f"http://{LOOPBACK}:{ray_cluster.serve_port}"
    with httpx.Client(base_url=ray_cluster.dashboard_url, timeout=PATIENCE_S, trust_env=False) as dashboard:
        found = Served(url=url, port=ray_cluster.serve_port, dashboard=dashboard)
        found.declare(table("p0", EVEN))
        try:
            wait_for(found.status, lambda status: status["status"] == "RUNNING", what="running application")
            yield found
        finally:
            found.put([])
            wait_for(found.status, lambda status: status["status"] == "NOT_STARTED", what="end of the application")


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        yield http


@dataclass
class Load:
    """Callers in the background, and what they were told."""

    http: httpx.AsyncClient
    url: str
    answers: list[httpx.Response] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    over: bool = False

    async def call(self, *, tokens: int = 3, token_ms: int = 2, stream: bool = True, priority: str = "high") -> None:
        asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens, "stream": stream}
        headers = {"x-token-ms": str(token_ms), "x-fleetwright-priority": priority}
        try:
            self.answers.append(await self.http.post(f"{self.url}/v1/chat/completions", json=asked, headers=headers))
        except httpx.HTTPError as error:
            self.failures.append(error)

    async def keep_calling(self) -> None:
        for stream in cycle((True, False)):
            if self.over:
                return
            await self.call(stream=stream)

    async def at_least(self, count: int, *, version: str) -> list[httpx.Response]:
        """So many answers by one table; all of them by now."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := self.by(version)) < count:
                await asyncio.sleep(0.05)
        return found

    def by(self, version: str) -> list[httpx.Response]:
        return [answer for answer in self.answers if answer.headers.get("x-fleetwright-plan") == version]


@asynccontextmanager
async def load(http: httpx.AsyncClient, served: Served) -> AsyncIterator[Load]:
    """Some callers, each with one request after another; all of them whole at the end."""
    found = Load(http, served.url)
    callers = [asyncio.create_task(found.keep_calling()) for _ in range(AT_ONCE)]
    try:
        yield found
    finally:
        found.over = True
        await asyncio.gather(*callers)
    assert found.failures == []
    assert {answer.status_code for answer in found.answers} == {200}
    assert all(is_whole(answer) for answer in found.answers)


def is_whole(answer: httpx.Response) -> bool:
    if answer.headers["content-type"] == "text/event-stream":
        return answer.text.endswith("data: [DONE]\n\n") and answer.text.count("data: ") == 4
    return bool(answer.json()["usage"]["completion_tokens"] == 3)


def split(answers: Sequence[httpx.Response]) -> dict[str, float]:
    counts = Counter(answer.headers["x-fleetwright-route"] for answer in answers)
    return {name: counts[name] / len(answers) for name in ENGINES}


async def test_a_stream_comes_token_by_token(http: httpx.AsyncClient, served: Served) -> None:
    asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True}
    address, headers = f"{served.url}/v1/chat/completions", {"x-token-ms": "200"}
    async with http.stream("POST", address, json=asked, headers=headers) as answer:
        parts = [part async for part in answer.aiter_raw()]
        assert answer.headers["content-type"] == "text/event-stream"
    assert len(parts) >= 5
    events = b"".join(parts).decode().split("\n\n")[:-2]
    assert [json.loads(event.removeprefix("data: "))["choices"][0]["delta"]["content"] for event in events] == [
        f"t{at} " for at in range(5)
    ]
    refused = await http.post(address, content=b"{")
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_weights_are_swapped_under_load_and_each_split_is_the_tables(
    http: httpx.AsyncClient, served: Served
) -> None:
    """No replica is restarted, no request is lost, and shares are within 2 % after 200 requests of each table."""
    tables = [
        table("p1", {"on-h100": 0.2, "on-a100": 0.3, "on-l4": 0.5}),
        table("p2", {"on-h100": 1.0}),
        table("p3", {"on-a100": 0.9, "on-l4": 0.1}),
    ]
    before = served.status()["deployments"][SERVE_NAME]["replicas"][0]["replica_id"]
    async with load(http, served) as found:
        for each in tables:
            await asyncio.to_thread(served.declare, each)
            answers = await found.at_least(200, version=each.version)
            weights = each.by_cell[0, 0]
            assert all(abs(share - weights.get(name, 0.0)) <= 0.02 for name, share in split(answers).items())
    assert served.status()["deployments"][SERVE_NAME]["replicas"][0]["replica_id"] == before


async def test_a_deployment_is_scaled_up_and_away_under_load(http: httpx.AsyncClient, served: Served) -> None:
    """Its requests go on until they are answered; where no replica is left, the others take its share."""
    served.declare(table("p4", EVEN))
    async with load(http, served) as found:
        await found.at_least(20, version="p4")
        for replicas in (2, 0):
            await asyncio.to_thread(served.scale, "on-h100", replicas)
        await asyncio.sleep(2.5)  # the router looks every second who runs
        before = len(found.answers) + AT_ONCE
        await found.at_least(len(found.by("p4")) + AT_ONCE + 50, version="p4")
        assert split(found.answers[before:])["on-h100"] == 0.0
    await asyncio.to_thread(served.scale, "on-h100", 1)


async def test_overload_keeps_high_priority_whole(http: httpx.AsyncClient, served: Served) -> None:
    """Four places, forty callers: high ones overtake, low ones come through as well."""
    served.declare(table("p7", {"on-a100": 0.5, "on-l4": 0.5}, most_in_flight=2))
    warm = Load(http, served.url)
    async with asyncio.timeout(PATIENCE_S):
        while not warm.by("p7"):
            await warm.call(stream=False)
    found = Load(http, served.url)
    low = [asyncio.create_task(found.call(token_ms=500, stream=False, priority="low")) for _ in range(20)]
    await asyncio.sleep(1.0)
    high = [asyncio.create_task(found.call(token_ms=500, stream=False)) for _ in range(20)]
    await asyncio.gather(*low, *high)
    assert found.failures == []
    assert {answer.status_code for answer in found.answers} == {200}
    order = [answer.request.headers["x-fleetwright-priority"] for answer in found.answers]
    mean = {name: sum(at for at, each in enumerate(order) if each == name) / 20 for name in ("high", "low")}
    assert mean["high"] + 5 < mean["low"]
    assert "low" in order[8:32], "one start in eight is theirs"
