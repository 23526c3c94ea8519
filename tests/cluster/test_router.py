"""Tests the router on a real Ray cluster as the ingress of a Serve application, under load and during changes."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
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
MAX_WAITING = 20  # in a queue of the router
EVEN = dict(zip(ENGINES, (0.5, 0.3, 0.2), strict=True))


def table(version: str, weights: dict[str, float], *, max_in_flight: int = 100) -> RoutingTable:
    """Build a table of one bucket."""
    return RoutingTable(
        version=version,
        input_tokens=(1000,),
        output_tokens=(100,),
        share=((1.0,),),
        routes={name: Route(replicas=1, max_in_flight=max_in_flight) for name in weights},
        cells=(CellWeights(row=0, column=0, weights=weights),),
    )


@dataclass(frozen=True, kw_only=True)
class Served:
    """Provides the application to operators and callers."""

    url: str
    port: int
    dashboard: httpx.Client

    def declare(self, found: RoutingTable) -> None:
        """Declare the whole application again: Serve changes only what differs."""
        config = RouterConfig(table=found).model_dump(mode="json")
        application = {
            "name": APP,
            "import_path": "tests.deploy.router.serve_engines:build",
            "args": {"engines": list(ENGINES), "settings": {"patience_s": PATIENCE_S, "max_waiting": MAX_WAITING}},
            "external_scaler_enabled": True,
            "deployments": [{"name": SERVE_NAME, "user_config": config}],
        }
        self.put([application])

    def put(self, applications: Sequence[dict[str, Any]]) -> None:
        """Replace all applications of Serve."""
        declaration = {
            "proxy_location": "HeadOnly",
            "http_options": {"host": LOOPBACK, "port": self.port},
            "applications": list(applications),
        }
        wait_for(
            lambda: self.dashboard.put(APPLICATIONS, json=declaration),
            lambda response: response.is_success,
            what="acceptance by Ray Serve",
            interval_s=1.0,
        )

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.dashboard.get(APPLICATIONS).raise_for_status().json()["applications"]
        status: dict[str, Any] = found.get(APP, {"status": "NOT_STARTED", "deployments": {}})
        assert status["status"] != "DEPLOY_FAILED", status["message"]
        return status

    def scale(self, name: str, replicas: int) -> None:
        """Request this many replicas, and wait for them."""
        path = f"/api/v1/applications/{APP}/deployments/{name}/scale"
        self.dashboard.post(path, json={"target_num_replicas": replicas}).raise_for_status()
        wait_for(lambda: self.running(name), lambda count: count == replicas, what=f"{replicas} replicas of {name}")

    def running(self, name: str) -> int:
        rows = self.status()["deployments"][name]["replicas"]
        return sum(row["state"] == "RUNNING" for row in rows)


@pytest.fixture(scope="module")
def served(ray_cluster: RayCluster) -> Iterator[Served]:
    """Share one application among all tests here."""
    url = f"http://{LOOPBACK}:{ray_cluster.serve_port}"
    with httpx.Client(base_url=ray_cluster.dashboard_url, timeout=PATIENCE_S, trust_env=False) as dashboard:
        found = Served(url=url, port=ray_cluster.serve_port, dashboard=dashboard)
        found.declare(table("p0", EVEN))
        try:
            wait_for(found.status, lambda status: status["status"] == "RUNNING", what="running application")
            responded: set[str | None] = set()
            # The router updates the running engines once a second: at its start some may be missing.
            wait_for(
                lambda: responding_routes(found, responded), lambda routes: routes >= set(ENGINES), what="all routes"
            )
            yield found
        finally:
            found.put([])
            wait_for(found.status, lambda status: status["status"] == "NOT_STARTED", what="end of the application")


def responding_routes(served: Served, responded: set[str | None]) -> set[str | None]:
    """Send one more request; return all routes that have responded."""
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    response = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=PATIENCE_S, trust_env=False)
    responded.add(response.headers.get("x-fleetwright-route"))
    return responded


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        yield http


@dataclass
class Load:
    """Runs background callers and records their responses."""

    http: httpx.AsyncClient
    url: str
    responses: list[httpx.Response] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    over: bool = False

    async def call(self, *, stream: bool = True, priority: str = "high", gate: str = "/") -> None:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "stream": stream}
        headers = {"x-token-ms": "2", "x-fleetwright-priority": priority, "x-until": gate}
        try:
            self.responses.append(await self.http.post(f"{self.url}/v1/chat/completions", json=body, headers=headers))
        except httpx.HTTPError as error:
            self.failures.append(error)

    async def keep_calling(self) -> None:
        for stream in cycle((True, False)):
            if self.over:
                return
            await self.call(stream=stream)

    async def at_least(self, count: int, *, version: str) -> list[httpx.Response]:
        """Wait for this many responses of one table; return all of them."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := self.by(version)) < count:
                await asyncio.sleep(0.05)
        return found

    def by(self, version: str) -> list[httpx.Response]:
        return [response for response in self.responses if response.headers.get("x-fleetwright-plan") == version]


