"""Memory and database of the service over a day's traffic of a fleet, sent in 20 minutes, on each database.

A day has the requests of 30 controllers, three dashboards and a scraper, and what people and monitors send: 72 times as
fast here.  What retention removes after a week or more in an installation, it removes after four minutes.  It never
removes the audit, whose size is measured apart.
Memory is the median of a minute, for each process that lives all the time; processes of single jobs do not.
"""

import asyncio
import os
import sqlite3
import statistics
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg

from bench.harness import Row
from bench.service_traffic import (
    TARGETS,
    UNLIMITED,
    Act,
    Fleet,
    Times,
    fleet_services,
    heavy_plan,
    open_loop,
    session_of,
)
from tests.testbed.fault_bundles import report
from tests.testbed.proc import descendants
from tests.testbed.server import Server

DAY_S: Final = 86_400.0
SECONDS: Final = float(os.environ.get("FLEETWRIGHT_BENCH_DAY_S", "1200"))
DATABASES: Final = ("sqlite", "postgresql")
KEPT_DAYS: Final = str(240 / DAY_S * SECONDS / 1200)
SAMPLE_S: Final = 2.0
A_DAY: Final = {  # requests
    "read": 3 * 8_640 + 8_640,  # three dashboards and a console, every ten seconds
    "scrape": 5_760,
    "write": 43_200,  # 30 controllers: a report every two minutes, and as many replaced targets
    "renew": 8_640,
    "plan": 1_440,
    "heavy": 24,
    "diagnose": 240,
    "export": 240,
    "issue_token": 240,
    "mistake": 2_880,
}


def run() -> list[Row]:
    with ThreadPoolExecutor(len(DATABASES)) as pool:
        return [row for rows in pool.map(_day, DATABASES) for row in rows]


def _day(database: str) -> list[Row]:
    retention = {
        f"retention_{kind}_days": KEPT_DAYS
        for kind in ("plans", "simulations", "bundles", "diagnoses", "cases", "versions", "jobs", "tokens", "leases")
    }
    settings = (
        UNLIMITED
        | retention
        | {
            "retention_versions_count": "5",
            "retention_interval_s": "60",
            "idempotency_ttl_s": "60",
        }
    )
    with fleet_services(database) as (start, url):
        # The controllers are those of the load: one inside the service would hold the lease of their reports.
        return asyncio.run(_send(database, url, start(url, "--no-controller", **settings)))


async def _send(database: str, url: str, server: Server) -> list[Row]:
    samples = Samples(database=database, url=url, pid=server.process.pid)
    async with session_of(server.url) as session:
        fleet = Day(session)
        await fleet.create_targets()
        sampling = asyncio.create_task(samples.take())
        streams = {name: getattr(fleet, name) for name in A_DAY}
        times = await asyncio.gather(
            *(_stream(act, requests=A_DAY[name] * SECONDS / 1200) for name, act in streams.items())
        )
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
        status, _headers = await fleet.call("GET", "/readyz")
    assert status == 200, status
    return list(_rows(samples, dict(zip(streams, times, strict=True))))


async def _stream(act: Act, *, requests: float) -> Times:
    return await open_loop(act, rate_per_s=requests / SECONDS, seconds=SECONDS)


class Day(Fleet):
    """Adds what monitors, people and mistaken programs send."""

    async def scrape(self, _number: int) -> int:
        return await self.get("/metrics")

    async def renew(self, number: int) -> int:
        return await self.put(f"/v1/leases/c{number % 30}", body={"holder": f"h{number % 30}", "lease_s": 60})

    async def heavy(self, number: int) -> int:
        body = heavy_plan(number, workloads=5, time_limit_s=5.0)
        return (await self.call("POST", "/v1/plans", body=body))[0]

    async def diagnose(self, number: int) -> int:
        return (await self.call("POST", "/v1/faults/diagnoses", body=report(job=f"job-{number}")))[0]

    async def export(self, _number: int) -> int:
        return await self.get("/v1/audit?limit=200")

    async def issue_token(self, number: int) -> int:
        body = {"name": f"n{number}", "scopes": ["read"], "expires_in_s": 60}
        return (await self.call("POST", "/v1/tokens", body=body))[0]

    async def mistake(self, number: int) -> int:
        """Send what is refused: a wrong plan, an unknown path, a stale version."""
        wrong = (("POST", "/v1/plans"), ("GET", "/v1/plan"), ("PUT", f"/v1/targets/t{number % TARGETS}"))[number % 3]
        status, _headers = await self.call(*wrong, body={"workloads": [{"name": number}]})
        return 200 if 400 <= status < 500 else status


