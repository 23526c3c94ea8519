"""Where each request goes, and when: queues by priority, routes by weight, room, watts.  Pure; time is passed in.

Whoever runs it tells of arrivals, answers and losses, and carries out what `starts` gives back.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from math import inf

from deploy.router.power_admission import NO_LIMIT, Watts
from deploy.router.size_estimator import Outputs, TokensPerByte
from deploy.router.table import Cell, RoutingTable
from deploy.router.weighted_round_robin import Quota
from power.controls import Priority

LOW_TURN = 8  # of so many starts one is the low queue's, if it waits
LOOK_AHEAD = 64  # requests of a queue that are looked at for one that finds room


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskSettings:
    """Bounds of the queues."""

    most_waiting: int = 1_000  # of each priority
    patience_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request as it comes in."""

    prompt_bytes: int
    prompt_tokens: int | None = None  # counted, where the prompt is a list of token ids
    most_tokens: float = inf
    priority: Priority = Priority.HIGH
    caller: Hashable = None  # a class of callers whose answers are alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A request that waits, or that was sent."""

    number: int
    arrival: Arrival
    row: int
    cell: Cell
    since_s: float
    started_s: float | None = None
    route: str | None = None
    spilled: bool = False
    plan: str = ""  # version of the table that chose the route

    @property
    def waited_s(self) -> float:
        """Between arrival and start."""
        return 0.0 if self.started_s is None else self.started_s - self.since_s


@dataclass(slots=True)
class _Queues:
    """First come, first served within a priority."""

    of: dict[Priority, deque[Ticket]] = field(default_factory=lambda: {priority: deque() for priority in Priority})
    starts: int = 0

    def turn(self) -> list[Priority]:
        """Whose oldest request goes first: high, but for one start in eight."""
        low_first = self.starts % LOW_TURN == LOW_TURN - 1
        ordered = [Priority.LOW, Priority.HIGH] if low_first else [Priority.HIGH, Priority.LOW]
        return [priority for priority in ordered if self.of[priority]]


