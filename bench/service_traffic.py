"""Traffic of a fleet for benchmarks of the service: readers, controllers that report and write, and heavy plans.

The load is open: a request has its time, however long others take, and its latency counts from that time.
"""

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np

from api.store import Migrations
from tests.testbed.postgres import find_programs, running_postgres
from tests.testbed.server import ADMIN_TOKEN, StartServer, running_servers

TARGETS: Final = 100
UNLIMITED: Final = {
    "rate_limit_per_s": "100000",
    "rate_limit_burst": "100000",
    "jobs_queued_per_caller": "1000",
    "log_level": "ERROR",
}
READS: Final = (  # path, and its share of the reads
    ("/v1/freeze", 25),
    ("/v1/targets/t{target}", 25),
    ("/v1/gpus", 15),
    ("/v1/targets?limit=50", 10),
    ("/v1/plans?limit=20", 10),
    ("/v1/audit?limit=50", 5),
    ("/v1/faults/quarantine", 5),
    ("/v1/jobs?limit=20", 5),
)
Answer = tuple[int, Mapping[str, str]]  # status and headers
Act = Callable[[int], Awaitable[int]]  # returns the status


@dataclass(slots=True)
class Times:
    """What a stream of requests took, and how it was answered."""

    took_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        return sum(count for status, count in self.statuses.items() if not 200 <= status < 300)

    def quantile_ms(self, share: float) -> float:
        return float(1e3 * np.quantile(self.took_s, share))


async def open_loop(act: Act, *, rate_per_s: float, seconds: float) -> Times:
    """Start a request at each of its times; wait for the last."""
    times, begun_s, running = Times(), time.monotonic(), set[asyncio.Task[None]]()

    async def one(number: int, due_s: float) -> None:
        status = await act(number)
        times.took_s.append(time.monotonic() - due_s)
        times.statuses[status] += 1

    for number in range(int(rate_per_s * seconds)):
        due_s = begun_s + number / rate_per_s
        if (left_s := due_s - time.monotonic()) > 0:
            await asyncio.sleep(left_s)
        task = asyncio.create_task(one(number, due_s))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    return times


async def closed_loop(act: Act, *, clients: int, seconds: float) -> Times:
    """Each client sends its next request once the last is answered."""
    times, end_s = Times(), time.monotonic() + seconds

    async def client(number: int) -> None:
        while time.monotonic() < end_s:
            begun_s = time.monotonic()
            status = await act(number)
            times.took_s.append(time.monotonic() - begun_s)
            times.statuses[status] += 1

    await asyncio.gather(*(client(number) for number in range(clients)))
    return times


class Fleet:
    """Sends the requests of a fleet to one service."""

    def __init__(self, session: aiohttp.ClientSession, *, seed: int = 0) -> None:
        self._session = session
        self._chance = random.Random(seed)
        self._paths = [path for path, weight in READS for _each in range(weight)]
        self._etags: dict[str, str] = {}

    async def call(
        self, method: str, path: str, *, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        async with self._session.request(method, path, json=body, headers=headers) as response:
            await response.read()
            return response.status, response.headers

    async def put(self, path: str, *, body: Any) -> int:
        """Replace a document under the version of its last response; create it the first time."""
        etag = self._etags.get(path)
        condition = {"If-None-Match": "*"} if etag is None else {"If-Match": etag}
        status, headers = await self.call("PUT", path, body=body, headers=condition)
        if found := headers.get("ETag"):
            self._etags[path] = found
        return status

    async def create_targets(self) -> None:
        for number in range(TARGETS):
            status = await self.put(f"/v1/targets/t{number}", body=target(0))
            assert status == 201, status

    async def read(self, _number: int) -> int:
        path = self._chance.choice(self._paths).replace("{target}", str(self._chance.randrange(TARGETS)))
        return (await self.call("GET", path))[0]

    async def get(self, path: str, _number: int = 0) -> int:
        return (await self.call("GET", path))[0]

    async def write(self, number: int) -> int:
        """Report the status of a target; every second request replaces a target."""
        name = f"t{number % TARGETS}"
        if number // TARGETS % 2:
            return await self.put(f"/v1/targets/{name}", body=target(number))
        report = {"phase": "observed", "observed_at": datetime.now(UTC).isoformat(), "planned": {}, "applied": {}}
        return (await self.call("PUT", f"/v1/targets/{name}/status", body=report))[0]

    async def plan(self, number: int) -> int:
        """Plan a small request that is like no other."""
        return (await self.call("POST", "/v1/plans", body=small_plan(number)))[0]

    async def keep_planning(self, number: int) -> None:
        """Send one heavy plan after the other until this is cancelled."""
        while True:
            number += 1000
            await self.call("POST", "/v1/plans", body=heavy_plan(number))


@contextmanager
def fleet_services(database: str) -> Iterator[tuple[StartServer, str]]:
    """Yield a way to start services on an empty database, `sqlite` or `postgresql`, and its URL."""
    with tempfile.TemporaryDirectory(prefix="fw-bench-") as name:
        folder = Path(name)
        if database == "sqlite":
            url = f"sqlite+aiosqlite:///{folder}/fleetwright.db"
            Migrations(url).upgrade()
            with running_servers(folder) as start:
                yield start, url
            return
        with running_postgres(find_programs(), log_dir=folder, fsync=True) as server:
            Migrations(server.url()).upgrade()
            with running_servers(folder) as start:
                yield start, server.url()


def session_of(url: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        base_url=url,
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
        connector=aiohttp.TCPConnector(limit=200),
        timeout=aiohttp.ClientTimeout(total=600),
    )


def target(number: int) -> dict[str, Any]:
    application = {
        "dashboard_url": "http://127.0.0.1:1/",
        "application": "a",
        "deployments": {"H100": f"h{number}", "L4": f"l{number}"},
    }
    return {"workload": "chat", "application": application}


def small_plan(number: int) -> dict[str, Any]:
    buckets = {"input_tokens": [500, 2000], "output_tokens": [250, 1000], "share": [[0.4, 0.1], [0.3, 0.2]]}
    options = [
        {"name": "A10G", "gpu": "A10G", "price_usd_per_h": 1.0, "max_rps": [[2.0, 1.0], [5.0, 2.0]]},
        {"name": "H100", "gpu": "H100-SXM", "price_usd_per_h": 4.0, "max_rps": [[20.0, 9.0], [12.0, 6.0]]},
    ]
    return {"workloads": [{"name": "chat", "rate_rps": 10 + number / 1000, "buckets": buckets, "options": options}]}


def heavy_plan(number: int, *, workloads: int = 20, time_limit_s: float = 20.0) -> dict[str, Any]:
    """Plan a day of many models: about a minute of a core."""
    day = 0.6 + 0.4 * np.sin(2 * np.pi * np.arange(24) / 24)
    return {
        "workloads": [
            {
                "name": f"w{index}",
                "model": "Llama-3.1-8B",
                "buckets": {"preset": "azure-conversation"},
                "demand": {"step_s": 3600, "rates_rps": (day * (7 + 3 * index + number % 997 / 100)).tolist()},
                "slo": {"ttft_ms": {"p90": 2000}, "tpot_ms": {"p90": 60 + index}},
            }
            for index in range(workloads)
        ],
        "horizon": {},
        "time_limit_s": time_limit_s,
    }
