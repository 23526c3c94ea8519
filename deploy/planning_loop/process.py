"""The planning loops of a controller's process."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from api.client import AsyncClient
from api.schemas.target_hosts import AllowedHosts
from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership
from deploy.demand.reader import DemandFolders, demand_reader
from deploy.planning_loop.controller import PlanningLoops
from deploy.planning_loop.metrics import PlanningMetrics

CREDENTIALS_VARIABLE = "FLEETWRIGHT_DEMAND_CREDENTIALS"
LOGS_VARIABLE = "FLEETWRIGHT_REQUEST_LOGS"


def folders_from_environment(environment: Mapping[str, str] = os.environ) -> DemandFolders:
    credentials, logs = (environment.get(name) or None for name in (CREDENTIALS_VARIABLE, LOGS_VARIABLE))
    return DemandFolders(credentials=credentials and Path(credentials), logs=logs and Path(logs))


@asynccontextmanager
async def planning_loops(
    *,
    api: AsyncClient,
    leadership: Leadership,
    registry: CollectorRegistry,
    allowed: AllowedHosts,
    clock: Clock,
    folders: DemandFolders,
    observe_only: bool = False,
) -> AsyncIterator[PlanningLoops]:
    async with demand_reader(allowed=allowed, folders=folders) as demand:
        yield PlanningLoops(
            api=api,
            demand=demand,
            leadership=leadership,
            metrics=PlanningMetrics(registry),
            clock=clock,
            observe_only=observe_only,
        )
