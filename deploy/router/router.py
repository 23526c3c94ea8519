"""One model's router: the ingress, its scheduler, and the background tasks that feed both."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import httpx
import structlog

from deploy.common.clock import Clock
from deploy.common.errors import PlanUnusableError
from deploy.router.async_scheduler import AsyncScheduler
from deploy.router.ingress import Ingress
from deploy.router.metrics import MetricsBackend, RouterMetrics
from deploy.router.proxy import Upstream
from deploy.router.row_power import NO_LIMIT, RowPower, reading_in
from deploy.router.settings import PowerSource, RouterSettings
from deploy.router.table import RoutingTable
from fleetwright.serve import Receive, Send

log = structlog.get_logger()

TICK_S = 0.25
COUNT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounts:
    replicas: Mapping[str, int]  # by route
    routers: int


CountReplicas = Callable[[], Awaitable[ReplicaCounts]]


class Router:
    """One router in one event loop.  Call `start` and `stop`, or let the ASGI server do so by its lifespan."""

    def __init__(
        self,
        *,
        table: RoutingTable,
        upstreams: Mapping[str, Upstream],
        settings: RouterSettings,
        backend: MetricsBackend,
        count_replicas: CountReplicas | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Without `count_replicas`, the table and the settings give the replicas."""
        self._upstreams = upstreams
        self._check(table)
        self._clock = clock or Clock()
        self.metrics = RouterMetrics(backend)
        self.async_scheduler = AsyncScheduler(table, settings=settings, metrics=self.metrics, clock=self._clock)
        self._count_replicas = count_replicas
        self._counting = asyncio.Lock()
        self._routers = settings.routers
        self.async_scheduler.set_replicas({}, routers=self._routers)
        self._source: PowerSource | None = None
        self._row_power: RowPower | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ingress = Ingress(
            async_scheduler=self.async_scheduler,
            upstreams=upstreams,
            metrics=self.metrics,
            clock=self._clock,
            max_body_bytes=settings.max_body_bytes,
        )

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._ingress(scope, receive, send)
        elif scope["type"] == "lifespan":
            await serve_lifespan(receive, send, start=self.start, stop=self.stop)
        else:
            await send({"type": "websocket.close"})

    async def start(self) -> None:
        self._run("tick", self._ticks())
        if self._count_replicas is not None:
            self._run("replicas", self._counts())

    async def stop(self) -> None:
        await self.async_scheduler.drain()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for upstream in self._upstreams.values():
            await upstream.close()

    @property
    def table(self) -> RoutingTable:
        return self.async_scheduler.scheduler.table

    async def take(self, table: RoutingTable) -> None:
        """Use another table.  Raise PlanUnusableError where it is not usable, and then keep the old one.

        Replicas are counted first: the last count may be from before those of the new table ran.
        """
        try:
            self._check(table)
        except PlanUnusableError:
            self.metrics.table_refused()
            raise
        async with self._counting:
            await self._count()
            self.async_scheduler.swap(table)
        log.info("table_loaded", version=table.version, routes=sorted(table.routes))

    def set_power_source(self, source: PowerSource | None) -> None:
        if source == self._source:
            return
        self._source = source
        if (polling := self._tasks.pop("power", None)) is not None:
            polling.cancel()
        if source is None:
            self._row_power = None
            self.async_scheduler.limit(NO_LIMIT)
            return
        self._row_power = self._row_power.with_source(source) if self._row_power is not None else RowPower(source)
        self._update_limit()
        self._run("power", self._poll_guard(source, self._row_power))

    def tick(self) -> None:
        self._update_limit()
        self.async_scheduler.tick()

    def _check(self, table: RoutingTable) -> None:
        if unknown := sorted(table.routes.keys() - self._upstreams.keys()):
            raise PlanUnusableError(
                f"table {table.version!r} sends to {', '.join(unknown)}; "
                f"allowed: {', '.join(sorted(self._upstreams)) or 'nothing'}"
            )

    def _update_limit(self) -> None:
        if self._row_power is None:
            return
        now_s, in_flight = self._clock.steady_s(), sum(self.async_scheduler.scheduler.in_flight.values())
        self._row_power.count(in_flight, now_s=now_s)
        self.async_scheduler.limit(self._row_power.watts(in_flight, now_s=now_s, routers=self._routers))
        self.metrics.power_reading_age(self._row_power.age_s(now_s=now_s))

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(work, name=f"router-{name}")

    async def _ticks(self) -> None:
        while True:
            try:
                self.tick()
            except Exception:
                log.exception("tick_failed")
            await self._clock.sleep(TICK_S)

    async def _poll_guard(self, source: PowerSource, row_power: RowPower) -> None:
        url = f"{source.url.rstrip('/')}/metrics"
        async with httpx.AsyncClient(trust_env=False, timeout=source.every_s) as http:
            while True:
                polled_s = self._clock.steady_s()
                try:
                    async with asyncio.timeout(source.every_s):  # httpx limits each part of a response only
                        page = (await http.get(url)).raise_for_status().text
                    # Count the reading's age from the request: it can only be younger.
                    row_power.update(reading_in(page, row=source.row), now_s=polled_s)
                except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, LookupError) as error:
                    log.warning("guard_poll_failed", row=source.row, reason=type(error).__name__)
                await self._clock.sleep(max(0.0, polled_s + source.every_s - self._clock.steady_s()))

    async def _counts(self) -> None:
        while True:
            async with self._counting:
                await self._count()
            await self._clock.sleep(COUNT_S)

    async def _count(self) -> None:
        if self._count_replicas is None:
            return
        try:
            counts = await self._count_replicas()
            self._routers = max(1, counts.routers)
            self.async_scheduler.set_replicas(counts.replicas, routers=self._routers)
            for route, count in counts.replicas.items():
                if not count:
                    self._upstreams[route].abandon()
        except Exception:
            # The last count stays: a route that lost replicas since then fails or queues its requests.
            log.exception("replicas_not_counted")


async def serve_lifespan(
    receive: Receive, send: Send, *, start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]
) -> None:
    while True:
        message = await receive()
        await (start() if message["type"] == "lifespan.startup" else stop())
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
