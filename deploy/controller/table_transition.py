"""The steps of a router from the weights of one plan to those of another, beside the replica counts.  Pure.

    replicas rise               half of each table, once every deployment of the new table runs a replica
    all wanted replicas run     the new table
    in every router replica     replicas that only the old table names stop

So no table in force names a deployment without replicas, and new replicas get requests while the others start.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from deploy.common.errors import PlanUnusableError
from deploy.common.text import one_line
from deploy.controller.config_changes import ConfigChange, Progress
from deploy.controller.table_builder import both_tables
from deploy.router.table import RoutingTable

TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterState:
    """A router's configuration as it was read."""

    deployment: str
    table: RoutingTable | None  # None: none, or an unreadable one
    in_every_replica: bool


def table_changes(
    planned: RoutingTable, *, router: RouterState, running: Mapping[str, int]
) -> tuple[ConfigChange, ...]:
    """Return the changes that are left, the plan's own table last; none when every router replica has it.

    `running` has the replicas by deployment.
    """
    current = router.table
    if current == planned:
        return () if router.in_every_replica else (_change(planned, router=router, is_written=True),)
    serving = all(running.get(name, 0) > 0 for name, route in planned.routes.items() if route.replicas > 0)
    if current is None:
        return (_change(planned, router=router, needs=Progress.ANY if serving else Progress.ALL_RUNNING),)
    final = _change(planned, router=router)
    both = _both(current, planned) if serving else None
    if both is None:
        return (final,)
    return (_change(both, router=router, needs=Progress.ANY, is_intermediate=True), final)


def _both(current: RoutingTable, planned: RoutingTable) -> RoutingTable | None:
    """Mix both tables; None where the mix is in force or has too many routes, or the plans' buckets differ."""
    try:
        both = both_tables(current, planned)
    except (PlanUnusableError, ValidationError):
        return None
    return None if current.version == both.version else both


def _change(
    table: RoutingTable,
    *,
    router: RouterState,
    needs: Progress = Progress.ALL_RUNNING,
    is_intermediate: bool = False,
    is_written: bool = False,
) -> ConfigChange:
    return ConfigChange(
        part=None,
        deployment=router.deployment,
        key=TABLE,
        value=table.model_dump(mode="json"),
        current=(one_line(router.table.version) or None) if router.table is not None else None,
        planned=table.version,
        needs=needs,
        is_intermediate=is_intermediate,
        blocks_decreases=True,
        is_written=is_written,
    )
