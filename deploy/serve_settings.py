"""What a plan wants a Serve application told beside its counts: read, compared, written key by key."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue, ValidationError

from api.schemas.plans import PlanRecord
from api.schemas.targets import Application, RayServeApplication, ServeRouter, TargetSpec
from deploy.actuator import Observation
from deploy.actuators import Maker
from deploy.errors import ActuationError
from deploy.plans import planned_clocks
from deploy.ray_serve import RUNNING, RayServeActuator
from deploy.router.from_plan import routing_table
from deploy.router.handover import TABLE, RouterSeen, tables_left
from deploy.router.table import RoutingTable
from deploy.serve_config import ServeConfig, ServedApplication
from deploy.tellings import CLOCK, Telling, clocks_left
from power.levers import FULL_CLOCK

UPDATING = "UPDATING"  # a deployment some replicas of which have not heard


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
        return hashlib.sha256(json.dumps([sorted(self.clocks.items()), table]).encode()).hexdigest()


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
        return clocks + tables_left(wanted.table, seen=_router_seen(served, application.router), running=running)

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

    def _config(self, application: RayServeApplication) -> ServeConfig:
        actuator = self.actuators(application)
        if not isinstance(actuator, RayServeActuator):
            raise ActuationError("only Ray Serve applications are told settings")
        return ServeConfig(actuator.http, str(application.dashboard_url))


def _clocks_told(served: ServedApplication, application: RayServeApplication) -> dict[str, float]:
    told = {part: served.deployment(name).user_config.get(CLOCK) for part, name in application.deployments.items()}
    return {part: float(clock) if isinstance(clock, int | float) else FULL_CLOCK for part, clock in told.items()}


def _router_seen(served: ServedApplication, router: ServeRouter) -> RouterSeen:
    found = served.deployment(router.deployment)
    return RouterSeen(
        deployment=router.deployment,
        table=_table(found.user_config.get(TABLE)),
        heard=found.status != UPDATING and all(replica.state == RUNNING for replica in found.replicas),
    )


def _table(told: JsonValue) -> RoutingTable | None:
    try:
        return RoutingTable.model_validate(told)
    except ValidationError:
        return None
