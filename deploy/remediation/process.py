"""The healer as a process that has joined the Ray cluster as a driver: it watches the runs there and heals."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO

from prometheus_client import CollectorRegistry

from api.client import AsyncFleetwright
from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseSettings, new_holder
from deploy.common.liveness import Pulse
from deploy.common.thread_calls import BlockingCalls
from deploy.fault_monitor.api_reporter import Reporter
from deploy.fault_monitor.job_config import JobFile
from deploy.fault_monitor.loop import WatchLoop
from deploy.fault_monitor.metrics import WatcherMetrics
from deploy.fault_monitor.outputs import Lines
from deploy.remediation.controller import LEASE, Healer, HealerSettings
from deploy.remediation.hooks import Hooks
from deploy.remediation.metrics import HealerMetrics
from deploy.remediation.ray_cluster import RayWorld
from deploy.training.run_monitor import MakeLoop, RunsWatch, open_ray_eye
from deploy.training.run_status import NAMESPACE, Boards, RunsSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingOptions:
    """What an operator chooses."""

    namespace: str = NAMESPACE
    watch: bool = True
    inbox: str | None = None  # path of the Unix socket that workers tell of themselves on
    hooks: Mapping[str, str] = field(default_factory=dict)
    hook_timeout_s: float = 60.0
    healer: HealerSettings = field(default_factory=HealerSettings)
    lease: LeaseSettings = field(default_factory=lambda: LeaseSettings(name=LEASE, holder=new_holder()))


async def run_healing(
    options: HealingOptions, api: AsyncFleetwright, *, out: TextIO, metrics: HealerMetrics, pulse: Pulse
) -> None:
    """Until cancelled.  Verdicts go to the service and, a line each, to `out`."""
    boards = Boards(options.namespace)
    hooks = Hooks(commands=options.hooks, timeout_s=options.hook_timeout_s)
    calls = BlockingCalls()
    world = RayWorld(boards=boards, hooks=hooks, calls=calls)
    leadership = Leadership(api=api, settings=options.lease, clock=Clock())
    case_timeout_s = options.healer.case_timeout_s + options.hook_timeout_s
    settings = replace(options.healer, case_timeout_s=case_timeout_s)
    healer = Healer(api=api, world=world, leadership=leadership, metrics=metrics, settings=settings, pulse=pulse)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(healer.run())
        if options.watch:
            watch = RunsWatch(
                look=_looks(boards, leadership, calls),
                open_eye=open_ray_eye,
                make_loop=_loops(api, out),
                names=world.name_of,
                inbox=options.inbox,
                doomed=lambda: healer.doomed,
            )
            metrics.watching(lambda: watch.count)
            tasks.create_task(watch.run())


def _looks(boards: Boards, leadership: Leadership, calls: BlockingCalls) -> Callable[[], Awaitable[RunsSeen]]:
    async def look() -> RunsSeen:
        if not leadership.holds:
            return RunsSeen()  # the leader watches, so each fault is told once
        return await calls.call("training runs under watch", boards.look)

    return look


def _loops(api: AsyncFleetwright, out: TextIO) -> MakeLoop:
    def make(file: JobFile, names: Sequence[str]) -> tuple[WatchLoop, Reporter]:
        zero_s = time.time()
        metrics = WatcherMetrics(CollectorRegistry(), job=file.name)
        reporter = Reporter(client=api, file=file, names=names, zero_s=zero_s, counted=metrics.reported)
        lines = Lines(out, job=file.name, zero_s=zero_s)
        return WatchLoop(file, lines=lines, metrics=metrics, bundles=None, zero_s=zero_s, reporter=reporter), reporter

    return make
