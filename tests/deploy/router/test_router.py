"""The background work of the router: power from the guard, replica counts, and metrics."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deploy.common.clock import Clock
from deploy.router.metrics import MAX_BUCKETS, OTHERS, PrometheusBackend, bucket_labels
from deploy.router.router import CountReplicas, ReplicaCounts, Router
from deploy.router.settings import PowerSource, RouterSettings
from deploy.router.table import RoutingTable
from power.controls import Priority
from tests.deploy.router.asgi import Bed, Scripted
from tests.deploy.router.sockets import listening, nobody
from tests.deploy.router.tables import table, waiting_in
from tests.deploy.router.waiting import until

pytestmark = pytest.mark.anyio

LOW = [(b"x-fleetwright-priority", b"low")]
PAGE = """fleetwright_row_power_watts{{row="r"}} {row_w}
fleetwright_row_power_reading_age_seconds{{row="r"}} 1
fleetwright_row_power_budget_watts{{row="r"}} 10000
fleetwright_power_admission_limit_watts{{row="r",priority="low"}} 9800
fleetwright_power_admission_limit_watts{{row="r",priority="high"}} 9900
"""


@asynccontextmanager
async def running(router: Router) -> AsyncIterator[Router]:
    """Run a router during the block."""
    await router.start()
    try:
        yield router
    finally:
        await router.stop()


class GuardPage:
    """The metrics of a guard, as an ASGI application."""

    def __init__(self, row_w: float) -> None:
        self.row_w = row_w
        self.requests = 0

    async def __call__(self, scope: Any, _receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        self.requests += 1
        assert scope["path"] == "/metrics"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": PAGE.format(row_w=self.row_w).encode()})


def quick(upstream: Scripted, *, count_replicas: CountReplicas | None = None) -> Bed:
    """A router whose periods are 100 times shorter."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 100)

    registry = CollectorRegistry()
    router = Router(
        table=table(weights={"a": 1.0}),
        upstreams={"a": upstream},
        settings=RouterSettings(),
        backend=PrometheusBackend(registry),
        count_replicas=count_replicas,
        clock=replace(Clock(), sleep=sleep),
    )
    return Bed(router, registry)


async def test_low_priority_prompts_wait_for_power_in_the_row() -> None:
    page, deployment = GuardPage(9750.0), Scripted()
    found = quick(deployment)
    async with listening(page) as url, running(found.router) as router:
        router.set_power_source(PowerSource(url=url, row="r", step_w=100.0, patience_s=60.0))
        await until(lambda: page.requests > 1)
        low = asyncio.create_task(found.post(headers=LOW))
        assert (await found.post()).status == 200, "9850 W are below the limit of high-priority prompts"
        assert waiting_in(router.async_scheduler.scheduler)[Priority.LOW] == 1
        page.row_w = 9600.0
        assert (await low).status == 200
        assert found.counted("watts_age_seconds") >= 1.0


async def test_without_the_guard_low_priority_waits_and_high_priority_runs() -> None:
    found = quick(Scripted())
    async with running(found.router) as router:
        router.set_power_source(PowerSource(url=nobody(), row="r", step_w=100.0, patience_s=60.0))
        low = asyncio.create_task(found.post(headers=LOW))
        assert (await found.post()).status == 200
        assert not low.done()
        router.set_power_source(None)
        assert (await low).status == 200


async def test_slots_follow_the_running_replicas() -> None:
    counts = ReplicaCounts(replicas={"a": 3}, routers=2)

    async def count() -> ReplicaCounts:
        return counts

    deployment = Scripted()
    found = quick(deployment, count_replicas=count)
    async with running(found.router) as router:
        await until(lambda: router.async_scheduler.scheduler.slots == {"a": 2})
        assert (await found.post()).status == 200
        before = deployment.abandoned
        counts = ReplicaCounts(replicas={"a": 0}, routers=2)
        await until(lambda: router.async_scheduler.scheduler.slots == {"a": 0})
        assert (await found.post()).status == 503
        assert (before, deployment.abandoned > 0) == (0, True)
        await until(
            lambda: found.registry.get_sample_value("fleetwright_router_in_flight_limit", {"route": "a"}) == 0.0
        )


async def test_a_new_table_finds_replicas_that_started_after_the_last_count() -> None:
    async def count() -> ReplicaCounts:
        return ReplicaCounts(replicas={"a": 2}, routers=1)

    router = quick(Scripted(), count_replicas=count).router
    router.async_scheduler.set_replicas({"a": 0}, routers=1)
    await router.take(table(version="p2", weights={"a": 1.0}))
    assert router.async_scheduler.scheduler.slots == {"a": 2}


async def test_a_failed_replica_count_keeps_the_last_one() -> None:
    calls = 0

    async def count() -> ReplicaCounts:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise RuntimeError("Serve's controller restarts")
        return ReplicaCounts(replicas={"a": 5}, routers=1)

    async with running(quick(Scripted(), count_replicas=count).router) as router:
        await until(lambda: calls > 3)
        assert router.async_scheduler.scheduler.slots == {"a": 5}


def test_only_the_largest_buckets_have_their_own_label() -> None:
    edges = tuple(range(1, 21))
    many = table().model_dump() | {"input_tokens": edges, "output_tokens": (50, 500)}
    many["share"] = [[0.04, 0.01]] * 20
    names = bucket_labels(RoutingTable.model_validate(many))
    assert len(names) == 40
    assert len(set(names.values())) == MAX_BUCKETS + 1
    assert all(names[row, 0] == f"{row + 1}x50" for row in range(20))
    assert sum(name == OTHERS for name in names.values()) == 40 - MAX_BUCKETS


async def test_weights_of_removed_routes_are_exported_as_zero() -> None:
    found = quick(Scripted())
    router, registry = found.router, found.registry

    def weight(route: str) -> float | None:
        return registry.get_sample_value("fleetwright_router_weight_ratio", {"bucket": "100x50", "route": route})

    assert weight("a") == 1.0
    router.async_scheduler.swap(table(version="p2", weights={"b": 1.0}))
    assert (weight("a"), weight("b")) == (0.0, 1.0)
