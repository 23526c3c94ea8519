"""The scheduler in an event loop: callers wait for their dispatch, and every freed slot dispatches the next requests.

One scheduler belongs to one event loop, and no decision contains an await, so it needs no lock.
"""

import asyncio
from collections.abc import Mapping
from math import ceil

import structlog

from deploy.common.backoff import Backoff
from deploy.common.clock import Clock
from deploy.router.errors import BusyError, NoReplicasError
from deploy.router.metrics import RouterMetrics
from deploy.router.response_stream import Usage
from deploy.router.row_power import PowerAdmission
from deploy.router.scheduler import Arrival, Scheduler, Ticket
from deploy.router.settings import RouterSettings
from deploy.router.table import RoutingTable

log = structlog.get_logger()

FAILURES_IN_A_ROW = 3  # before a route rests: one failure may be a stale connection
FIRST_BACKOFF_S, MAX_BACKOFF_S = 1.0, 30.0
RETRY_AFTER_S = (1, 60)


class AsyncScheduler:
    def __init__(
        self, table: RoutingTable, *, settings: RouterSettings, metrics: RouterMetrics, clock: Clock | None = None
    ) -> None:
        self.scheduler = Scheduler(table, settings)
        self._settings = settings
        self._metrics = metrics
        self._clock = clock or Clock()
        self._callers: dict[int, asyncio.Future[Ticket]] = {}
        self._failures: dict[str, int] = {}
        self._backoff = Backoff(first_s=FIRST_BACKOFF_S, max_s=MAX_BACKOFF_S)
        self._drained: asyncio.Event | None = None
        metrics.table_loaded(table)

    async def start(self, arrival: Arrival) -> Ticket:
        if self._drained is not None:
            raise NoReplicasError("this router is being shut down", retry_after_s=RETRY_AFTER_S[0])
        if not self.scheduler.has_replicas:
            raise NoReplicasError("no deployment of this model has a replica now", retry_after_s=RETRY_AFTER_S[0])
        now_s = self._clock.steady_s()
        waiting = self.scheduler.arrive(arrival, now_s=now_s)
        if waiting is None:
            raise self._busy("the queue of this router is full")
        return await self._dispatched(waiting, now_s=now_s)

    async def retry(self, ticket: Ticket) -> Ticket:
        """Return the ticket of another route after a failure, or of the same route where no other has a slot.

        Where the same route cannot serve either, the request waits in the queue again.  The slot of `ticket` is
        released unless the same ticket is returned.
        """
        route = ticket.route or ""
        self._failed(route)
        self._metrics.retried(route)
        now_s = self._clock.steady_s()
        again = self.scheduler.retry(ticket, now_s=now_s)
        if again is not None and again.route is None:
            return await self._dispatched(again, now_s=now_s)
        self._pump(now_s)
        return again or ticket

    def done(self, ticket: Ticket, *, usage: Usage | None = None, succeeded: bool) -> None:
        counted = usage or Usage()
        route = ticket.route or ""
        if succeeded:
            self._failures.pop(route, None)
            self._backoff.succeeded(route)
        self.scheduler.done(ticket, prompt_tokens=counted.prompt_tokens, output_tokens=counted.output_tokens)
        self._pump(self._clock.steady_s())

    def failed(self, ticket: Ticket) -> None:
        self._failed(ticket.route or "")

    def swap(self, table: RoutingTable) -> None:
        self.scheduler.swap(table)
        self._backoff.forget_all_but(table.routes)
        self._metrics.table_loaded(table)
        self._pump(self._clock.steady_s())

    def limit(self, watts: PowerAdmission) -> None:
        self.scheduler.limit(watts)
        self._pump(self._clock.steady_s())

    def set_replicas(self, replicas: Mapping[str, int], *, routers: int) -> None:
        self.scheduler.set_replicas(replicas, routers=routers)
        self._pump(self._clock.steady_s())

    def tick(self) -> None:
        """Apply the effects of time: expired patience, low prompts that count as high, routes whose backoff ends."""
        now_s = self._clock.steady_s()
        for ticket in self.scheduler.expired(now_s=now_s):
            caller = self._callers.pop(ticket.number)
            if not caller.done():
                caller.set_exception(self._busy(f"no free slot within {self._settings.patience_s:g} s"))
        self._close(now_s)
        self._pump(now_s)
        self._metrics.update(self.scheduler)

    async def drain(self) -> None:
        """Refuse new requests, and return when none is left.  Requests in the queue are still served."""
        if self._drained is None:
            self._drained = asyncio.Event()
        self._signal_if_drained()
        await self._drained.wait()

    async def _dispatched(self, waiting: Ticket, *, now_s: float) -> Ticket:
        caller: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        self._callers[waiting.number] = caller
        self._pump(now_s)
        try:
            return await caller
        except asyncio.CancelledError:
            self._leave(waiting, caller)
            raise

    def _pump(self, now_s: float) -> None:
        while started := self.scheduler.dispatch(now_s=now_s):
            for ticket in started:
                caller = self._callers.pop(ticket.number)
                if caller.done():  # cancelled at this moment
                    self.scheduler.done(ticket)
                    continue
                self._metrics.dispatched(ticket)
                caller.set_result(ticket)
        self._signal_if_drained()

    def _leave(self, waiting: Ticket, caller: "asyncio.Future[Ticket]") -> None:
        self._callers.pop(waiting.number, None)
        if caller.done() and not caller.cancelled() and caller.exception() is None:
            self.done(caller.result(), succeeded=False)
        else:
            self.scheduler.withdraw(waiting)
            self._signal_if_drained()

    def _failed(self, route: str) -> None:
        now_s = self._clock.steady_s()
        self._failures[route] = self._failures.get(route, 0) + 1
        if self._failures[route] < FAILURES_IN_A_ROW or not self._backoff.is_due(route, now_s=now_s):
            return
        self._backoff.failed(route, now_s=now_s)
        log.warning("route_backoff", route=route, failures=self._failures[route])
        self._close(now_s)

    def _close(self, now_s: float) -> None:
        """Close the routes that are in backoff, unless that is all of them."""
        serving = {route for route, slots in self.scheduler.slots.items() if slots}
        closed = {route for route in serving if not self._backoff.is_due(route, now_s=now_s)}
        self.scheduler.close(closed if closed < serving else ())

    def _signal_if_drained(self) -> None:
        if self._drained is not None and not self._callers and not any(self.scheduler.in_flight.values()):
            self._drained.set()

    def _busy(self, message: str) -> BusyError:
        """Return an error with the time after which the queue, at its present rate, is served."""
        min_s, max_s = RETRY_AFTER_S
        slots = max(1, sum(self.scheduler.slots.values()))
        return BusyError(message, retry_after_s=min(max_s, max(min_s, ceil(len(self._callers) / slots))))
