"""Tables for the router's tests."""

from collections import Counter

from deploy.router.scheduler import Scheduler
from deploy.router.table import CellWeights, Route, RoutingTable
from power.controls import Priority

INPUTS, OUTPUTS = (100, 1000), (50, 500)


def table(
    *, version: str = "p1", rooms: dict[str, int] | None = None, weights: dict[str, float] | None = None
) -> RoutingTable:
    """The same weights in every bucket; each route has so many replicas that take one request at a time."""
    found, replicas = weights or {"a": 0.7, "b": 0.3}, rooms or {}
    return RoutingTable(
        version=version,
        input_tokens=INPUTS,
        output_tokens=OUTPUTS,
        share=((0.3, 0.2), (0.3, 0.2)),
        routes={name: Route(replicas=replicas.get(name, 10_000), most_in_flight=1) for name in found},
        cells=tuple(
            CellWeights(row=row, column=column, weights={name: w for name, w in found.items() if w > 0})
            for row in range(2)
            for column in range(2)
        ),
    )


def waiting_in(scheduler: Scheduler) -> Counter[Priority]:
    """How many requests of each priority wait."""
    return Counter(ticket.arrival.priority for ticket in scheduler.queued())
