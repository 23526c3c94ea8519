"""The actuator of an elastic training run: its number of workers is requested through the run's status actor.

The run changes its size at its next safe point (`fleetwright.ray_train`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from api.schemas.applications import RayTrainRun
from deploy.actuators.base import Bounds, Change, Step, TargetSnapshot
from deploy.common.errors import ActuationError, PlanUnusableError
from deploy.common.thread_calls import BlockingCalls
from deploy.training.run_status import RunStatusReader
from fleetwright.ray_train.run_status import RunPhase, RunView

FIELD = "ScalingConfig.num_workers"


@dataclass(frozen=True, slots=True)
class RayTrainActuator:
    """Drives one run on the Ray cluster that this process has joined.  A replica is `workers_per_replica` workers."""

    runs: RunStatusReader
    run: RayTrainRun
    calls: BlockingCalls = field(default_factory=BlockingCalls)

    async def observe(self) -> TargetSnapshot:
        """Read requested and training workers.  Between two worker groups no worker trains."""
        view = await self.calls.call(self._name, self.runs.one_run, self.run.run)
        requested = view.requested_workers if view.requested_workers is not None else view.max_workers
        running = len(view.places) if view.phase is RunPhase.RUNNING else 0
        bounds = Bounds(self._replicas(view.min_workers), self._replicas(view.max_workers), f"{FIELD} of {self._name}")
        return TargetSnapshot(
            requested={self.run.gpu: self._replicas(requested)},
            running={self.run.gpu: self._replicas(running)},
            bounds={self.run.gpu: bounds},
            note=self._note(view),
        )

    async def apply(self, change: Change) -> None:
        if not isinstance(change, Step):
            raise ActuationError(f"{self._name} has no user_config and no drain")
        workers = change.replicas_after * self.run.workers_per_replica
        view = await self.calls.call(self._name, self.runs.one_run, self.run.run)
        if not view.min_workers <= workers <= view.max_workers:
            raise PlanUnusableError(
                f"{self._name} cannot have {workers} workers; "
                f"allowed: {view.min_workers} to {view.max_workers} ({FIELD})"
            )
        await self.calls.call(self._name, self.runs.request_workers, self.run.run, workers)

    @property
    def _name(self) -> str:
        return f"training run {self.run.run!r}"

    def _replicas(self, workers: int) -> int:
        return workers // self.run.workers_per_replica

    def _note(self, view: RunView) -> str | None:
        if view.min_workers == view.max_workers:
            return f"the run always has {view.max_workers} workers: {FIELD} is not a range"
        return None if view.phase is RunPhase.RUNNING else f"its workers are {view.phase.value}"


def ray_train_actuators(
    runs: Callable[[str], RunStatusReader] = RunStatusReader,
) -> Callable[[RayTrainRun], RayTrainActuator]:
    """Return a factory of actuators, one per run; their calls to Ray take turns."""
    calls = BlockingCalls()
    return lambda run: RayTrainActuator(runs(run.namespace), run, calls)
