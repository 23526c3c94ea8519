"""Latency of the service's reads and writes while heavy plans run, and the reads that one core serves.

`fleetwright serve` and its worker run as processes, on PostgreSQL with fsync; the requests come from this process.
`mixed`: 100 targets, an open loop of reads and writes, and four heavy plans at any time, of which two run and two wait.
`alone`: eight clients repeat one read; the server is pinned to one core, its clients to another.
"""

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from bench.harness import Row
from bench.service_traffic import UNLIMITED, Fleet, Times, closed_loop, fleet_services, open_loop, session_of
from tests.testbed.proc import descendants

READS_PER_S: Final = (200, 300)
WRITES_PER_S: Final = 40
PLANS: Final = 4
SECONDS: Final = 60.0
WARM_UP_S: Final = 5.0
ALONE_S: Final = 15.0
CLIENTS: Final = 8
PATHS: Final = ("/v1/freeze", "/v1/gpus", "/v1/targets/t1")


def run() -> list[Row]:
    rows = []
    for reads_per_s in READS_PER_S:
        with fleet_services("postgresql") as (start, url):
            rows += asyncio.run(_mixed(start(url, **UNLIMITED).url, reads_per_s=reads_per_s))
    with fleet_services("postgresql") as (start, url):
        server = start(url, "--no-worker", **UNLIMITED)
        first, *others = sorted(os.sched_getaffinity(0))
        _pin(server.process.pid, first)
        for pid in descendants(server.process.pid):
            _pin(pid, first)
        whole = os.sched_getaffinity(0)
        os.sched_setaffinity(0, others or whole)
        try:
            rows += asyncio.run(_alone(server.url))
        finally:
            os.sched_setaffinity(0, whole)
    return rows


async def _mixed(url: str, *, reads_per_s: float) -> list[Row]:
    async with session_of(url) as session:
        fleet = Fleet(session)
        await fleet.create_targets()
        planning = [asyncio.create_task(fleet.keep_planning(number)) for number in range(PLANS)]
        await asyncio.sleep(WARM_UP_S)
        reads, writes = await asyncio.gather(
            open_loop(fleet.read, rate_per_s=reads_per_s, seconds=SECONDS),
            open_loop(fleet.write, rate_per_s=WRITES_PER_S, seconds=SECONDS),
        )
        ended = [task for task in planning if task.done()]
        assert not ended, ended
        for task in planning:
            task.cancel()
        await asyncio.gather(*planning, return_exceptions=True)
    return [
        _row(f"mixed, {reads_per_s:g} reads/s", reads, per_s=reads_per_s),
        _row(f"mixed, {WRITES_PER_S} writes/s beside them", writes, per_s=WRITES_PER_S),
    ]


async def _alone(url: str) -> list[Row]:
    rows = []
    async with session_of(url) as session:
        fleet = Fleet(session)
        await fleet.create_targets()
        for path in PATHS:
            times = await closed_loop(partial(fleet.get, path), clients=CLIENTS, seconds=ALONE_S)
            rows.append(_row(f"alone, GET {path}", times, per_s=len(times.took_s) / ALONE_S))
    return rows


def _row(load: str, times: Times, *, per_s: float) -> Row:
    return {
        "load": load,
        "requests": len(times.took_s),
        "per_s": per_s,
        "failed": times.failed,
        "p50_ms": times.quantile_ms(0.5),
        "p99_ms": times.quantile_ms(0.99),
        "worst_ms": times.quantile_ms(1.0),
    }


def _pin(pid: int, core: int) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), {core})
