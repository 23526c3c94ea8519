"""The desk in an event loop: callers wait for their start, and whatever frees room lets the next ones go.

One desk belongs to one event loop; nothing here awaits between looking and deciding, so there is nothing to lock.
"""

import asyncio
from collections.abc import Mapping
from math import ceil

import structlog

from deploy.common.backoff import Backoff
from deploy.common.clock import Clock
from deploy.router.errors import BusyError, NoReplicasError
from deploy.router.metrics import RouterMetrics
from deploy.router.power_admission import Watts
from deploy.router.response_stream import Usage
from deploy.router.scheduler import Arrival, Desk, DeskSettings, Ticket
from deploy.router.table import RoutingTable

log = structlog.get_logger()

FAILURES_IN_A_ROW = 3  # before a route is left alone: one connection may go stale
FIRST_REST_S, MAX_REST_S = 1.0, 30.0
RETRY_AFTER_S = (1, 60)


class FrontDesk:
    """Where callers of one router wait."""

    def __init__(
        self, table: RoutingTable, *, settings: DeskSettings, metrics: RouterMetrics, clock: Clock | None = None
    ) -> None:
        self.desk = Desk(table, settings)
        self._settings = settings
        self._metrics = metrics
        self._clock = clock or Clock()
        self._callers: dict[int, asyncio.Future[Ticket]] = {}
        self._failures: dict[str, int] = {}
        self._rests = Backoff(first_s=FIRST_REST_S, most_s=MAX_REST_S)
        self._drained: asyncio.Event | None = None
        metrics.table_taken(table)

    async def start(self, arrival: Arrival) -> Ticket:
        """Wait for a route; raises BusyError or NoReplicasError."""
        if self._drained is not None:
            raise NoReplicasError("this router is being shut down", retry_after_s=RETRY_AFTER_S[0])
        if not self.desk.is_staffed:
            raise NoReplicasError("no deployment of this model has a replica now", retry_after_s=RETRY_AFTER_S[0])
        now_s = self._clock.steady_s()
        waiting = self.desk.arrive(arrival, now_s=now_s)
        if waiting is None:
            raise self._busy("the queue of this router is full")
        caller: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        self._callers[waiting.number] = caller
        self._pump(now_s)
        try:
            return await caller
        except asyncio.CancelledError:
            self._leave(waiting, caller)
            raise

    def another(self, ticket: Ticket) -> Ticket:
        """The route failed before its first byte: another one, or the same where no other has room."""
        route = ticket.route or ""
        self._failed(route)
        self._metrics.failed_over(route)
        again = self.desk.another(ticket)
        self._pump(self._clock.steady_s())
        return again or ticket

    def done(self, ticket: Ticket, *, usage: Usage | None = None, answered: bool) -> None:
        """The request is over; `answered`: the route is well."""
        counted = usage or Usage()
        route = ticket.route or ""
        if answered:
            self._failures.pop(route, None)
            self._rests.succeeded(route)
        self.desk.done(ticket, prompt_tokens=counted.prompt_tokens, output_tokens=counted.output_tokens)
        self._pump(self._clock.steady_s())

    def failed(self, ticket: Ticket) -> None:
        """Its route failed it for good."""
        self._failed(ticket.route or "")

    def swap(self, table: RoutingTable) -> None:
        """Other weights, from now on."""
        self.desk.swap(table)
        self._rests.forget_all_but(table.routes)
        self._metrics.table_taken(table)
        self._pump(self._clock.steady_s())

    def limit(self, watts: Watts) -> None:
        """Other watts, from now on."""
        self.desk.limit(watts)
        self._pump(self._clock.steady_s())

    def staff(self, replicas: Mapping[str, int], *, routers: int) -> None:
        """Replicas that run, where that is known, and routers that send to them."""
        self.desk.staff(replicas, routers=routers)
        self._pump(self._clock.steady_s())

    def look(self) -> None:
        """What time alone brings: patience that ends, low prompts held as high ones are, routes that have rested."""
        now_s = self._clock.steady_s()
        for ticket in self.desk.given_up(now_s=now_s):
            caller = self._callers.pop(ticket.number)
            if not caller.done():
                caller.set_exception(self._busy(f"no room within {self._settings.patience_s:g} s"))
        self._close(now_s)
        self._pump(now_s)
        self._metrics.look(self.desk)

    async def drain(self) -> None:
        """Take nobody in any more; return when nobody is left.  Whoever waits for that already goes on waiting."""
        if self._drained is None:
            self._drained = asyncio.Event()
        self._tell_if_empty()
        await self._drained.wait()

    def _pump(self, now_s: float) -> None:
        while started := self.desk.starts(now_s=now_s):
            for ticket in started:
                caller = self._callers.pop(ticket.number)
                if caller.done():  # gone this very moment, and not told yet
                    self.desk.done(ticket)
                    continue
                self._metrics.started(ticket)
                caller.set_result(ticket)
        self._tell_if_empty()

    def _leave(self, waiting: Ticket, caller: "asyncio.Future[Ticket]") -> None:
        """The caller hung up: in the queue, or in the moment of its start."""
        self._callers.pop(waiting.number, None)
        if caller.done() and not caller.cancelled() and caller.exception() is None:
            self.done(caller.result(), answered=False)
        else:
            self.desk.leave(waiting)
            self._tell_if_empty()

    def _failed(self, route: str) -> None:
        now_s = self._clock.steady_s()
        self._failures[route] = self._failures.get(route, 0) + 1
        if self._failures[route] < FAILURES_IN_A_ROW or not self._rests.is_due(route, now_s=now_s):
            return
        self._rests.failed(route, now_s=now_s)
        log.warning("route_rests", route=route, failures=self._failures[route])
        self._close(now_s)

    def _close(self, now_s: float) -> None:
        """Leave alone what fails, unless everything does: then there is nothing better."""
        staffed = {route for route, room in self.desk.room.items() if room}
        closed = {route for route in staffed if not self._rests.is_due(route, now_s=now_s)}
        self.desk.close(closed if closed < staffed else ())

    def _tell_if_empty(self) -> None:
        if self._drained is not None and not self._callers and not any(self.desk.in_flight.values()):
            self._drained.set()

    def _busy(self, message: str) -> BusyError:
        """Come back when the queue, as fast as it moves now, has gone by."""
        least_s, most_s = RETRY_AFTER_S
        room = max(1, sum(self.desk.room.values()))
        return BusyError(message, retry_after_s=min(most_s, max(least_s, ceil(len(self._callers) / room))))
