"""Tables for the router's tests."""

from collections import Counter

from deploy.router.scheduler import Scheduler
from deploy.router.table import CellWeights, Route, RoutingTable
from power.controls import Priority

INPUTS, OUTPUTS = (100, 1000), (50, 500)


def table(
    *, version: str = "p1", slots: dict[str, int] | None = None, weights: dict[str, float] | None = None
) -> RoutingTable:
    """A table with the same weights in every bucket; `slots` gives the replicas per route, with one request each."""
    found, replicas = weights or {"a": 0.7, "b": 0.3}, slots or {}
    return RoutingTable(
        version=version,
        input_tokens=INPUTS,
        output_tokens=OUTPUTS,
        share=((0.3, 0.2), (0.3, 0.2)),
        routes={name: Route(replicas=replicas.get(name, 10_000), max_in_flight=1) for name in found},
        cells=tuple(
            CellWeights(row=row, column=column, weights={name: w for name, w in found.items() if w > 0})
            for row in range(2)
            for column in range(2)
        ),
    )


def waiting_in(scheduler: Scheduler) -> Counter[Priority]:
    """The number of waiting requests by priority."""
    return Counter(ticket.arrival.priority for ticket in scheduler.queued())
