"""The writes of the next reconcile, found by a reconcile that writes nothing."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import httpx
from prometheus_client import CollectorRegistry

from api.client import AsyncClient
from api.schemas.targets import Target, TargetStatus
from deploy.actuators.base import Step
from deploy.actuators.registry import ActuatorFactory
from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.controller.config_changes import ConfigChange
from deploy.controller.controller import ControllerSettings, new_reconciler
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.plan_reader import PlanReader
from deploy.controller.prometheus_health import HealthReader


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """One target: its report with all changes that are left, and the writes of the next reconcile."""

    target: Target
    status: TargetStatus
    steps: tuple[Step, ...]
    config_writes: tuple[ConfigChange, ...]


async def dry_run(
    targets: Iterable[Target],
    *,
    api: AsyncClient,
    actuators: ActuatorFactory,
    http: httpx.AsyncClient,
    health: HealthReader,
    settings: ControllerSettings,
    clock: Clock,
) -> list[DryRun]:
    """Reconcile every target without writes.  No lease is held: the leadership would refuse a write made by mistake."""
    reconciler = new_reconciler(
        api=api,
        actuators=actuators,
        http=http,
        health=health,
        plans=PlanReader(api),
        metrics=ControllerMetrics(CollectorRegistry()),
        leadership=Leadership(api=api, settings=LeaseSettings(holder="dry run"), clock=clock),
        settings=settings,
        clock=clock,
        dry_run=True,
    )
    slots = asyncio.Semaphore(settings.concurrency)

    async def one(target: Target) -> DryRun:
        async with slots:
            status, state = await reconciler.reconcile_with_state(target)
        return DryRun(target=target, status=status, steps=state.steps, config_writes=state.config_writes)

    return await asyncio.gather(*map(one, targets))
