"""Monitors the runs of a Ray cluster, each attempt separately: a worker that was ended or moved is no fault.

    status RUNNING                     ──> recorders on its nodes, its own fault monitor ──> diagnoses to the service
    any other status, attempt, or none ──> recorders and monitor end, their last observations are dropped

Observations are evaluated only after the status was read again.  The status changes before a group's workers are ended,
so no such end is taken for a crash.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import ray
import structlog
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from deploy.fault_monitor.job_config import JobConfig
from deploy.fault_monitor.loop import MonitorLoop
from deploy.telemetry.batch_codec import WireError
from deploy.training.node_recorder_actor import NodeRecorderActor, NodeRecorderSpec
from deploy.training.run_status import RunsObserved
from fleetwright.ray_train.collectives import NODE_FIELD
from fleetwright.ray_train.run_status import RunPhase, RunView

log = structlog.get_logger()

Attempt = tuple[str, int]  # of a run
PERIOD_S: Final = 0.5


class NodeRecorderHandle(Protocol):
    async def take(self) -> bytes | None:
        """Return the observations since the last call; None without a reply."""

    def close(self) -> None:
        """End the recorder."""


OpenRecorder = Callable[[str, NodeRecorderSpec], NodeRecorderHandle]  # on a Ray node
MakeLoop = Callable[[JobConfig, Sequence[str]], MonitorLoop]  # of a job, with the names of its nodes


@dataclass(slots=True, kw_only=True)
class _Watched:
    view: RunView
    loop: MonitorLoop
    recorders: tuple[NodeRecorderHandle, ...]
    reporting: asyncio.Task[None] | None = field(default=None)


@dataclass(slots=True, kw_only=True)
class RunMonitor:
    read_runs: Callable[[], Awaitable[RunsObserved]]
    open_recorder: OpenRecorder
    make_loop: MakeLoop
    names: Callable[[str], str]
    inbox: str | None
    ending_attempts: Callable[[], Collection[Attempt]] = tuple
    _watched: dict[Attempt, _Watched] = field(default_factory=dict)

    @property
    def attempts(self) -> frozenset[Attempt]:
        return frozenset(self._watched)

    @property
    def count(self) -> int:
        """Return the number of monitored attempts, for any thread."""
        return len(self._watched)

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self.turn()
                except Exception:  # an error of one turn must not end the monitoring of all runs
                    log.exception("watch_turn_failed")
                await asyncio.sleep(PERIOD_S)
        finally:
            self.close()

    async def turn(self) -> None:
        bodies = {attempt: await self._taken(watched) for attempt, watched in self._watched.items()}
        runs = (await self.read_runs()).runs
        running = {(view.run, view.attempt): view for view in runs if view.phase is RunPhase.RUNNING}
        for attempt in self.ending_attempts():
            running.pop(attempt, None)
        for attempt in self._watched.keys() - running.keys():
            self._drop(self._watched.pop(attempt))
        for attempt, watched in self._watched.items():
            with _reported(attempt):
                _evaluate(watched, bodies.get(attempt, ()))
        for attempt in running.keys() - self._watched.keys():
            with _reported(attempt):
                self._watched[attempt] = self._begin(running[attempt])

    def close(self) -> None:
        while self._watched:
            self._drop(self._watched.popitem()[1])

    async def _taken(self, watched: _Watched) -> tuple[bytes, ...]:
        bodies = await asyncio.gather(*(recorder.take() for recorder in watched.recorders))
        return tuple(body for body in bodies if body is not None)

    def _begin(self, view: RunView) -> _Watched:
        node_ids = list(dict.fromkeys(place.node_id for place in view.places))
        index = {node_id: at for at, node_id in enumerate(node_ids)}
        rank_node = tuple(index[place.node_id] for place in view.places)
        file = JobConfig(name=view.run[:200], nodes=len(node_ids), rank_node=rank_node)
        loop = self.make_loop(file, [self.names(node_id) for node_id in node_ids])
        recorders = tuple(self.open_recorder(node_id, self._spec(view, index, node_id)) for node_id in node_ids)
        log.info("run_watched", run=view.run, attempt=view.attempt, ranks=len(view.places), nodes=len(node_ids))
        watched = _Watched(view=view, loop=loop, recorders=recorders)
        if loop.reporter is not None:
            watched.reporting = asyncio.get_running_loop().create_task(loop.reporter.run())
        return watched

    def _spec(self, view: RunView, index: dict[str, int], node_id: str) -> NodeRecorderSpec:
        addresses = {place.address: index[place.node_id] for place in view.places}
        inbox = self.inbox.replace(NODE_FIELD, node_id) if self.inbox is not None else None
        return NodeRecorderSpec(
            node=index[node_id],
            nodes=len(index),
            rank_node=tuple(index[place.node_id] for place in view.places),
            pid_of={place.rank: place.pid for place in view.places if place.node_id == node_id},
            # Nodes that share an address are one machine: a connection cannot be attributed to one of them.
            address_of=addresses if len(addresses) == len(index) > 1 else {},
            inbox=inbox,
        )

    def _drop(self, watched: _Watched) -> None:
        log.info("run_not_watched", run=watched.view.run, attempt=watched.view.attempt)
        if watched.reporting is not None:
            watched.reporting.cancel()
        for recorder in watched.recorders:
            recorder.close()


@contextmanager
def _reported(attempt: Attempt) -> Iterator[None]:
    """Log an error of one run, because it must not end the monitoring of the others."""
    try:
        yield
    except Exception:
        log.exception("run_watch_failed", run=attempt[0], attempt=attempt[1])


def _evaluate(watched: _Watched, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        try:
            watched.loop.receive(body)
        except WireError as error:
            log.warning("node_recorder_batch_invalid", run=watched.view.run, reason=str(error))
    watched.loop.evaluate()


class RayNodeRecorder:
    """A recorder on a node of the Ray cluster of this process.  It ends with this process at the latest."""

    REPLY_S: Final = 2.0

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    async def take(self) -> bytes | None:
        """Return the new observations.  A node that is away or frozen does not reply."""
        try:
            async with asyncio.timeout(self.REPLY_S):
                body: bytes = await self._handle.take.remote()
        except Exception as error:  # noqa: BLE001 - Ray's errors and our timeout; the other recorders continue
            log.debug("node_recorder_timeout", reason=str(error) or type(error).__name__)
            return None
        return body

    def close(self) -> None:
        ray.kill(self._handle, no_restart=True)


def start_ray_recorder(node_id: str, spec: NodeRecorderSpec) -> NodeRecorderHandle:
    actor: Any = ray.remote(num_cpus=0)(NodeRecorderActor)
    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return RayNodeRecorder(actor.options(scheduling_strategy=there).remote(spec))
