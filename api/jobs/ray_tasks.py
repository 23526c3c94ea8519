"""Runs jobs of lane `work` as tasks of a Ray cluster, where an address of one is configured.

Ray finds a node with a free core and enough memory.  There the task runs the job in a process of its own, under the
same limits as on the worker's machine.  A job whose node dies is sent again; a cancelled job ends with its task.  A
node with another version of this package refuses the job, which is then sent to the others.  While the cluster cannot
be reached, jobs of lane `work` wait in the table for it, or for a worker without Ray.
"""

import asyncio
import pickle
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import structlog

from api.jobs.executor import Executor, Limits
from api.jobs.outcome import Finished, Report, Task, died, without_node
from api.jobs.process import MIB, ProcessExecutor
from api.schemas.jobs import Lane

MAX_TRIES: Final = 3
NAMESPACE: Final = "fleetwright-jobs"
NODE_ID: Final = "ray.io/node-id"  # Ray labels every node with it
CONNECT_S: Final = 5.0
RECONNECT_S: Final = 5.0
LOG_S: Final = 60.0

log = structlog.get_logger("fleetwright.worker")


@dataclass(frozen=True, slots=True)
class WrongVersion:
    """Is the answer of a node with another version of this package."""

    node_id: str
    version: str


Message = tuple[str, float | None] | Finished | WrongVersion


class _RefusedError(Exception):
    """A node has refused a job."""


class RayExecutor:
    """Sends jobs of lane `work` to Ray; `local` runs the others, which must not wait for the cluster."""

    def __init__(self, *, address: str, local: Executor, reconnect_s: float = RECONNECT_S) -> None:
        self._address = address
        self._local = local
        self._reconnect_s = reconnect_s
        self._remote: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._refused: dict[str, str] = {}  # the versions of nodes, by node id

    async def warm_up(self) -> None:
        """Start to connect to the cluster; the other lanes do not wait for it."""
        await self._local.warm_up()
        self._connecting = asyncio.create_task(self._connect())

    def takes(self, lane: Lane) -> bool:
        return self._remote is not None if lane is Lane.WORK else self._local.takes(lane)

    async def run(self, task: Task, *, limits: Limits, report: Report) -> Finished:
        """Run a job on some node, on another one when that node dies or refuses it."""
        if limits.lane is not Lane.WORK:
            return await self._local.run(task, limits=limits, report=report)
        import ray  # noqa: PLC0415 - an extra

        failures: list[str] = []
        while len(failures) < MAX_TRIES:
            report("waiting for a node", None)
            try:
                return await self._once(task, limits, report)
            except _RefusedError:
                if not await asyncio.to_thread(self._other_nodes):
                    return Finished(without_node(self._refusals()))
            except TimeoutError:
                needs = f"none had a free core and {limits.memory_mib:,} MiB for {limits.deadline_s:g} s"
                return Finished(without_node("; ".join(filter(None, (needs, self._refusals())))))
            except ray.exceptions.RayError as error:
                failures.append(type(error).__name__)
                log.warning("ray_task_failed", attempt=len(failures), error=str(error))
        return Finished(died(f"{MAX_TRIES} Ray tasks failed: {', '.join(failures)}"))

    async def _connect(self) -> None:
        """Connect to the cluster; try again until it can be reached."""
        logged_s = -LOG_S
        while self._remote is None:
            try:
                await _check_reachable(self._address)
                await asyncio.to_thread(self._join)
            except Exception as error:  # noqa: BLE001 - Ray raises errors of every kind
                if (now_s := time.monotonic()) - logged_s >= LOG_S:
                    logged_s = now_s
                    log.warning("ray_not_reachable", address=self._address, reason=str(error) or type(error).__name__)
                await asyncio.sleep(self._reconnect_s)
        log.info("ray_connected", address=self._address)

    def _join(self) -> None:
        import ray  # noqa: PLC0415

        if not ray.is_initialized():
            ray.init(address=self._address, namespace=NAMESPACE, log_to_driver=False, logging_level="warning")
        self._remote = ray.remote(run_task)

    async def _once(self, task: Task, limits: Limits, report: Report) -> Finished:
        import ray  # noqa: PLC0415

        options: dict[str, Any] = {
            "name": f"{task.kind} {task.id}",
            "num_cpus": 1,
            "memory": limits.memory_mib * MIB,
            "max_retries": 0,
            "num_returns": "streaming",
        }
        if self._refused:
            options["label_selector"] = {NODE_ID: f"!in({','.join(self._refused)})"}
        messages = await self._submitted(options, version("fleetwright"), pickle.dumps((task, limits)))
        try:
            async with asyncio.timeout(limits.deadline_s) as waiting:
                async for each in messages:
                    waiting.reschedule(None)  # it runs: the node ends it at its deadline
                    message: Message = await each
                    if isinstance(message, WrongVersion):
                        self._refused[message.node_id] = message.version
                        log.warning("ray_node_refused", node=message.node_id, version=message.version)
                        raise _RefusedError
                    if isinstance(message, Finished):
                        return message
                    report(*message)
        except (asyncio.CancelledError, TimeoutError):
            ray.cancel(messages, force=True)
            raise
        return Finished(died("the Ray task ended without an answer"))

    async def _submitted(self, options: Mapping[str, Any], *arguments: Any) -> Any:
        """Submit a task in a thread, because this blocks while the control service of the cluster is away."""
        import ray  # noqa: PLC0415

        remote = self._remote.options(**options).remote
        submitting = asyncio.ensure_future(asyncio.to_thread(remote, *arguments))
        try:
            return await asyncio.shield(submitting)
        except asyncio.CancelledError:
            submitting.add_done_callback(lambda done: ray.cancel(done.result(), force=True))
            raise

    def _other_nodes(self) -> bool:
        """Return whether some node with a core has not refused a job."""
        import ray  # noqa: PLC0415

        return any(
            node["Alive"] and node["Resources"].get("CPU") and node["NodeID"] not in self._refused
            for node in ray.nodes()
        )

    def _refusals(self) -> str:
        own = version("fleetwright")
        return "; ".join(
            f"node {node} has fleetwright {other}, this worker {own}" for node, other in self._refused.items()
        )


async def _check_reachable(address: str) -> None:
    """Raise OSError at once where nothing listens: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return  # such as `auto`, which Ray resolves
    async with asyncio.timeout(CONNECT_S):
        _reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.close()


def run_task(worker_version: str, packed: bytes) -> Iterator[Message]:
    """Run a job in a process of this node: yield its progress, then its end.

    `packed` is unpacked only in the worker's version, because the types in it differ between versions.
    """
    import ray  # noqa: PLC0415

    if (own := version("fleetwright")) != worker_version:
        yield WrongVersion(ray.get_runtime_context().get_node_id(), own)
        return
    task, limits = pickle.loads(packed)  # noqa: S301 - of our own worker
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def work() -> None:
        try:
            running = _executor().run(task, limits=limits, report=lambda *progress: messages.put(progress))
            messages.put(asyncio.run(running))
        except BaseException as error:
            messages.put(Finished(died(f"{type(error).__name__}: {error}")))
            raise

    threading.Thread(target=work, daemon=True).start()
    yield "starting", None
    while True:
        message = messages.get()
        yield message
        if isinstance(message, Finished):
            return


@cache
def _executor() -> ProcessExecutor:
    """Keep the process that job processes are forked from, for the next task of this Ray worker."""
    # Each job process would import the main module of this process again: Ray's, which takes half a second.
    vars(sys.modules["__main__"]).pop("__file__", None)
    return ProcessExecutor()
