"""The configuration that a plan wants in a Serve application beside its counts: clock levels and the routing table."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import httpx
from pydantic import JsonValue, ValidationError

from api.schemas.plans import PlanRecord
from api.schemas.targets import Application, RayServeApplication, ServeRouter, TargetSpec
from deploy.actuators.base import Observation
from deploy.common.digests import digest_of_json
from deploy.controller.config_changes import CLOCK, ConfigChange, clock_changes
from deploy.controller.plan_reader import planned_clocks
from deploy.controller.table_builder import routing_table
from deploy.controller.table_transition import TABLE, RouterState, table_changes
from deploy.router.table import RoutingTable
from power.controls import FULL_CLOCK

TIMEOUT = httpx.Timeout(5.0, connect=3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSettings:
    """The configuration that one plan wants in one target."""

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
        table=None if router is None else routing_table(plan, spec, most_in_flight=router.most_in_flight),
    )


async def settings_changes(
    planned: PlannedSettings, application: Application, *, observation: Observation, http: httpx.AsyncClient
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


async def _version_in_force(http: httpx.AsyncClient, url: str) -> str | None:
    """Return the version of the table that the router uses; None where it does not respond.

    A router that cannot use a table keeps the one before, and Serve does not record that.
    """
    try:
        response = await http.get(url, timeout=TIMEOUT)
        return str(response.raise_for_status().json()["version"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


def _current_clocks(observation: Observation, application: RayServeApplication) -> dict[str, float]:
    found = {
        part: observation.deployment(name).user_config.get(CLOCK) for part, name in application.deployments.items()
    }
    return {part: float(clock) if isinstance(clock, int | float) else FULL_CLOCK for part, clock in found.items()}


def _router_state(observation: Observation, router: ServeRouter) -> RouterState:
    found = observation.deployment(router.deployment)
    return RouterState(
        deployment=router.deployment, table=_table(found.user_config.get(TABLE)), in_every_replica=found.healthy
    )


def _table(value: JsonValue) -> RoutingTable | None:
    try:
        return RoutingTable.model_validate(value)
    except ValidationError:
        return None
