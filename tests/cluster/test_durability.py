"""Tests that no acknowledged write is lost, with many concurrent clients and after `kill -9` during writes."""

import asyncio
from collections import Counter

import pytest

from api.client import AsyncClient, ConnectionFailedError, PreconditionFailedError
from api.schemas.applications import RayServeApplication
from api.schemas.targets import TargetSpec
from api.store import Migrations
from planner.request import PlanRequest
from tests.testbed.server import Server, StartServer
from tests.testbed.soak import SOAK

CLIENTS = 200 if SOAK else 30
WRITES_EACH = 3
KILLS = 3 if SOAK else 1
DOCUMENTS = 20
PLAN_REQUEST = PlanRequest.model_validate(
    {
        "workloads": [
            {
                "name": "w",
                "rate_rps": 1.0,
                "buckets": {"input_tokens": [100], "output_tokens": [100], "share": [[1.0]]},
                "options": [{"name": "a", "gpu": "L4", "price_usd_per_h": 1.0, "max_rps": [[1.0]]}],
            }
        ]
    }
)
UNLIMITED = {"rate_limit_per_s": "100000", "rate_limit_burst": "100000"}


def spec(note: str) -> TargetSpec:
    """Return a target; the tests count its workload name."""
    application = RayServeApplication.model_validate(
        {"dashboard_url": "http://127.0.0.1:1/", "application": "a", "deployments": {"H100": note}}
    )
    return TargetSpec(workload="w", application=application)


def server_errors(metrics: str) -> list[str]:
    """Return the counts of 5xx responses."""
    return [line for line in metrics.splitlines() if 'status="5' in line and "_created" not in line]


async def add_to(client: AsyncClient, name: str, mark: str) -> None:
    """Read, append a mark and write under the ETag, until the write succeeds."""
    while True:
        found = await client.get_target(name)
        marks = found.document.spec.application.parts
        application = found.document.spec.application.model_copy(update={"deployments": {**marks, mark: mark}})
        try:
            await client.replace_target(
                name, found.document.spec.model_copy(update={"application": application}), if_match=found.etag
            )
        except PreconditionFailedError:
            continue
        return


@pytest.mark.postgres
def test_concurrent_clients_lose_no_update(start_server: StartServer, postgres_url: str) -> None:
    Migrations(postgres_url).upgrade()
    server = start_server(postgres_url, **UNLIMITED)

    async def client(number: int) -> None:
        async with server.async_client() as api:
            for write in range(WRITES_EACH):
                await add_to(api, f"t{(number + write) % DOCUMENTS}", f"c{number}-{write}")

    async def all_clients() -> None:
        async with server.async_client() as api:
            for number in range(DOCUMENTS):
                await api.create_target(f"t{number}", spec("first"))
        # Any response except success and 412 raises here.
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))

    with server.client() as api:
        before = server_errors(api.get_metrics())  # /readyz returns 503 until the service is ready
    asyncio.run(all_clients())
    with server.client() as api:
        targets = list(api.iter_targets())
        check = api.check_audit()
        metrics = api.get_metrics()
    marks = Counter(mark for target in targets for mark in target.spec.application.parts)
    assert set(marks) == {f"c{number}-{write}" for number in range(CLIENTS) for write in range(WRITES_EACH)} | {"H100"}
    assert sum(target.version for target in targets) == DOCUMENTS + CLIENTS * WRITES_EACH
    assert check.intact
    assert server_errors(metrics) == before


def test_kill_9_loses_no_acknowledged_write(start_server: StartServer, sqlite_url: str) -> None:
    """On PostgreSQL `test_service_chaos` kills the service, too."""
    server = start_server(sqlite_url, **UNLIMITED)
    acknowledged: set[str] = set()
    planned: dict[str, str] = {}  # idempotency key -> id of the plan that was acknowledged
    for round_number in range(KILLS):
        asyncio.run(_write_until_killed(server, acknowledged, planned, round_number))
        server = start_server(sqlite_url, **UNLIMITED)
        with server.client() as api:
            stored = {target.name for target in api.iter_targets()}
            assert acknowledged <= stored, f"lost: {sorted(acknowledged - stored)}"
            assert api.check_audit().intact
            created = [entry.subject for entry in api.iter_audit() if entry.action == "target.created"]
            assert sorted(created) == sorted(f"targets/{name}" for name in stored)
            assert set(planned.values()) <= {plan.id for plan in api.iter_plans()}
            for key, plan_id in planned.items():
                assert api.create_plan(PLAN_REQUEST, idempotency_key=key).id == plan_id, (
                    "executed once, same response again"
                )
    assert len(acknowledged) > 30
    assert planned


async def _write_until_killed(
    server: Server, acknowledged: set[str], planned: dict[str, str], round_number: int
) -> None:
    """Run eight writers and a planner; kill the process while all of them wait for a response."""
    enough, planned_one = asyncio.Event(), asyncio.Event()

    async def write(writer: int) -> None:
        async with server.async_client() as api:
            for number in range(10_000):
                name = f"k{round_number}-{writer}-{number}"
                try:
                    await api.create_target(name, spec("x"))
                except ConnectionFailedError:
                    return
                acknowledged.add(name)
                if len(acknowledged) % 40 == 39:
                    enough.set()

    async def plan() -> None:
        async with server.async_client() as api:
            for number in range(10_000):
                key = f"p{round_number}-{number}"
                try:
                    planned[key] = (await api.create_plan(PLAN_REQUEST, idempotency_key=key)).id
                except ConnectionFailedError:
                    return
                planned_one.set()

    writers = [asyncio.create_task(write(writer)) for writer in range(8)] + [asyncio.create_task(plan())]
    await enough.wait()
    await planned_one.wait()  # the worker of a new server needs a moment
    server.kill()
    await asyncio.gather(*writers)
