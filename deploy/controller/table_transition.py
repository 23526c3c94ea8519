"""A router's way from the weights of one plan to those of another, beside the counts.  Pure.

    replicas rise       half of each table, once every deployment that the new one names runs a replica
    all wanted run      the new table
    heard by all        replicas that only the old one named are given up

So no table is ever in force that names a deployment without replicas, and what comes up takes its share while it does.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from deploy.common.errors import PlanUnusableError
from deploy.controller.config_changes import Telling, When
from deploy.controller.reconcile_state import one_line
from deploy.controller.table_builder import both_tables
from deploy.router.table import RoutingTable

TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSeen:
    """What a router was read to be told."""

    deployment: str
    table: RoutingTable | None  # None: nothing, or nothing that makes sense
    heard: bool  # all its replicas have heard the last word


def tables_left(planned: RoutingTable, *, seen: RouterSeen, running: Mapping[str, int]) -> tuple[Telling, ...]:
    """What is left to tell, the last of them the plan's own table; nothing when that has been heard.

    `running` are the replicas by deployment.
    """
    told = seen.table
    if told == planned:
        return () if seen.heard else (_telling(planned, seen=seen, asked=True),)
    present = all(running.get(name, 0) > 0 for name, route in planned.routes.items() if route.replicas > 0)
    if told is None:
        return (_telling(planned, seen=seen, when=When.ANY_TIME if present else When.ALL_RUN),)
    goal = _telling(planned, seen=seen)
    both = _both(told, planned) if present else None
    return (goal,) if both is None else (_telling(both, seen=seen, when=When.ANY_TIME, on_the_way=True), goal)


def _both(told: RoutingTable, planned: RoutingTable) -> RoutingTable | None:
    """None where it is told already, where the plans have other buckets, and where it would have too many routes."""
    try:
        both = both_tables(told, planned)
    except (PlanUnusableError, ValidationError):
        return None
    return None if told.version == both.version else both


def _telling(
    table: RoutingTable, *, seen: RouterSeen, when: When = When.ALL_RUN, on_the_way: bool = False, asked: bool = False
) -> Telling:
    return Telling(
        part=None,
        deployment=seen.deployment,
        key=TABLE,
        value=table.model_dump(mode="json"),
        now=(one_line(seen.table.version) or None) if seen.table is not None else None,
        planned=table.version,
        when=when,
        on_the_way=on_the_way,
        holds_losses=True,
        asked=asked,
    )
