"""The configuration that a plan wants in a Serve application beside its counts: clock levels and the routing table.

A router changes from the table of one plan to that of another in steps beside the replica counts:

    replicas rise               half of each table, once every deployment of the new table runs a replica
    all wanted replicas run     the new table
    in every router replica     replicas that only the old table names stop

So no table in force names a deployment without replicas, and new replicas get requests while the others start.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import httpx
from pydantic import JsonValue, ValidationError

from api.schemas.applications import Application, RayServeApplication, ServeRouter
from api.schemas.plans import PlanRecord
from api.schemas.targets import TargetSpec
from deploy.actuators.base import TargetSnapshot
from deploy.common.errors import PlanUnusableError
from deploy.common.text import digest_of_json, one_line
from deploy.controller.config_changes import CLOCK, ConfigChange, Progress, clock_changes
from deploy.controller.plan_reader import allocations_by_part, planned_clocks, planned_replicas
from deploy.router.table import Cell, CellWeights, Route, RoutingTable
from planner.request import Workload, bucket_name
from power.controls import FULL_CLOCK

MAX_IN_FLIGHT = 64  # of one replica, by default
TABLE = "table"
TIMEOUT = httpx.Timeout(5.0, connect=3.0)


def routing_table(
    record: PlanRecord, spec: TargetSpec, *, max_in_flight: Mapping[str, int] | None = None
) -> RoutingTable:
    """Return the weights of the target's workload; raise PlanUnusableError.

    `max_in_flight` has the requests that a replica serves at once without queueing (`max_num_seqs`), by deployment.
    """
    replicas = planned_replicas(record, spec)
    workload = next(known for known in record.request.workloads if known.name == spec.workload)
    deployments = spec.application.parts
    home = {entry.option: deployments[part] for entry, part in allocations_by_part(record, spec)}
    weights = _weights(record, workload, home)
    if not any(weights.values()):
        raise PlanUnusableError(f"plan {record.id} sends no request of {spec.workload!r} anywhere")
    used = {name for found in weights.values() for name in found}
    each = max_in_flight or {}
    return RoutingTable.of(
        version=record.id,
        buckets=workload.buckets,
        routes={
            name: Route(replicas=replicas[part], max_in_flight=each.get(name, MAX_IN_FLIGHT))
            for part, name in sorted(deployments.items())
            if name in used
        },
        weights=weights,
    )


def both_tables(old: RoutingTable, new: RoutingTable) -> RoutingTable:
    """Mix half of each table, for the time in which counts change between the plans.  Raise PlanUnusableError."""
    if (old.input_tokens, old.output_tokens) != (new.input_tokens, new.output_tokens):
        raise PlanUnusableError(f"plans {old.version} and {new.version} have different buckets")
    cells = [
        CellWeights(
            row=row,
            column=column,
            weights={
                name: (weights.get(name, 0.0) + old.by_cell[row, column].get(name, 0.0)) / 2
                for name in weights.keys() | old.by_cell[row, column].keys()
            },
        )
        for (row, column), weights in new.by_cell.items()
    ]
    return RoutingTable(
        version=f"{new.version}+",
        input_tokens=new.input_tokens,
        output_tokens=new.output_tokens,
        share=new.share,
        routes={**old.routes, **new.routes},
        cells=tuple(cells),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterState:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSettings:
    clocks: Mapping[str, float] = field(default_factory=dict)  # by part
    table: RoutingTable | None = None

    @property
    def digest(self) -> str | None:
        """Return None where the plan wants no configuration."""
        if not self.clocks and self.table is None:
            return None
        table = None if self.table is None else self.table.model_dump(mode="json")
        return digest_of_json([sorted(self.clocks.items()), table])


def planned_settings(plan: PlanRecord, spec: TargetSpec) -> PlannedSettings:
    """Return the configuration that the target follows.  Raise PlanUnusableError where the plan cannot give it."""
    application = spec.application
    if not isinstance(application, RayServeApplication):
        return PlannedSettings()
    router = application.router
    return PlannedSettings(
        clocks=planned_clocks(plan, spec) if application.follow_clocks else {},
        table=None if router is None else routing_table(plan, spec, max_in_flight=router.max_in_flight),
    )


async def settings_changes(
    planned: PlannedSettings, application: Application, *, observation: TargetSnapshot, http: httpx.AsyncClient
) -> tuple[ConfigChange, ...]:
    """Return the changes that are left, or are written and not yet in every replica."""
    if planned == PlannedSettings() or not isinstance(application, RayServeApplication):
        return ()
    clocks = clock_changes(
        planned.clocks, deployments=application.deployments, current=_current_clocks(observation, application)
    )
    if planned.table is None or application.router is None:
        return clocks
    running = {name: observation.running[part] for part, name in application.deployments.items()}
    router = _router_state(observation, application.router)
    if router.in_every_replica and router.table == planned.table and application.router.url is not None:
        in_force = await _version_in_force(http, str(application.router.url))
        router = replace(router, in_every_replica=in_force == planned.table.version)
    return clocks + table_changes(planned.table, router=router, running=running)


def _weights(record: PlanRecord, workload: Workload, home: Mapping[str, str]) -> dict[Cell, dict[str, float]]:
    """Return the weights by deployment: the sum over its options."""
    planned = record.plan.routing.get(workload.name, {})
    weights: dict[Cell, dict[str, float]] = {}
    for bucket in workload.buckets.buckets():
        found: dict[str, float] = defaultdict(float)
        for route, weight in planned.get(bucket_name(bucket), {}).items():
            if route not in home:
                raise PlanUnusableError(
                    f"plan {record.id} sends {bucket_name(bucket)} by {route}: a router sends each request to one "
                    "deployment, not to one for prefill and another for decode"
                )
            found[home[route]] += weight
        total = sum(found.values())
        weights[bucket.row, bucket.column] = {name: weight / total for name, weight in found.items() if total > 0.0}
    return weights


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


async def _version_in_force(http: httpx.AsyncClient, url: str) -> str | None:
    """Return the version of the table that the router uses; None where it does not respond.

    A router that cannot use a table keeps the one before, and Serve does not record that.
    """
    try:
        response = await http.get(url, timeout=TIMEOUT)
        return str(response.raise_for_status().json()["version"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


def _current_clocks(observation: TargetSnapshot, application: RayServeApplication) -> dict[str, float]:
    found = {
        part: observation.deployment(name).user_config.get(CLOCK) for part, name in application.deployments.items()
    }
    return {part: float(clock) if isinstance(clock, int | float) else FULL_CLOCK for part, clock in found.items()}


def _router_state(observation: TargetSnapshot, router: ServeRouter) -> RouterState:
    found = observation.deployment(router.deployment)
    return RouterState(
        deployment=router.deployment, table=_table(found.user_config.get(TABLE)), in_every_replica=found.healthy
    )


def _table(value: JsonValue) -> RoutingTable | None:
    try:
        return RoutingTable.model_validate(value)
    except ValidationError:
        return None
