"""Audited document writes a second through the whole service, by number of clients, on SQLite and PostgreSQL.

One server process and one client process on the same machine, so both share its cores.  Every write is a PUT that
creates a target: read of the precondition, new version, audit entry under its lock, commit to disk, answer.
PostgreSQL runs with fsync as a real one does; without its programs on this machine only SQLite is measured.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.client import AsyncClient
from api.schemas.targets import RayServeApplication, TargetSpec
from api.store import Migrations
from tests.testbed.postgres import find_programs, running_postgres
from tests.testbed.requirements import UnavailableError
from tests.testbed.server import ADMIN_TOKEN, running_servers

CLIENTS = (1, 8, 64)
WRITES = 600
UNLIMITED = {"rate_limit_per_s": "1000000", "rate_limit_burst": "1000000"}
SPEC = TargetSpec(
    workload="w",
    application=RayServeApplication.model_validate(
        {"dashboard_url": "http://127.0.0.1:1/", "application": "a", "deployments": {"H100": "h"}}
    ),
)


def run() -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, database_url in _databases(Path(folder)):
            Migrations(database_url).upgrade()
            with running_servers(Path(folder)) as start:
                url = start(database_url, "--no-controller", **UNLIMITED).url
                rows += [_row(name, clients, asyncio.run(_write(url, clients))) for clients in CLIENTS]
    return rows


def _databases(folder: Path) -> Iterator[tuple[str, str]]:
    yield "SQLite", f"sqlite+aiosqlite:///{folder}/bench.db"
    try:
        programs = find_programs()
    except UnavailableError:
        return
    with running_postgres(programs, log_dir=folder, fsync=True) as server:
        server.execute("CREATE DATABASE {}", "bench")
        yield "PostgreSQL", server.url("bench")


async def _write(url: str, clients: int) -> tuple[float, list[float]]:
    latencies_s: list[float] = []

    async def client(number: int) -> None:
        async with AsyncClient(url, token=ADMIN_TOKEN) as api:
            for write in range(WRITES // clients):
                started_s = time.perf_counter()
                await api.create_target(f"b{clients}-{number}-{write}", SPEC)
                latencies_s.append(time.perf_counter() - started_s)

    started_s = time.perf_counter()
    await asyncio.gather(*map(client, range(clients)))
    return time.perf_counter() - started_s, latencies_s


def _row(name: str, clients: int, measured: tuple[float, list[float]]) -> dict[str, Any]:
    total_s, latencies_s = measured
    return {
        "database": name,
        "clients": clients,
        "writes_per_s": len(latencies_s) / total_s,
        "p50_ms": statistics.median(latencies_s) * 1000,
        "p99_ms": statistics.quantiles(latencies_s, n=100)[98] * 1000,
    }
