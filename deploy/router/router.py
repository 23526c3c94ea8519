"""One model's router, whole: the ingress, its desk, and what it listens to beside requests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import structlog

from deploy.common.clock import Clock
from deploy.common.errors import PlanUnusableError
from deploy.router.async_scheduler import FrontDesk
from deploy.router.ingress import Ingress
from deploy.router.metrics import RouterMetrics
from deploy.router.metrics_backend import Instruments
from deploy.router.power_admission import NO_LIMIT
from deploy.router.row_power import RowWatch, word_in
from deploy.router.settings import RouterSettings, WattsFrom
from deploy.router.table import RoutingTable
from deploy.router.upstream import Upstream
from fleetwright.asgi import Receive, Send

log = structlog.get_logger()

LOOK_S = 0.25
STAFF_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Staff:
    """Who runs."""

    replicas: Mapping[str, int]  # by route
    routers: int


CountStaff = Callable[[], Awaitable[Staff]]


class Router:
    """Runs in one event loop.  `start` and `stop` it there, or let the ASGI server do so by its lifespan."""

    def __init__(
        self,
        *,
        table: RoutingTable,
        upstreams: Mapping[str, Upstream],
        settings: RouterSettings,
        instruments: Instruments,
        count_staff: CountStaff | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`count_staff`: where it can be asked who runs; else that is as the table and the settings say."""
        self._upstreams = upstreams
        self._check(table)
        self._clock = clock or Clock()
        self.metrics = RouterMetrics(instruments)
        self.front = FrontDesk(table, settings=settings.desk, metrics=self.metrics, clock=self._clock)
        self._count_staff = count_staff
        self._routers = settings.routers
        self.front.staff({}, routers=self._routers)
        self._said: WattsFrom | None = None
        self._watch: RowWatch | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ingress = Ingress(
            front=self.front,
            upstreams=upstreams,
            metrics=self.metrics,
            clock=self._clock,
            most_body_bytes=settings.most_body_bytes,
        )

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] == "http":
            await self._ingress(scope, receive, send)
        elif scope["type"] == "lifespan":
            await serve_lifespan(receive, send, start=self.start, stop=self.stop)
        else:
            await send({"type": "websocket.close"})

    async def start(self) -> None:
        """Begin to look at time, replicas and watts."""
        self._run("look", self._looks())
        if self._count_staff is not None:
            self._run("staff", self._counts(self._count_staff))

    async def stop(self) -> None:
        """Answer what is in flight, then end."""
        await self.front.drain()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for upstream in self._upstreams.values():
            await upstream.close()

    @property
    def table(self) -> RoutingTable:
        """In force."""
        return self.front.desk.table

    def take(self, table: RoutingTable) -> None:
        """Another table, from now on; raises PlanUnusableError, and then the old one stays."""
        try:
            self._check(table)
        except PlanUnusableError:
            self.metrics.table_refused()
            raise
        self.front.swap(table)
        log.info("table_taken", version=table.version, routes=sorted(table.routes))

    def hold(self, said: WattsFrom | None) -> None:
        """Hold prompts by the watts of a row, or by none."""
        if said == self._said:
            return
        self._said = said
        if (asking := self._tasks.pop("watts", None)) is not None:
            asking.cancel()
        if said is None:
            self._watch = None
            self.front.limit(NO_LIMIT)
            return
        self._watch = self._watch.under(said) if self._watch is not None else RowWatch(said)
        self._limit()
        self._run("watts", self._asks_guard(said, self._watch))

    def look(self) -> None:
        """What time alone brings."""
        self._limit()
        self.front.look()

    def _check(self, table: RoutingTable) -> None:
        if strangers := sorted(table.routes.keys() - self._upstreams.keys()):
            raise PlanUnusableError(
                f"table {table.version!r} sends to {', '.join(strangers)}; "
                f"allowed: {', '.join(sorted(self._upstreams)) or 'nothing'}"
            )

    def _limit(self) -> None:
        if self._watch is None:
            return
        now_s, in_flight = self._clock.steady_s(), sum(self.front.desk.in_flight.values())
        self._watch.count(in_flight, now_s=now_s)
        self.front.limit(self._watch.watts(in_flight, now_s=now_s, routers=self._routers))
        self.metrics.watts_age(self._watch.age_s(now_s=now_s))

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(work, name=f"router-{name}")

    async def _looks(self) -> None:
        while True:
            try:
                self.look()
            except Exception:
                log.exception("look_failed")
            await self._clock.sleep(LOOK_S)

    async def _asks_guard(self, said: WattsFrom, watch: RowWatch) -> None:
        url = f"{said.url.rstrip('/')}/metrics"
        async with httpx.AsyncClient(trust_env=False, timeout=said.every_s) as http:
            while True:
                asked_s = self._clock.steady_s()
                try:
                    async with asyncio.timeout(said.every_s):  # httpx bounds each part of an answer, not all of it
                        page = (await http.get(url)).raise_for_status().text
                    # As old as when it was asked for: the reading can only be younger than that makes it.
                    watch.hear(word_in(page, row=said.row), now_s=asked_s)
                except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, LookupError) as error:
                    log.warning("guard_not_heard", row=said.row, reason=type(error).__name__)
                await self._clock.sleep(max(0.0, asked_s + said.every_s - self._clock.steady_s()))

    async def _counts(self, count_staff: CountStaff) -> None:
        while True:
            try:
                staff = await count_staff()
                self._routers = max(1, staff.routers)
                self.front.staff(staff.replicas, routers=self._routers)
                for route, count in staff.replicas.items():
                    if not count:
                        self._upstreams[route].abandon()
            except Exception:
                # The last count holds: a route that has lost replicas since fails or queues what is sent to it.
                log.exception("replicas_not_counted")
            await self._clock.sleep(STAFF_S)


async def serve_lifespan(
    receive: Receive, send: Send, *, start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]
) -> None:
    """ASGI's start and end."""
    while True:
        message = await receive()
        await (start() if message["type"] == "lifespan.startup" else stop())
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


@asynccontextmanager
async def running(router: Router) -> AsyncIterator[Router]:
    """Between start and stop."""
    await router.start()
    try:
        yield router
    finally:
        await router.stop()
