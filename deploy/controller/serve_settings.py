"""What a plan wants a Serve application told beside its counts: read, compared, written key by key."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import httpx
from pydantic import JsonValue, ValidationError

from api.schemas.plans import PlanRecord
from api.schemas.targets import Application, RayServeApplication, ServeRouter, TargetSpec
from deploy.actuators.base import Observation
from deploy.actuators.ray_serve.actuator import RayServeActuator
from deploy.actuators.ray_serve.config import ServeConfig, ServedApplication
from deploy.actuators.registry import Maker
from deploy.common.digests import digest_of_json
from deploy.common.errors import ActuationError
from deploy.controller.config_changes import CLOCK, Telling, clocks_left
from deploy.controller.plan_reader import planned_clocks
from deploy.controller.table_builder import routing_table
from deploy.controller.table_transition import TABLE, RouterSeen, tables_left
from deploy.router.table import RoutingTable
from power.controls import FULL_CLOCK

TIMEOUT = httpx.Timeout(5.0, connect=3.0)
HEALTHY = "HEALTHY"  # as many replicas as asked for run, all with this user_config; those that stop do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSettings:
    """Of one plan, for one target."""

    clocks: Mapping[str, float] = field(default_factory=dict)  # by part
    table: RoutingTable | None = None

    @property
    def digest(self) -> str | None:
        """A name for all of it; None where nothing is wanted."""
        if not self.clocks and self.table is None:
            return None
        table = None if self.table is None else self.table.model_dump(mode="json")
        return digest_of_json([sorted(self.clocks.items()), table])


def wanted_settings(plan: PlanRecord, spec: TargetSpec) -> WantedSettings:
    """What the target asks to be told; PlanUnusableError where the plan cannot say it."""
    application = spec.application
    if not isinstance(application, RayServeApplication):
        return WantedSettings()
    router = application.router
    return WantedSettings(
        clocks=planned_clocks(plan, spec) if application.follow_clocks else {},
        table=None if router is None else routing_table(plan, spec, most_in_flight=router.most_in_flight),
    )


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Reads and writes `user_config`s of targets."""

    actuators: Maker

    async def left(
        self, wanted: WantedSettings, application: Application, *, observation: Observation
    ) -> tuple[Telling, ...]:
        """What is not told yet, or not heard."""
        if wanted == WantedSettings() or not isinstance(application, RayServeApplication):
            return ()
        served = (await self._config(application).read()).application(application.application)
        clocks = clocks_left(wanted.clocks, deployments=application.deployments, told=_clocks_told(served, application))
        if wanted.table is None or application.router is None:
            return clocks
        running = {name: observation.running[part] for part, name in application.deployments.items()}
        seen = _router_seen(served, application.router)
        if seen.heard and seen.table == wanted.table and application.router.url is not None:
            in_force = await self._in_force(application, str(application.router.url))
            seen = replace(seen, heard=in_force == wanted.table.version)
        return clocks + tables_left(wanted.table, seen=seen, running=running)

    async def tell(self, application: Application, telling: Telling) -> None:
        """Write it; the next round reads what came of it."""
        if not isinstance(application, RayServeApplication):
            raise ActuationError("only Ray Serve applications are told settings")
        await self._config(application).change_user_config(
            application=application.application,
            deployment=telling.deployment,
            key=telling.key,
            value=telling.value,
        )

    async def _in_force(self, application: RayServeApplication, url: str) -> str | None:
        """The version of the table that the router goes by; None where it does not say.

        A router that cannot use a table keeps the one before, which Serve knows nothing of.
        """
        try:
            response = await self._actuator(application).http.get(url, timeout=TIMEOUT)
            return str(response.raise_for_status().json()["version"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return None

    def _config(self, application: RayServeApplication) -> ServeConfig:
        return ServeConfig(self._actuator(application).http, str(application.dashboard_url))

    def _actuator(self, application: RayServeApplication) -> RayServeActuator:
        actuator = self.actuators(application)
        if not isinstance(actuator, RayServeActuator):
            raise ActuationError("only Ray Serve applications are told settings")
        return actuator


def _clocks_told(served: ServedApplication, application: RayServeApplication) -> dict[str, float]:
    told = {part: served.deployment(name).user_config.get(CLOCK) for part, name in application.deployments.items()}
    return {part: float(clock) if isinstance(clock, int | float) else FULL_CLOCK for part, clock in told.items()}


def _router_seen(served: ServedApplication, router: ServeRouter) -> RouterSeen:
    found = served.deployment(router.deployment)
    return RouterSeen(
        deployment=router.deployment,
        table=_table(found.user_config.get(TABLE)),
        heard=found.status == HEALTHY,
    )


def _table(told: JsonValue) -> RoutingTable | None:
    try:
        return RoutingTable.model_validate(told)
    except ValidationError:
        return None