@asynccontextmanager
async def load(http: httpx.AsyncClient, served: Served) -> AsyncIterator[Load]:
    """Run some callers, each with one request at a time; at the end check that every response is complete."""
    found = Load(http, served.url)
    callers = [asyncio.create_task(found.keep_calling()) for _ in range(AT_ONCE)]
    try:
        yield found
    finally:
        found.over = True
        await asyncio.gather(*callers)
    assert found.failures == []
    assert {response.status_code for response in found.responses} == {200}
    assert all(is_whole(response) for response in found.responses)


def is_whole(response: httpx.Response) -> bool:
    if response.headers["content-type"] == "text/event-stream":
        return response.text.endswith("data: [DONE]\n\n") and response.text.count("data: ") == 4
    return bool(response.json()["usage"]["completion_tokens"] == 3)


def split(responses: Sequence[httpx.Response]) -> dict[str, float]:
    counts = Counter(response.headers["x-fleetwright-route"] for response in responses)
    return {name: counts[name] / len(responses) for name in ENGINES}


async def test_a_response_is_streamed_token_by_token(http: httpx.AsyncClient, served: Served, tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True}
    gate = tmp_path / "gate"
    address, headers = f"{served.url}/v1/chat/completions", {"x-until": str(gate)}
    async with http.stream("POST", address, json=body, headers=headers) as response:
        coming = response.aiter_raw()
        parts = [await anext(coming)]
        assert parts[0].count(b"data:") == 1
        gate.touch()
        parts += [part async for part in coming]
        assert response.headers["content-type"] == "text/event-stream"
    events = b"".join(parts).decode().split("\n\n")[:-2]
    assert [json.loads(event.removeprefix("data: "))["choices"][0]["delta"]["content"] for event in events] == [
        f"t{at} " for at in range(5)
    ]
    refused = await http.post(address, content=b"{")
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_weights_change_under_load_and_the_split_follows_each_table(
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
            await found.at_least(200, version=each.version)
    for each in tables:
        weights, responses = each.by_cell[0, 0], found.by(each.version)
        off = {name: share - weights.get(name, 0.0) for name, share in split(responses).items()}
        assert max(map(abs, off.values())) <= 0.02, (each.version, len(responses), off)
    assert served.status()["deployments"][SERVE_NAME]["replicas"][0]["replica_id"] == before


async def test_a_deployment_is_scaled_up_and_down_to_zero_under_load(http: httpx.AsyncClient, served: Served) -> None:
    """Its requests run to their end; without replicas, the other deployments take its share."""
    served.declare(table("p4", EVEN))
    async with load(http, served) as found:
        await found.at_least(20, version="p4")
        for replicas in (2, 0):
            await asyncio.to_thread(served.scale, "on-h100", replicas)
        async with asyncio.timeout(PATIENCE_S):
            while len(found.responses) < 50 or split(found.responses[-50:])["on-h100"] > 0.0:
                await asyncio.sleep(0.05)  # the router updates the running replicas every second
    await asyncio.to_thread(served.scale, "on-h100", 1)


async def test_under_overload_high_priority_requests_start_earlier_and_low_ones_complete(
    http: httpx.AsyncClient, served: Served, tmp_path: Path
) -> None:
    """High-priority requests overtake at four places and two full queues; low-priority ones complete as well."""
    served.declare(table("p7", {"on-a100": 0.5, "on-l4": 0.5}, max_in_flight=2))
    warm = Load(http, served.url)
    async with asyncio.timeout(PATIENCE_S):
        while not warm.by("p7"):
            await warm.call(stream=False)
    found, gate = Load(http, served.url), tmp_path / "gate"
    calls: list[asyncio.Task[None]] = []
    for priority, most in (("low", 4 + MAX_WAITING), ("high", MAX_WAITING)):
        calls += [
            asyncio.create_task(found.call(stream=False, priority=priority, gate=str(gate))) for _ in range(most + 1)
        ]
        async with asyncio.timeout(PATIENCE_S):
            while not [each for each in refused(found) if priority_of(each) == priority]:
                await asyncio.sleep(0.05)  # until all other requests are queued, none of which can complete
    gate.touch()
    await asyncio.gather(*calls)
    assert found.failures == []
    assert [priority_of(response) for response in refused(found)] == ["low", "high"]
    served_in_order = sorted((response for response in found.responses if response.status_code == 200), key=began_ns)
    order = [priority_of(response) for response in served_in_order]
    assert len(order) == 4 + 2 * MAX_WAITING
    mean = {name: sum(at for at, each in enumerate(order) if each == name) / order.count(name) for name in set(order)}
    assert mean["high"] + 5 < mean["low"]
    last_high = len(order) - 1 - order[::-1].index("high")
    assert order[:last_high].count("low") > 4, "one of eight starts is of low priority"


def refused(found: Load) -> list[httpx.Response]:
    return [response for response in found.responses if response.status_code == 429]


def began_ns(response: httpx.Response) -> int:
    """Return when an engine began: a busy caller may read responses in another order."""
    found: int = response.json()["began_ns"]
    return found


def priority_of(response: httpx.Response) -> str:
    return response.request.headers["x-fleetwright-priority"]
