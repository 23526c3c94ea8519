"""The route of each request, and when: queues by priority, routes by weight, slots, power.  Pure; time is an argument.

The caller reports arrivals, responses and failures, and sends the requests that `dispatch` returns.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from math import inf

from deploy.router.row_power import NO_LIMIT, PowerAdmission
from deploy.router.settings import RouterSettings
from deploy.router.size_estimator import Outputs, TokensPerByte
from deploy.router.table import Cell, RoutingTable
from deploy.router.weighted_round_robin import WeightedRoundRobin
from power.controls import Priority

LOW_TURN = 8  # one of so many dispatches takes from the low queue, if one waits there
LOOKAHEAD = 64  # requests of a queue that are tried for a free slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    prompt_bytes: int
    prompt_tokens: int | None = None  # exact, where the prompt is a list of token ids
    max_output_tokens: float = inf
    priority: Priority = Priority.HIGH
    caller: Hashable = None  # a class of callers with similar outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    number: int
    arrival: Arrival
    cell: Cell
    since_s: float
    started_s: float | None = None
    route: str | None = None
    spilled: bool = False
    plan: str = ""  # version of the table that chose the route

    @property
    def row(self) -> int:
        return self.cell[0]

    @property
    def waited_s(self) -> float:
        return 0.0 if self.started_s is None else self.started_s - self.since_s


@dataclass(slots=True)
class _Queues:
    """One first-come queue per priority."""

    of: dict[Priority, deque[Ticket]] = field(default_factory=lambda: {priority: deque() for priority in Priority})
    starts: int = 0

    def turn(self) -> list[Priority]:
        """Return the queues in the order of this dispatch: high first, except in one of eight."""
        low_first = self.starts % LOW_TURN == LOW_TURN - 1
        ordered = [Priority.LOW, Priority.HIGH] if low_first else [Priority.HIGH, Priority.LOW]
        return [priority for priority in ordered if self.of[priority]]


class Scheduler:
    def __init__(self, table: RoutingTable, settings: RouterSettings | None = None) -> None:
        self._settings = settings or RouterSettings()
        self._tokens = TokensPerByte()
        self._queues = _Queues()
        self.in_flight: dict[str, int] = {}  # requests sent and not completed yet, by route
        self.slots: dict[str, int] = {}  # requests at once that this scheduler sends to each route
        self._replicas: Mapping[str, int] = {}
        self._routers = 1
        self._closed: frozenset[str] = frozenset()
        self._numbers = 0
        self._watts = NO_LIMIT
        self._round_robins: dict[Cell, WeightedRoundRobin[str]] = {}
        self._outputs = Outputs(table)
        self._take(table)

    def queued(self) -> Iterator[Ticket]:
        return chain.from_iterable(self._queues.of.values())

    @property
    def has_replicas(self) -> bool:
        return any(self.slots.values())

    def swap(self, table: RoutingTable) -> None:
        """Use other weights from the next dispatch on; waiting requests get buckets of the new table."""
        self._take(table)
        for queue in self._queues.of.values():
            again = [replace(ticket, cell=self._cell(ticket.arrival)) for ticket in queue]
            queue.clear()
            queue.extend(again)

    def set_replicas(self, replicas: Mapping[str, int], *, routers: int = 1) -> None:
        """Set the running replicas by route; other routes have those of the table.

        Each of the `routers` has an equal share of the slots, rounded up.
        """
        self._replicas, self._routers = replicas, routers
        self.slots = {name: self._slots_of(name) for name in self.table.routes}

    def close(self, routes: Iterable[str]) -> None:
        self._closed = frozenset(routes)

    def limit(self, watts: PowerAdmission) -> None:
        self._watts = watts

    def arrive(self, arrival: Arrival, *, now_s: float) -> Ticket | None:
        queue = self._queues.of[arrival.priority]
        if len(queue) >= self._settings.max_waiting:
            return None
        self._numbers += 1
        ticket = Ticket(number=self._numbers, arrival=arrival, cell=self._cell(arrival), since_s=now_s)
        queue.append(ticket)
        return ticket

    def dispatch(self, *, now_s: float) -> list[Ticket]:
        return list(self._dispatched(now_s))

    def expired(self, *, now_s: float) -> list[Ticket]:
        gone: list[Ticket] = []
        for queue in self._queues.of.values():
            # Requests that a failed route gave back are younger than those behind them.
            found = [ticket for ticket in queue if now_s - ticket.since_s >= self._settings.patience_s]
            for ticket in found:
                queue.remove(ticket)
            gone += found
        return gone

    def withdraw(self, ticket: Ticket) -> bool:
        """Remove a request whose caller disconnected; false where it did not wait any more."""
        queue = self._queues.of[ticket.arrival.priority]
        for at, waiting in enumerate(queue):
            if waiting.number == ticket.number:
                del queue[at]
                return True
        return False

    def retry(self, ticket: Ticket, *, now_s: float) -> Ticket | None:
        """Move a request to another route with a free slot; None where the same route is to be tried again.

        A route that has no replica, or is not in the table, cannot be tried again: the request goes back to the head of
        its queue, whose bound does not apply to it, and its patience starts again.
        """
        failed = ticket.route or ""
        # The table may have been replaced by one with other rows.
        row = self.table.row_of(self._input_tokens(ticket.arrival))
        able = self._able(row, without=failed)
        if not able and (self.slots.get(failed) or not self.has_replicas):
            return None
        self._free(failed)
        if not able:
            waiting = replace(ticket, cell=self._cell(ticket.arrival), since_s=now_s, route=None)
            self._queues.of[ticket.arrival.priority].appendleft(waiting)
            return waiting
        self.in_flight[able[0]] += 1
        return replace(ticket, route=able[0], spilled=True, plan=self.table.version)

    def done(self, ticket: Ticket, *, prompt_tokens: int | None = None, output_tokens: int | None = None) -> None:
        if ticket.route is not None:
            self._free(ticket.route)
        if prompt_tokens is not None:
            self._tokens.observe(prompt_bytes=ticket.arrival.prompt_bytes, prompt_tokens=prompt_tokens)
        if output_tokens is not None:
            row = self.table.row_of(prompt_tokens if prompt_tokens is not None else self._input_tokens(ticket.arrival))
            self._outputs.observe(row=row, caller=ticket.arrival.caller, output_tokens=output_tokens)

    def _take(self, table: RoutingTable) -> None:
        before = self._round_robins
        self.table = table
        self._outputs = Outputs(table, before=self._outputs)
        self._round_robins = {
            cell: WeightedRoundRobin(weights, credits_before=before[cell].credits if cell in before else None)
            for cell, weights in table.by_cell.items()
        }
        self.in_flight = {
            **dict.fromkeys(table.routes, 0),
            **{route: count for route, count in self.in_flight.items() if count or route in table.routes},
        }
        self.set_replicas(self._replicas, routers=self._routers)

    def _slots_of(self, name: str) -> int:
        route = self.table.routes[name]
        slots = self._replicas.get(name, route.replicas) * route.max_in_flight
        return -(-slots // self._routers)

    def _free(self, route: str) -> None:
        self.in_flight[route] -= 1
        if not self.in_flight[route] and route not in self.table.routes:
            del self.in_flight[route]

    def _cell(self, arrival: Arrival) -> Cell:
        row = self.table.row_of(self._input_tokens(arrival))
        return row, self._outputs.column(row=row, caller=arrival.caller, max_output_tokens=arrival.max_output_tokens)

    def _input_tokens(self, arrival: Arrival) -> float:
        counted = arrival.prompt_tokens
        return float(counted) if counted is not None else self._tokens.tokens(arrival.prompt_bytes)

    def _dispatched(self, now_s: float) -> Iterator[Ticket]:
        while (started := self._next(now_s)) is not None:
            yield started

    def _next(self, now_s: float) -> Ticket | None:
        """Return the first request that may go, queue by queue; one without a free slot does not block the next."""
        stuck: set[Cell] = set()  # where one request finds no slot, the next one of its bucket finds none either
        for priority in self._queues.turn():
            queue = self._queues.of[priority]
            if not self._watts.allows(priority, waited_s=now_s - queue[0].since_s):
                continue
            for at, ticket in enumerate(islice(queue, LOOKAHEAD)):
                if ticket.cell in stuck:
                    continue
                route, spilled = self._route(ticket)
                if route is None:
                    stuck.add(ticket.cell)
                else:
                    del queue[at]
                    return self._sent(ticket, route, spilled=spilled, now_s=now_s)
        return None

    def _sent(self, ticket: Ticket, route: str, *, spilled: bool, now_s: float) -> Ticket:
        self._queues.starts += 1
        self.in_flight[route] += 1
        self._watts = self._watts.with_one_more()
        return replace(ticket, started_s=now_s, route=route, spilled=spilled, plan=self.table.version)

    def _route(self, ticket: Ticket) -> tuple[str | None, bool]:
        """Choose by weight among routes with a free slot, else the least loaded route of the row."""
        weights = self.table.by_cell[ticket.cell]
        chosen = self._round_robins[ticket.cell].choose(self._has_slot)
        if chosen is not None:
            return chosen, not all(map(self._has_slot, weights))
        able = self._able(ticket.row)
        return (able[0], True) if able else (None, False)

    def _able(self, row: int, *, without: str = "") -> list[str]:
        """Return the routes of a row with a free slot, the least loaded first."""
        columns = range(len(self.table.output_tokens))
        others = {route for column in columns for route in self.table.by_cell[row, column]} - {without}
        return sorted(filter(self._has_slot, others), key=lambda route: (self._load(route), route))

    def _has_slot(self, route: str) -> bool:
        return self.in_flight[route] < self.slots[route] and route not in self._closed

    def _load(self, route: str) -> float:
        return self.in_flight[route] / max(1, self.slots[route])