class Desk:
    """One model's router."""

    def __init__(self, table: RoutingTable, settings: DeskSettings | None = None) -> None:
        self._settings = settings or DeskSettings()
        self._tokens = TokensPerByte()
        self._queues = _Queues()
        self._in_flight: dict[str, int] = {}
        self._room: dict[str, int] = {}
        self._replicas: Mapping[str, int] = {}
        self._routers = 1
        self._closed: frozenset[str] = frozenset()
        self._numbers = 0
        self._watts = NO_LIMIT
        self._quotas: dict[Cell, Quota[str]] = {}
        self._outputs = Outputs(table)
        self._take(table)

    @property
    def table(self) -> RoutingTable:
        """The one in force."""
        return self._table

    @property
    def in_flight(self) -> Mapping[str, int]:
        """Requests that were sent and have no answer yet, by route."""
        return self._in_flight

    @property
    def room(self) -> Mapping[str, int]:
        """Requests at once that this desk sends to each route."""
        return self._room

    @property
    def waiting(self) -> Mapping[Priority, int]:
        """Requests in the queues."""
        return {priority: len(queue) for priority, queue in self._queues.of.items()}

    def queued(self) -> Iterator[Ticket]:
        """Every request that waits."""
        return chain.from_iterable(self._queues.of.values())

    @property
    def is_staffed(self) -> bool:
        """Whether any route has a replica."""
        return any(self._room.values())

    def swap(self, table: RoutingTable) -> None:
        """Other weights from the next start on.  Who waits is counted in the new table's buckets."""
        self._take(table)
        for queue in self._queues.of.values():
            again = [(ticket, self._cell(ticket.arrival)) for ticket in queue]
            queue.clear()
            queue.extend(replace(ticket, row=cell[0], cell=cell) for ticket, cell in again)

    def staff(self, replicas: Mapping[str, int], *, routers: int = 1) -> None:
        """Replicas that run, by route; those of routes that are not named are taken from the table.

        So many `routers` share the deployments: each has its part of the room, rounded up.
        """
        self._replicas, self._routers = replicas, routers
        self._room = {name: self._room_of(name) for name in self._table.routes}

    def close(self, routes: Iterable[str]) -> None:
        """Send nothing to these until told otherwise; all others are open."""
        self._closed = frozenset(routes)

    def limit(self, watts: Watts) -> None:
        """What the row may draw, and draws."""
        self._watts = watts

    def arrive(self, arrival: Arrival, *, now_s: float) -> Ticket | None:
        """Put a request into its queue; None where that is full."""
        queue = self._queues.of[arrival.priority]
        if len(queue) >= self._settings.most_waiting:
            return None
        self._numbers += 1
        cell = self._cell(arrival)
        ticket = Ticket(number=self._numbers, arrival=arrival, row=cell[0], cell=cell, since_s=now_s)
        queue.append(ticket)
        return ticket

    def starts(self, *, now_s: float) -> list[Ticket]:
        """Requests to send now, with their routes."""
        return list(self._starts(now_s))

    def given_up(self, *, now_s: float) -> list[Ticket]:
        """Requests that have waited too long, and are no longer here."""
        gone: list[Ticket] = []
        for queue in self._queues.of.values():
            while queue and now_s - queue[0].since_s >= self._settings.patience_s:
                gone.append(queue.popleft())
        return gone

    def leave(self, ticket: Ticket) -> bool:
        """The caller hung up while waiting; whether it was still here."""
        queue = self._queues.of[ticket.arrival.priority]
        for at, waiting in enumerate(queue):
            if waiting.number == ticket.number:
                del queue[at]
                return True
        return False

    def another(self, ticket: Ticket) -> Ticket | None:
        """The same request on another route, after the first failed it; None where no other has room."""
        failed = ticket.route or ""
        # The table may have been replaced since, by one with other rows.
        row = self._table.row_of(self._input_tokens(ticket.arrival))
        able = self._able(row, without=failed)
        if not able:
            return None
        self._free(failed)
        self._in_flight[able[0]] += 1
        return replace(ticket, route=able[0], spilled=True, plan=self._table.version)

    def done(self, ticket: Ticket, *, prompt_tokens: int | None = None, output_tokens: int | None = None) -> None:
        """A request that was sent has its answer, or lost it; tokens are those the engine counted."""
        self._free(ticket.route or "")
        if prompt_tokens is not None:
            self._tokens.saw(prompt_bytes=ticket.arrival.prompt_bytes, prompt_tokens=prompt_tokens)
        if output_tokens is not None:
            row = self._table.row_of(prompt_tokens if prompt_tokens is not None else self._input_tokens(ticket.arrival))
            self._outputs.saw(row=row, caller=ticket.arrival.caller, output_tokens=output_tokens)

    def _take(self, table: RoutingTable) -> None:
        before = self._quotas
        self._table = table
        self._outputs = Outputs(table, before=self._outputs)
        self._quotas = {
            cell: Quota(weights, credits_before=before[cell].credits if cell in before else None)
            for cell, weights in table.by_cell.items()
        }
        self._in_flight = {
            **dict.fromkeys(table.routes, 0),
            **{route: count for route, count in self._in_flight.items() if count or route in table.routes},
        }
        self.staff(self._replicas, routers=self._routers)

    def _room_of(self, name: str) -> int:
        route = self._table.routes[name]
        room = self._replicas.get(name, route.replicas) * route.most_in_flight
        return -(-room // self._routers)

    def _free(self, route: str) -> None:
        self._in_flight[route] -= 1
        if not self._in_flight[route] and route not in self._table.routes:
            del self._in_flight[route]

    def _cell(self, arrival: Arrival) -> Cell:
        row = self._table.row_of(self._input_tokens(arrival))
        return row, self._outputs.column(row=row, caller=arrival.caller, most_tokens=arrival.most_tokens)

    def _input_tokens(self, arrival: Arrival) -> float:
        counted = arrival.prompt_tokens
        return float(counted) if counted is not None else self._tokens.tokens(arrival.prompt_bytes)

    def _starts(self, now_s: float) -> Iterator[Ticket]:
        while (started := self._next(now_s)) is not None:
            yield started

    def _next(self, now_s: float) -> Ticket | None:
        """The first request, queue by queue, that may go.  One that finds no room does not hold up those behind it."""
        stuck: set[Cell] = set()  # where one request finds no room the next one of its bucket finds none either
        for priority in self._queues.turn():
            queue = self._queues.of[priority]
            if not self._watts.lets(priority, waited_s=now_s - queue[0].since_s):
                continue
            for at, ticket in enumerate(islice(queue, LOOK_AHEAD)):
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
        self._in_flight[route] += 1
        self._watts = self._watts.with_one_more()
        return replace(ticket, started_s=now_s, route=route, spilled=spilled, plan=self._table.version)

    def _route(self, ticket: Ticket) -> tuple[str | None, bool]:
        """By weight among routes with room; else the least loaded of those that serve such prompts at all."""
        weights = self._table.by_cell[ticket.cell]
        chosen = self._quotas[ticket.cell].choose(self._has_room)
        if chosen is not None:
            return chosen, not all(map(self._has_room, weights))
        able = self._able(ticket.row)
        return (able[0], True) if able else (None, False)

    def _able(self, row: int, *, without: str = "") -> list[str]:
        """Routes with room that serve such prompts at all, the least loaded first."""
        columns = range(len(self._table.output_tokens))
        others = {route for column in columns for route in self._table.by_cell[row, column]} - {without}
        return sorted(filter(self._has_room, others), key=lambda route: (self._load(route), route))

    def _has_room(self, route: str) -> bool:
        return self._in_flight[route] < self._room[route] and route not in self._closed

    def _load(self, route: str) -> float:
        return self._in_flight[route] / max(1, self._room[route])
