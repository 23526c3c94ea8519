"""The metrics of a router, by bucket of the plan, route and priority.

Labels are bounded: the `MAX_BUCKETS` buckets with the largest shares of requests have a name and all others share one,
routes are those of tables, and callers are not labels.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deploy.router.scheduler import Scheduler, Ticket
from deploy.router.table import Cell, RoutingTable
from power.controls import Priority

RecordValue = Callable[..., None]  # value, then one value per label
MAX_BUCKETS = 32
OTHERS = "others"
NO_ROUTE = "none"
ENDS = ("ok", "gone", "lost", "failed")
REFUSALS = ("unreadable", "too_large", "busy", "no_replicas", "failed", "gone")
# A prompt of some tokens takes tens of milliseconds; callers give up within a minute.
_FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# 10 ms is the rate of a single user on a large server; 200 ms is slower than reading.
_TOKEN_S = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0)
_WAIT_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_ADDED_S = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)


class MetricsBackend(Protocol):
    def counter(self, name: str, text: str, labels: Sequence[str]) -> RecordValue:
        """Return a function that adds to a counter."""

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> RecordValue:
        """Return a function that sets a gauge."""

    def histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> RecordValue:
        """Return a function that observes a value."""


class PrometheusBackend:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, labels: Sequence[str]) -> RecordValue:
        made = Counter(name, text, labels, registry=self._registry)
        of_labels = cache(made.labels)
        return lambda value, *of: (of_labels(*of) if of else made).inc(value)

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> RecordValue:
        made = Gauge(name, text, labels, registry=self._registry)
        of_labels = cache(made.labels)
        return lambda value, *of: (of_labels(*of) if of else made).set(value)

    def histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> RecordValue:
        made = Histogram(name, text, labels, buckets=buckets, registry=self._registry)
        of_labels = cache(made.labels)
        return lambda value, *of: (of_labels(*of) if of else made).observe(value)


class RayServeBackend:
    """Ray's metrics in a replica.

    A scraper cannot select one replica of Serve, so Ray's agent on each node exports their metrics (as `ray_NAME`,
    with tags for application, deployment and replica).
    """

    def __init__(self) -> None:
        from ray.serve import metrics  # noqa: PLC0415 - an extra, and seconds to import

        self._ray: Any = metrics

    def counter(self, name: str, text: str, labels: Sequence[str]) -> RecordValue:
        """Return a counter; Ray refuses an increase of 0."""
        made, keys = self._ray.Counter(name, description=text, tag_keys=tuple(labels)), tuple(labels)

        def add(value: float, *of: str) -> None:
            if value > 0.0:
                made.inc(value, tags=dict(zip(keys, of, strict=True)))

        return add

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> RecordValue:
        made, keys = self._ray.Gauge(name, description=text, tag_keys=tuple(labels)), tuple(labels)
        return lambda value, *of: made.set(value, tags=dict(zip(keys, of, strict=True)))

    def histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> RecordValue:
        """Return a histogram; Ray requires bounds above 0."""
        bounds = [bound for bound in buckets if bound > 0.0]
        made = self._ray.Histogram(name, description=text, boundaries=bounds, tag_keys=tuple(labels))
        keys = tuple(labels)
        return lambda value, *of: made.observe(value, tags=dict(zip(keys, of, strict=True)))


class RouterMetrics:
    def __init__(self, backend: MetricsBackend) -> None:
        kept = ["bucket", "route", "priority"]
        self._dispatched = backend.counter(
            "fleetwright_router_dispatched",
            "Requests sent to a route; spilled: a route that was due by its weight had no free slot.",
            [*kept, "spilled"],
        )
        self._ends = backend.counter(
            "fleetwright_router_requests",
            "Requests that ended: ok, gone (the caller disconnected), lost (the route failed later), or refused.",
            ["route", "priority", "outcome"],
        )
        self._retries = backend.counter(
            "fleetwright_router_retries", "Requests that a route failed before the first byte.", ["route"]
        )
        self._tables = backend.counter(
            "fleetwright_router_table_loads", "Tables received: taken or refused.", ["result"]
        )
        self._first = backend.histogram(
            "fleetwright_router_ttft_seconds", "From arrival to the first event of a stream.", kept, _FIRST_S
        )
        self._token = backend.histogram(
            "fleetwright_router_tpot_seconds", "Mean time between tokens of a stream.", kept, _TOKEN_S
        )
        self._wait = backend.histogram(
            "fleetwright_router_admission_wait_seconds", "From arrival to dispatch.", kept, _WAIT_S
        )
        self._added = backend.histogram(
            "fleetwright_router_overhead_seconds",
            "Router time of a request that need not wait, from its last byte to the call to its route.",
            [],
            _ADDED_S,
        )
        self._waiting = backend.gauge(
            "fleetwright_router_waiting", "Requests in the queue now.", ["bucket", "priority"]
        )
        self._in_flight = backend.gauge(
            "fleetwright_router_in_flight", "Requests sent, still without a response.", ["route"]
        )
        self._slots = backend.gauge(
            "fleetwright_router_in_flight_limit", "Requests at once that this router sends to a route.", ["route"]
        )
        self._weight = backend.gauge(
            "fleetwright_router_weight_ratio", "Weight of a route in a bucket, by the table.", ["bucket", "route"]
        )
        self._watts_age = backend.gauge(
            "fleetwright_router_watts_age_seconds", "Age of the guard's reading that limits low prompts.", []
        )
        for priority in Priority:  # so that the first request of a kind is an increase
            for outcome in REFUSALS:
                self._ends(0, NO_ROUTE, name_of(priority), outcome)
        for result in ("taken", "refused"):
            self._tables(0, result)
        self._names: Mapping[Cell, str] = {}
        self._weighed: set[tuple[str, str]] = set()
        self._queued: set[tuple[str, str]] = set()
        self._routes: set[str] = set()

    def table_loaded(self, table: RoutingTable) -> None:
        self._tables(1, "taken")
        self._names = bucket_labels(table)
        named = {(self._names[cell], route): w for cell, found in table.by_cell.items() for route, w in found.items()}
        named = {key: weight for key, weight in named.items() if key[0] != OTHERS}
        for key in self._weighed - named.keys():
            self._weight(0.0, *key)
        for key, weight in named.items():
            self._weight(weight, *key)
        self._weighed = set(named)

    def table_refused(self) -> None:
        self._tables(1, "refused")

    def dispatched(self, ticket: Ticket) -> None:
        of = self._labels(ticket)
        self._dispatched(1, *of, "yes" if ticket.spilled else "no")
        self._wait(ticket.waited_s, *of)

    def overhead(self, own_s: float) -> None:
        self._added(own_s)

    def retried(self, route: str) -> None:
        self._retries(1, route)

    def ended(self, ticket: Ticket, outcome: str) -> None:
        self._ends(1, ticket.route or NO_ROUTE, name_of(ticket.arrival.priority), outcome)

    def refused(self, priority: Priority, outcome: str) -> None:
        self._ends(1, NO_ROUTE, name_of(priority), outcome)

    def streamed(self, ticket: Ticket, *, first_s: float, token_s: float | None) -> None:
        of = self._labels(ticket)
        self._first(first_s, *of)
        if token_s is not None:
            self._token(token_s, *of)

    def update(self, scheduler: Scheduler) -> None:
        counts = {(name, name_of(each)): 0 for name in set(self._names.values()) for each in Priority}
        for ticket in scheduler.queued():
            key = self._names.get(ticket.cell, OTHERS), name_of(ticket.arrival.priority)
            counts[key] = counts.get(key, 0) + 1
        for key in self._queued - counts.keys():
            self._waiting(0, *key)
        for key, count in counts.items():
            self._waiting(count, *key)
        self._queued = set(counts)
        for route in scheduler.slots.keys() - self._routes:
            self._start_counters(route)
        self._routes |= scheduler.slots.keys()
        for route in self._routes:
            self._in_flight(scheduler.in_flight.get(route, 0), route)
            self._slots(scheduler.slots.get(route, 0), route)

    def power_reading_age(self, age_s: float) -> None:
        self._watts_age(age_s)

    def _start_counters(self, route: str) -> None:
        self._retries(0, route)
        for priority in Priority:
            for outcome in ENDS:
                self._ends(0, route, name_of(priority), outcome)

    def _labels(self, ticket: Ticket) -> tuple[str, str, str]:
        return (
            self._names.get(ticket.cell, OTHERS),
            ticket.route or NO_ROUTE,
            name_of(ticket.arrival.priority),
        )


def bucket_labels(table: RoutingTable) -> dict[Cell, str]:
    """Return the upper edges of each bucket, input x output tokens, as plans name it; `others` for the smallest."""
    cells = [(row, column) for row in range(len(table.input_tokens)) for column in range(len(table.output_tokens))]
    largest = set(sorted(cells, key=lambda cell: (-table.share[cell[0]][cell[1]], cell))[:MAX_BUCKETS])
    return {
        cell: f"{table.input_tokens[cell[0]]}x{table.output_tokens[cell[1]]}" if cell in largest else OTHERS
        for cell in cells
    }


def name_of(priority: Priority) -> str:
    return priority.name.lower()