@dataclass(slots=True, kw_only=True)
class Samples:
    """What was measured at each minute of the run."""

    database: str
    url: str
    pid: int  # of the service
    memory_bytes: dict[float, Mapping[int, int]] = field(default_factory=dict)  # of each process
    database_mb: dict[float, float] = field(default_factory=dict)  # without the audit
    audit_mb: dict[float, float] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    async def take(self) -> None:
        begun_s = time.monotonic()
        while True:
            minute = (time.monotonic() - begun_s) / SECONDS * 20
            pids = (self.pid, *descendants(self.pid))
            self.memory_bytes[minute] = {pid: rss for pid in pids if (rss := _rss_bytes(pid))}
            self.names |= {pid: _name(pid) for pid in pids if pid not in self.names}
            whole_mb, audit_mb = await asyncio.to_thread(_sizes_mb, self.database, self.url)
            self.database_mb[minute], self.audit_mb[minute] = whole_mb - audit_mb, audit_mb
            await asyncio.sleep(SAMPLE_S)


def _rows(samples: Samples, times: Mapping[str, Times]) -> Iterator[Row]:
    failed = {name: each.failed for name, each in times.items() if each.failed}
    yield {
        "database": samples.database,
        "requests": sum(len(each.took_s) for each in times.values()),
        "failed": ", ".join(f"{count} x {name}" for name, count in failed.items()) or "none",
        "read_p99_ms": times["read"].quantile_ms(0.99),
        "write_p99_ms": times["write"].quantile_ms(0.99),
        "database_mb_at_min_10": _at(samples.database_mb, 10),
        "database_mb_at_min_20": _at(samples.database_mb, 20),
        "audit_mb_at_min_20": _at(samples.audit_mb, 20),
    }
    early = [each for minute, each in samples.memory_bytes.items() if 4.5 <= minute < 5.5]
    late = [each for minute, each in samples.memory_bytes.items() if minute >= 19]
    for pid in sorted(set.intersection(*(set(each) for each in (*early, *late)))):
        before, after = (statistics.median(each[pid] for each in part) / 1e6 for part in (early, late))
        yield {
            "database": samples.database,
            "process": samples.names[pid],
            "rss_mb_at_min_5": before,
            "rss_mb_at_min_20": after,
            "growth_percent": 100 * (after / before - 1),
        }


def _at(sizes: Mapping[float, float], minute: float) -> float:
    return sizes[min(sizes, key=lambda each: abs(each - minute))]


def _rss_bytes(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


def _name(pid: int) -> str:
    """Return the command of a process, without the interpreter's options."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").split()
        known = ("serve", "worker", "resource_tracker", "forkserver", "spawn_main")
        return next((name for name in known for word in words if name in word), " ".join(words[:4]))
    return "?"


def _sizes_mb(database: str, url: str) -> tuple[float, float]:
    """Return the size of the database, and of the audit in it."""
    if database == "sqlite":
        path = Path(url.partition(":///")[2])
        whole = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
        of_audit = "name IN (SELECT name FROM sqlite_schema WHERE tbl_name = 'audit')"
        with closing(sqlite3.connect(path)) as connection:
            (audit,) = connection.execute(f"SELECT sum(pgsize) FROM dbstat WHERE {of_audit}").fetchone()  # noqa: S608
        return whole / 1e6, audit / 1e6
    sizes = "SELECT pg_database_size(current_database()), pg_total_relation_size('audit')"
    with closing(psycopg.connect(url.replace("+psycopg", ""))) as server:
        whole, audit = server.execute(sizes).fetchone() or (0, 0)
    return float(whole) / 1e6, float(audit) / 1e6
