"""Runs jobs of lane `work` as tasks of a Ray cluster, where an address of one is configured.

Ray finds a node with a free core and enough memory.  There the task runs the job in a process of its own, under the
same limits as on the worker's machine.  A job whose node dies is sent again; a cancelled job ends with its task.
The nodes need this package in the same version.
"""

import asyncio
import queue
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import structlog

from api.jobs.executor import Executor, Limits
from api.jobs.outcome import Finished, Report, Task, died
from api.jobs.process import MIB, ProcessExecutor
from api.schemas.jobs import Lane

MAX_TRIES: Final = 3
NAMESPACE: Final = "fleetwright-jobs"
Message = tuple[str, float | None] | Finished

log = structlog.get_logger("fleetwright.worker")


class RayExecutor:
    """Sends jobs of lane `work` to Ray; `local` runs the others, which must not wait for the cluster."""

    def __init__(self, *, address: str, local: Executor) -> None:
        self._address = address
        self._local = local
        self._remote: Any = None

    async def warm_up(self) -> None:
        """Connect to the cluster."""
        await self._local.warm_up()
        await asyncio.to_thread(self._connect)

    async def run(self, task: Task, *, limits: Limits, report: Report) -> Finished:
        """Run a job on some node, on another one when that node dies."""
        if limits.lane is not Lane.WORK:
            return await self._local.run(task, limits=limits, report=report)
        import ray  # noqa: PLC0415 - an extra

        report("waiting for a node", None)
        for attempt in range(1, MAX_TRIES + 1):
            try:
                return await self._once(task, limits, report)
            except ray.exceptions.RayError as error:
                log.warning("ray_task_failed", attempt=attempt, error=type(error).__name__)
        return Finished(died(f"{MAX_TRIES} Ray tasks ended without an answer"))

    def _connect(self) -> None:
        import ray  # noqa: PLC0415

        if not ray.is_initialized():
            ray.init(address=self._address, namespace=NAMESPACE, log_to_driver=False, logging_level="warning")
        self._remote = ray.remote(run_task)

    async def _once(self, task: Task, limits: Limits, report: Report) -> Finished:
        import ray  # noqa: PLC0415

        options = {"num_cpus": 1, "memory": limits.memory_mib * MIB, "max_retries": 0, "num_returns": "streaming"}
        messages = self._remote.options(name=f"{task.kind} {task.id}", **options).remote(task, limits)
        try:
            async for each in messages:
                message: Message = await each
                if isinstance(message, Finished):
                    return message
                report(*message)
        except asyncio.CancelledError:
            ray.cancel(messages, force=True)
            raise
        return Finished(died("the Ray task ended without an answer"))


def run_task(task: Task, limits: Limits) -> Iterator[Message]:
    """Run a job in a process of this node: yield its progress, then its end."""
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def work() -> None:
        try:
            running = _executor().run(task, limits=limits, report=lambda *progress: messages.put(progress))
            messages.put(asyncio.run(running))
        except BaseException as error:
            messages.put(Finished(died(f"{type(error).__name__}: {error}")))
            raise

    threading.Thread(target=work, daemon=True).start()
    while True:
        message = messages.get()
        yield message
        if isinstance(message, Finished):
            return


@cache
def _executor() -> ProcessExecutor:
    """Keep the process that job processes are forked from, for the next task of this Ray worker."""
    return ProcessExecutor()
