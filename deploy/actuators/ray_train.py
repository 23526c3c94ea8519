"""A training run as a target: its number of workers is asked for on its board, and it honours that when it is safe."""

from collections.abc import Callable
from dataclasses import dataclass, field

from api.schemas.targets import RayTrainRun
from deploy.actuators.base import Observation, Replicas, Step
from deploy.common.errors import PlanUnusableError
from deploy.common.thread_calls import BlockingCalls
from deploy.controller.rollout import is_settled, next_steps
from deploy.training.run_status import RunStatusReader
from fleetwright.ray_train.run_status import RunPhase, RunView


@dataclass(frozen=True, slots=True)
class RayTrainActuator:
    """Drives one run on the Ray cluster that this process has joined.  A replica is `workers_per_replica` workers."""

    boards: RunStatusReader
    run: RayTrainRun
    calls: BlockingCalls = field(default_factory=BlockingCalls)

    async def observe(self) -> Observation:
        """What the run was asked to have, and what trains.  A run that is between two groups has nothing that does."""
        view = await self.calls.call(self._whom, self.boards.look_at, self.run.run)
        asked = view.asked_workers if view.asked_workers is not None else view.most_workers
        running = len(view.places) if view.phase is RunPhase.RUNNING else 0
        return Observation(
            asked={self.run.gpu: self._replicas(asked)},
            running={self.run.gpu: self._replicas(running)},
            allowed={self.run.gpu: (self._replicas(view.least_workers), self._replicas(view.most_workers))},
            note=self._note(view),
        )

    def plan_changes(self, *, wanted: Replicas, observation: Observation, max_step: int) -> tuple[Step, ...]:
        """Make before break."""
        return next_steps(wanted=wanted, observation=observation, max_step=max_step)

    async def apply(self, step: Step) -> None:
        """Ask the run; it changes at its next safe point."""
        workers = step.replicas_after * self.run.workers_per_replica
        view = await self.calls.call(self._whom, self.boards.look_at, self.run.run)
        if not view.least_workers <= workers <= view.most_workers:
            raise PlanUnusableError(
                f"training run {self.run.run!r} cannot have {workers} workers; "
                f"allowed: {view.least_workers} to {view.most_workers} (ScalingConfig.num_workers)"
            )
        await self.calls.call(self._whom, self.boards.ask, self.run.run, workers)

    def verify(self, *, wanted: Replicas, observation: Observation) -> bool:
        """Exactly the wanted workers train, and no others are asked for."""
        return is_settled(wanted=wanted, observation=observation)

    @property
    def _whom(self) -> str:
        return f"training run {self.run.run!r}"

    def _replicas(self, workers: int) -> int:
        return workers // self.run.workers_per_replica

    def _note(self, view: RunView) -> str | None:
        if view.least_workers == view.most_workers:
            return (
                f"the run has {view.most_workers} workers, no more and no fewer: ScalingConfig.num_workers is no range"
            )
        return None if view.phase is RunPhase.RUNNING else f"its workers are {view.phase.value}"


def ray_train_actuators(boards: Callable[[str], RunStatusReader] = RunStatusReader) -> Callable[[RayTrainRun], RayTrainActuator]:
    """A maker of actuators, each for the boards of its run's namespace, that wait for Ray in turn."""
    calls = BlockingCalls()
    return lambda run: RayTrainActuator(boards(run.namespace), run, calls)
