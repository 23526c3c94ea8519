"""A training run as a target: replicas of several workers, bounds that it names, and boards that may be away."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("ray.train", reason="ray.train is not there", exc_type=ImportError)

from api.schemas.targets import RayTrainRun
from deploy.actuators.base import Bounds, Step
from deploy.actuators.ray_train import RayTrainActuator, ray_train_actuators
from deploy.common.errors import PlanUnusableError, UnreachableError
from deploy.controller.rollout import plan_changes, verify
from deploy.training.run_status import RunStatusReader
from fleetwright.ray_train.run_status import RankLocation, RunPhase, RunView

pytestmark = pytest.mark.anyio
RUN = RayTrainRun(run="llm", gpu="H100", workers_per_replica=2)


def view(workers: int, **more: Any) -> RunView:
    places = tuple(RankLocation(rank=rank, node_id="n", address="", pid=rank) for rank in range(workers))
    return replace(RunView(run="llm", phase=RunPhase.RUNNING, places=places, least_workers=2, most_workers=8), **more)


@dataclass
class OneBoard(RunStatusReader):
    """Of one run, in this process."""

    now: RunView | None

    def one_run(self, run: str) -> RunView:
        if self.now is None:
            raise UnreachableError(f"there is no training run {run!r}")
        return self.now

    def request_workers(self, run: str, workers: int | None) -> None:
        assert run == "llm"
        assert self.now is not None
        self.now = replace(self.now, requested_workers=workers)


async def test_it_speaks_of_replicas_and_asks_for_workers() -> None:
    board = OneBoard(view(8))
    actuator = RayTrainActuator(board, RUN)
    seen = await actuator.observe()
    assert (seen.requested, seen.running, seen.bounds) == (
        {"H100": 4},
        {"H100": 4},
        {"H100": Bounds(1, 4, "ScalingConfig.num_workers of training run 'llm'")},
    )
    (step,) = plan_changes(wanted={"H100": 2}, observation=seen, max_step=10)
    await actuator.apply(step)
    assert board.now is not None
    assert board.now.requested_workers == 4
    waiting = await actuator.observe()
    assert not verify(wanted={"H100": 2}, observation=waiting)
    board.now = replace(view(4), requested_workers=4)
    assert verify(wanted={"H100": 2}, observation=await actuator.observe())


async def test_between_two_groups_nothing_trains_and_the_note_says_so() -> None:
    seen = await RayTrainActuator(OneBoard(view(8, phase=RunPhase.STARTING)), RUN).observe()
    assert (seen.running, seen.note) == ({"H100": 0}, "its workers are starting")


async def test_what_it_cannot_have_is_refused_with_what_it_can() -> None:
    board = OneBoard(view(8))
    with pytest.raises(PlanUnusableError, match="cannot have 10 workers; allowed: 2 to 8"):
        await RayTrainActuator(board, RUN).apply(Step(part="H100", replicas_before=4, replicas_after=5))
    assert board.now is not None
    assert board.now.requested_workers is None
    fixed = await RayTrainActuator(OneBoard(view(8, least_workers=8)), RUN).observe()
    assert fixed.note is not None
    assert "not a range" in fixed.note


async def test_a_run_that_is_not_there_cannot_be_reached() -> None:
    with pytest.raises(UnreachableError):
        await RayTrainActuator(OneBoard(None), RUN).observe()


def test_each_run_is_looked_for_in_its_namespace() -> None:
    asked: list[str] = []

    def boards(namespace: str) -> RunStatusReader:
        asked.append(namespace)
        return OneBoard(None)

    ray_train_actuators(boards)(RUN.model_copy(update={"namespace": "team-a"}))
    assert asked == ["team-a"]
