"""The remediation controller of a Ray cluster, as a Ray driver that also monitors the training runs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TextIO

from prometheus_client import CollectorRegistry

from api.client import AsyncClient
from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseSettings, new_holder
from deploy.common.leader_loop import Liveness
from deploy.common.thread_calls import BlockingCalls
from deploy.fault_monitor.loop import new_monitor_loop
from deploy.remediation.controller import LEASE, RemediationController, RemediationSettings
from deploy.remediation.hooks import Hooks
from deploy.remediation.metrics import RemediationMetrics
from deploy.remediation.ray_actuator import RayActuator
from deploy.remediation.ray_cluster import RayCluster
from deploy.training.run_monitor import RunMonitor, start_ray_recorder
from deploy.training.run_status import RunsObserved, RunStatusReader
from fleetwright.ray_train.run_status import NAMESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationOptions:
    namespace: str = NAMESPACE
    monitor: bool = True
    inbox: str | None = None  # path of the Unix socket that the workers report to
    hooks: Mapping[str, str] = field(default_factory=dict)
    hook_timeout_s: float = 60.0
    controller: RemediationSettings = field(default_factory=RemediationSettings)
    lease: LeaseSettings = field(default_factory=lambda: LeaseSettings(name=LEASE, holder=new_holder()))


async def run_remediation(
    options: RemediationOptions, api: AsyncClient, *, out: TextIO, metrics: RemediationMetrics, liveness: Liveness
) -> None:
    """Run until cancelled.  Diagnoses go to the API and, one line each, to `out`."""
    runs = RunStatusReader(options.namespace)
    hooks = Hooks(commands=options.hooks, timeout_s=options.hook_timeout_s)
    calls = BlockingCalls()
    cluster = RayCluster(runs=runs, hooks=hooks, calls=calls)
    leadership = Leadership(api=api, settings=options.lease, clock=Clock())
    case_timeout_s = options.controller.case_timeout_s + options.hook_timeout_s
    settings = replace(options.controller, case_timeout_s=case_timeout_s)
    controller = RemediationController(
        api=api,
        actuator=RayActuator(cluster),
        leadership=leadership,
        metrics=metrics,
        settings=settings,
        liveness=liveness,
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.run())
        if options.monitor:
            monitor = RunMonitor(
                read_runs=_observe(runs, leadership, calls),
                open_recorder=start_ray_recorder,
                make_loop=lambda file, names: new_monitor_loop(
                    file, registry=CollectorRegistry(), out=out, client=api, names=names
                ),
                names=cluster.name_of,
                inbox=options.inbox,
                ending_attempts=lambda: controller.ending,
            )
            metrics.set_monitored_source(lambda: monitor.count)
            tasks.create_task(monitor.run())


def _observe(
    runs: RunStatusReader, leadership: Leadership, calls: BlockingCalls
) -> Callable[[], Awaitable[RunsObserved]]:
    async def observe() -> RunsObserved:
        if not leadership.holds:
            return RunsObserved()  # only the leader monitors, so each fault is reported once
        return await calls.call("monitored training runs", runs.all_runs)

    return observe
