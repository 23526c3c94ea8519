"""The Ray Train v2 callback that keeps a run's status actor up to date, from the run's own controller.

    RunConfig(name="llm-7b", callbacks=[RunStatusCallback(), WatchWorkers(to="unix:/run/fleetwright/inbox")])

The status changes before a group's workers are ended, so a fault monitor never takes the end for a crash.  A step is
the value `step` of the job's report, otherwise the number of the report.  Errors are logged, and the job trains on.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ray
from ray.train.v2._internal.execution.callback import ControllerCallback, ReportCallback, WorkerGroupCallback

from fleetwright.ray_train.run_status import RankLocation, create_run_status_actor

log = logging.getLogger(__name__)

REPLY_S: Final = 5.0


class TrainProcess:
    """State of one Train controller process: at most one run.

    Our callbacks share it, because Ray copies each of them there separately.
    """

    status_actor: Any = None
    workers: int = 0  # of the group that trains
    checkpoints: int = 0  # since the process began


class RunStatusCallback(ControllerCallback, WorkerGroupCallback, ReportCallback):  # type: ignore[misc]
    """A callback for `ray.train.RunConfig(callbacks=[...])`."""

    def __init__(self) -> None:
        self._actor: Any = None
        self._reports = 0

    def after_controller_start(self, train_run_context: Any) -> None:
        with _logging_errors():
            scaling = train_run_context.scaling_config
            self._actor = create_run_status_actor(
                train_run_context.get_run_config().name,
                min_workers=scaling.min_workers,
                max_workers=scaling.max_workers,
            )
            TrainProcess.status_actor = self._actor

    def before_worker_group_start(self, worker_group_context: Any) -> None:
        self._call_actor("starting", dict(worker_group_context.resources_per_worker))

    def after_worker_group_training_start(self, worker_group: Any) -> None:
        with _logging_errors():
            workers = {worker.distributed_context.world_rank: worker for worker in worker_group.get_workers()}
            places = tuple(
                RankLocation(
                    rank=rank,
                    node_id=worker.metadata.node_id,
                    address=worker.metadata.node_ip,
                    pid=worker.metadata.pid,
                )
                for rank, worker in sorted(workers.items())
            )
            TrainProcess.workers = len(places)
            self._call_actor("running", places, {rank: worker.actor for rank, worker in workers.items()})

    def before_worker_group_shutdown(self, worker_group: Any) -> None:  # noqa: ARG002 - Ray's signature
        """Record that workers are about to be ended, for any reason."""
        self._call_actor("ending")

    def before_worker_group_abort(self, worker_group_context: Any) -> None:  # noqa: ARG002 - Ray's signature
        """Record that workers are about to be ended because the user interrupts."""
        self._call_actor("ending")

    def after_report(self, training_report: Any, metrics: list[dict[str, Any]]) -> None:
        with _logging_errors():
            self._reports += 1
            given = next((each["step"] for each in metrics if type(each.get("step")) is int), None)
            step = given if given is not None and given >= 0 else self._reports
            checkpoint = training_report.checkpoint is not None
            if checkpoint:
                TrainProcess.checkpoints += 1
            if self._actor is not None:
                self._actor.reported.remote(step, checkpoint=checkpoint)

    async def before_controller_shutdown(self) -> None:
        if self._actor is not None:
            self._actor.over.remote()

    def _call_actor(self, method: str, *args: Any) -> None:
        if self._actor is not None:
            with _logging_errors():
                ray.get(getattr(self._actor, method).remote(*args), timeout=REPLY_S)


@contextmanager
def _logging_errors() -> Iterator[None]:
    try:
        yield
    except Exception:
        log.exception("the run's status actor is not up to date")
