"""What a controller would do in its next round, found out by doing all of the round but its writes."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from api.client import AsyncFleetwright
from api.schemas.targets import Target, TargetStatus
from deploy.actuators.base import Step
from deploy.actuators.registry import Maker
from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.controller.config_changes import Telling
from deploy.controller.controller import ControllerSettings, new_reconciler
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.plan_reader import PlanReader
from deploy.controller.prometheus_health import HealthReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """One target: how it stands, all that is left to change, and of that what the next round would ask for."""

    target: Target
    status: TargetStatus
    steps: tuple[Step, ...]
    told: tuple[Telling, ...]


async def foresee(
    targets: Iterable[Target],
    *,
    api: AsyncFleetwright,
    actuators: Maker,
    health: HealthReader,
    settings: ControllerSettings,
    clock: Clock,
) -> list[Foreseen]:
    """Look at every target as a controller would.  Nobody holds the lease here: a write by mistake would be refused."""
    reconciler = new_reconciler(
        api=api,
        actuators=actuators,
        health=health,
        plans=PlanReader(api),
        metrics=ControllerMetrics(CollectorRegistry()),
        leadership=Leadership(api=api, settings=LeaseSettings(holder="dry run"), clock=clock),
        settings=settings,
        clock=clock,
        dry_run=True,
    )
    slots = asyncio.Semaphore(settings.concurrency)

    async def look(target: Target) -> Foreseen:
        async with slots:
            status, seen = await reconciler.pursue(target)
        return Foreseen(target=target, status=status, steps=seen.steps, told=seen.told)

    return await asyncio.gather(*map(look, targets))
