"""Records the collectives of every Ray Train v2 worker, without a change to the training function.

    RunConfig(callbacks=[WatchWorkers(to="unix:/run/fleetwright/inbox")])

`{node}` in `to` stands for the Ray id of the worker's node, for a file system that several nodes share.

Ray calls back on its controller when a worker group is ready, after a restart or a replaced replica too, and in each
worker around a report (ray.train.v2, 2.60).  `report`, barriers and broadcasts wait for every worker, so they count as
collectives of the world; a job without torch has only these.  Each report ends a step, unless the job counts its steps.

Workers need this package.  Errors are logged or counted, and the job trains on.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

import ray
import ray.train
from ray.train.v2._internal.execution import collective_impl
from ray.train.v2._internal.execution.callback import (
    ReplicaGroupCallback,
    TrainContextCallback,
    WorkerCallback,
    WorkerGroupCallback,
)
from ray.train.v2._internal.execution.context import get_train_context

from fleetwright.collectives.rank_reporter import RankReporter
from fleetwright.collectives.sinks import sink_from
from fleetwright.collectives.torch_ops import watch

log = logging.getLogger(__name__)

COLLECTIVES: Final = {"barrier": "barrier", "broadcast_from_rank_zero": "broadcast"}  # of Ray Train itself
REPORT: Final = "report"
NODE_FIELD: Final = "{node}"


class WorkerWatch:
    """The recorder of this worker, and its number of reports, those of earlier lives included."""

    def __init__(self, reporter: RankReporter, *, reports: int, close: Callable[[bool], None]) -> None:
        self.reporter, self._close = reporter, close
        self._reports = reports

    @contextmanager
    def waiting(self, op: str) -> Iterator[None]:
        """Record a call that waits for every worker."""
        begun = self.reporter.begin(op)
        try:
            yield
        except BaseException:
            self.reporter.fail(begun)
            raise
        self.reporter.end(begun)

    def step_over(self) -> None:
        """Record a report.  A step that the job has set itself stays."""
        if self.reporter.progress.step in (None, self._reports):
            self.reporter.progress.step = self._reports + 1
        self._reports += 1

    def close(self, *, well: bool) -> None:
        self._close(well)


class _Worker:
    """State of this process: at most one worker of Ray Train."""

    watched: WorkerWatch | None = None


def watch_worker(to: str | None, heartbeat_s: float) -> str:
    """Start the recorder in a worker, and return the outcome."""
    if to is not None:
        to = to.replace(NODE_FIELD, ray.get_runtime_context().get_node_id())
    try:
        _Worker.watched = _of_torch(to, heartbeat_s) or _of_ray(to, heartbeat_s)
    except (OSError, ValueError) as error:
        log.warning("the worker is not recorded: %s", error)
        return "no destination"
    for name, op in COLLECTIVES.items():
        _watch_function(name, op)
    return "watched"


class WatchWorkers(ReplicaGroupCallback, WorkerGroupCallback, WorkerCallback, TrainContextCallback):  # type: ignore[misc]
    """A callback for `ray.train.RunConfig(callbacks=[...])`."""

    def __init__(self, *, to: str | None = None, heartbeat_s: float = 0.5) -> None:
        self._to, self._heartbeat_s = to, heartbeat_s

    def after_execution_group_start(self, execution_group: Any) -> None:
        """All workers are ready.  A failure is logged."""
        try:
            found = execution_group.execute(watch_worker, self._to, self._heartbeat_s)
        except Exception:
            log.exception("workers are not recorded")
            return
        log.info("workers: %s", ", ".join(sorted(set(found))))

    @contextmanager
    def on_report(self) -> Iterator[None]:
        """Record, in a worker, a call of `ray.train.report` to its end, an upload included."""
        yield
        if _Worker.watched is not None:
            _Worker.watched.step_over()

    @contextmanager
    def on_checkpoint_sync(self) -> Iterator[None]:
        """Record, in a worker, the part of a report that waits for all others."""
        with _waiting(REPORT):
            yield

    def before_worker_shutdown(self) -> None:
        """Close the recorder in a worker, which ended well if its training function has returned."""
        if _Worker.watched is not None:
            runner = get_train_context().execution_context.training_thread_runner
            _Worker.watched.close(well=not runner.is_running() and runner.get_error() is None)
            _Worker.watched = None


def _of_torch(to: str | None, heartbeat_s: float) -> WorkerWatch | None:
    """Return None without torch or without a process group."""
    try:
        import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - the worker's
    except ImportError:
        return None
    if not dist.is_available() or not dist.is_initialized():
        return None
    watched = watch(dist, to=to, heartbeat_s=heartbeat_s)
    if not watched.active:
        raise ValueError("torch's process group could not be recorded")
    return WorkerWatch(watched.reporter, reports=_reports(), close=lambda well: watched.close(well=well))


def _of_ray(to: str | None, heartbeat_s: float) -> WorkerWatch:
    rank = ray.train.get_context().get_world_rank()
    reporter = RankReporter(sink_from(to, rank=rank), rank=rank, heartbeat_s=heartbeat_s)
    reporter.progress.step = _reports()
    reporter.queue.start()
    return WorkerWatch(reporter, reports=_reports(), close=lambda well: reporter.close(well=well))


def _reports() -> int:
    made: int = get_train_context().report_call_index
    return made


def _watch_function(name: str, op: str) -> None:
    """Wrap a function of Ray Train; later calls through its module are recorded."""
    original = getattr(collective_impl, name, None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def called(*args: Any, **named: Any) -> Any:
        with _waiting(op):
            return original(*args, **named)

    setattr(collective_impl, name, called)


@contextmanager
def _waiting(op: str) -> Iterator[None]:
    if _Worker.watched is None:
        yield
        return
    with _Worker.watched.waiting(op):
        yield
